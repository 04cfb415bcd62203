#!/usr/bin/env bash
# Runs the bundle that `cargo xtask gpu-bundle` made, or parts of it: run.sh [PART]...; `run.sh --list` names the parts.
# Full logs go to $OUT, if that is set. PARTNERS names a folder with further Python libraries, such as Warp and DALI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here/python:$here/packages:$here/gpu${PARTNERS:+:$PARTNERS}${PYTHONPATH:+:$PYTHONPATH}"
export PATH="$PATH:/usr/local/cuda/bin" XLA_PYTHON_CLIENT_PREALLOCATE=false
chmod +x "$here"/{rust,examples,benches}/* 2>/dev/null
exec "${PYTHON:-python3}" -B "$here/gpu/run.py" "$@"
