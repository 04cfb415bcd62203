"""The functions for `jax.jit`, with their gradients: `scaled(x, 2.0)`, and `scale(x, 2.0)`, which may reuse the memory of `x`."""

import ctypes

from hello_functions import LIBRARY

ctypes.PyDLL(LIBRARY).interop_jax_functions(ctypes.py_object(globals()))
