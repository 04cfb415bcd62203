"""Operators of PyTorch with their gradients: `torch.ops.hello_functions.scaled(x, 2.0)`."""

import ctypes

import torch  # noqa: F401

from hello_functions import LIBRARY

ctypes.PyDLL(LIBRARY).interop_load_operators()
