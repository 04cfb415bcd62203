"""Functions in Rust for arrays of NumPy, PyTorch, CuPy and others. `for_torch` and `for_jax` register them there."""

import sys
from pathlib import Path

import tvm_ffi

_NAMES = {"darwin": "libhello_functions.dylib", "win32": "hello_functions.dll"}
LIBRARY = Path(__file__).with_name(_NAMES.get(sys.platform, "libhello_functions.so"))

_library = tvm_ffi.load_module(str(LIBRARY))

scale_, scale_into, scaled = (_library[name] for name in ("scale_", "scale_into", "scaled"))
