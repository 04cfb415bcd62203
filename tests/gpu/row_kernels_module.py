"""The module with the kernels of rows of the bundle, loaded."""

from pathlib import Path

from interop_rows import (
    center_,
    chain,
    chain_on_cpu,
    layer_norm,
    load,
    online_softmax,
    rms_norm,
    row_max,
    row_sum,
    softmax,
    sum_on_cpu,
    threads,
)

__all__ = [
    "center_",
    "chain",
    "chain_on_cpu",
    "layer_norm",
    "online_softmax",
    "rms_norm",
    "row_max",
    "row_sum",
    "softmax",
    "sum_on_cpu",
    "threads",
]

load(Path(__file__).resolve().parent.parent / "rows" / "rows.ptx")
