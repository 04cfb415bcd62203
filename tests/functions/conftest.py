"""Loads the functions of `src`: `cargo xtask test functions` compiles them, and names the library."""

import os

import pytest
import tvm_ffi

LIBRARY = os.environ["INTEROP_FUNCTIONS"]


class Functions:
    """The functions by name, as attributes."""

    def __init__(self):
        self.module = tvm_ffi.load_module(LIBRARY)

    def __getattr__(self, name):
        function = self.module[name]
        setattr(self, name, function)
        return function


@pytest.fixture(scope="session")
def f():
    return Functions()
