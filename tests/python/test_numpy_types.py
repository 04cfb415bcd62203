"""Element types that NumPy does not have itself: those that other packages register, and unknown ones."""

import gc
import importlib

import interop_demo
import numpy as np
import pytest
from capsules import READ_ONLY, Tensor
from scripts import run


@pytest.mark.parametrize("dtype", [(99, 8, 1), (2, 32, 4), (4, 16, 2)], ids=repr)
def test_types_that_numpy_does_not_have(dtype):
    """The error names the type, which NumPy's own does not."""
    array = interop_demo._exported(interop_demo.asarray(Tensor(shape=(), dtype=dtype).capsule()))
    text = rf"^`dtype`: found {array.dtype}\b.* \(from interop_core.ExportedArray\)$"
    with pytest.raises(interop_demo.ArrayError, match=text):
        np.asarray(array)


LEARNED = {"bfloat16": (4, 16, 1), "float8_e4m3fn": (10, 8, 1), "float8_e5m2": (12, 8, 1), "float8_e8m0fnu": (14, 8, 1)}


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize(("name", "dtype"), LEARNED.items())
def test_types_that_numpy_learned(name, dtype):
    """From `ml_dtypes`, as in JAX's arrays: in place, with all NumPy functions."""
    learned = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    source = np.arange(1, 9).reshape(2, 4).astype(learned)
    integers = source.view(f"u{learned.itemsize}")
    for flags in (0, READ_ONLY):
        tensor = Tensor(shape=(2, 2), strides=(4, -2), dtype=dtype, data=integers[:, 2:].ctypes.data, flags=flags)
        array = interop_demo._exported(interop_demo.asarray(tensor.capsule()))
        seen = np.asarray(array)
        assert (array.dtype, seen.dtype, np.result_type(array)) == (learned, learned, learned)
        assert seen.astype(float).tolist() == source[:, 2::-2].astype(float).tolist()
        assert (seen.ctypes.data, seen.strides) == (tensor.struct.tensor.data, array.strides)
        assert seen.flags.writeable is (flags == 0)
        assert np.asarray(array, "f4").sum() == source[:, 2::-2].astype("f4").sum()
        assert not np.shares_memory(np.array(array), seen)
        assert np.asarray(array[0, 0]) == source[0, 2]
        # The view keeps the array alive.
        del array
        gc.collect()
        assert tensor.released == 0 and float(seen[1, 1]) == float(source[1, 0])
        del seen
        gc.collect()
        assert tensor.released == 1


@pytest.mark.needs("ml_dtypes")
def test_a_type_that_numpy_has_yet_to_learn():
    """The package is looked up each time, and the refusal names the one that provides the type."""
    script = """
import interop_demo, numpy as np
array = interop_demo._exported(interop_demo.Array.full((), 2.5, "bfloat16"))
assert array.dtype == "bfloat16" and isinstance(array.dtype, str)
try:
    np.asarray(array)
except interop_demo.ArrayError as error:
    assert "found bfloat16" in str(error) and "`import ml_dtypes` adds" in str(error), error
else:
    raise AssertionError("not refused")
import ml_dtypes
assert array.dtype == ml_dtypes.bfloat16 and np.asarray(array) == 2.5
"""
    run(script)
