"""Functions in Rust for arrays of NumPy, PyTorch, CuPy and others.

`torch.ops.hello_functions` has them as operators of PyTorch after `import hello_functions.for_torch`, and
`hello_functions.for_jax` as functions of JAX.
"""

import sys
from pathlib import Path

import tvm_ffi

_NAMES = {"darwin": "libhello_functions.dylib", "win32": "hello_functions.dll"}
LIBRARY = str(Path(__file__).with_name(_NAMES.get(sys.platform, "libhello_functions.so")))

_library = tvm_ffi.load_module(LIBRARY)

scale_, scale_into, scaled = (_library[name] for name in ("scale_", "scale_into", "scaled"))
