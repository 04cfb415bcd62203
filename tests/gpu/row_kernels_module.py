"""The module with the kernels of rows of the bundle, loaded."""

from pathlib import Path

from interop_rows import center_, layer_norm, load, rms_norm, row_max, row_sum, softmax, sum_on_cpu, threads

__all__ = ["center_", "layer_norm", "rms_norm", "row_max", "row_sum", "softmax", "sum_on_cpu", "threads"]

load(Path(__file__).resolve().parent.parent / "rows" / "rows.ptx")
