"""Functions in Rust for arrays of NumPy, PyTorch, CuPy and others. `for_torch` and `for_jax` register them there."""

from pathlib import Path

import tvm_ffi

_library = tvm_ffi.load_module(str(Path(__file__).with_name("libhello_functions.so")))

scale_, scale_into, scaled = (_library[name] for name in ("scale_", "scale_into", "scaled"))
