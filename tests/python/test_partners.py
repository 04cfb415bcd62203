"""Warp, PyArrow, nanobind and handwritten C on the same memory. NumPy, JAX and tvm-ffi have their own files."""

import gc
import sys

import interop_demo
import native
import numpy as np
import pytest
from capsules import READ_ONLY, Producer, Tensor, look

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
DTYPES = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]


# Warp passes `stream` as the only keyword (R116) and needs `len()`.


@pytest.fixture(scope="module")
def warp():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    return warp


@pytest.mark.parametrize("dtype", DTYPES)
def test_warp_uses_our_memory(warp, dtype):
    array = Array.full((2, 3), 2, dtype)
    theirs = warp.from_dlpack(array)
    assert (theirs.ptr, theirs.shape) == (interop_demo.describe(array)["data"], (2, 3))
    theirs.numpy()[:] = 3
    assert interop_demo.checksum(array) == 18
    assert theirs.strides == array.strides


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_use_the_memory_of_warp(warp, dtype):
    source = np.arange(6, dtype=dtype).reshape(2, 3)
    theirs = warp.from_numpy(source, device="cpu", dtype=warp.dtype_from_numpy(np.dtype(dtype)))
    facts = interop_demo.describe(theirs)
    assert (facts["data"], facts["shape"], facts["dtype"]) == (theirs.ptr, (2, 3), dtype)
    assert interop_demo.checksum(theirs) == 15
    assert np.array_equal(np.from_dlpack(interop_demo.asarray(theirs)), source)


def test_strided_arrays_of_warp(warp):
    array = Array.full((6, 4), 1.0)[::2, 1:]
    theirs = warp.from_dlpack(array)
    assert (theirs.strides, theirs.ptr) == (array.strides, interop_demo.describe(array)["data"])
    assert interop_demo.describe(theirs[1:])["strides"] == (8, 1)


def test_warp_lets_go(warp):
    theirs = warp.from_dlpack(Array.full((2, 3), 1.0))
    assert interop_demo.live_allocations() >= 1
    del theirs
    gc.collect()


# PyArrow's arrays are read-only columns in a legacy capsule.


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_of_arrow(dtype):
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array(np.arange(6, dtype=dtype))
    facts = interop_demo.describe(column)
    assert (facts["data"], facts["shape"], facts["dtype"]) == (column.buffers()[1].address, (6,), dtype)
    assert facts["readonly"]
    assert interop_demo.checksum(column[2:]) == 14
    with pytest.raises(ArrayError, match="read-only"):
        interop_demo.blur_(column, 1) if dtype == "<f4" else interop_demo.scale_(column, 2.0)


def test_columns_that_arrow_refuses():
    """R120: the producer's exception is passed on."""
    arrow = pytest.importorskip("pyarrow")
    for column, kind in ((arrow.array([1, None]), "null"), (arrow.array(["a"]), "type"), (arrow.array([True]), "")):
        with pytest.raises((arrow.ArrowException, ArrayError, TypeError, ValueError), match=f"(?i){kind}"):
            interop_demo.describe(column)


# nanobind's functions accept `max_version=(1, 1)` capsules, and its arrays do not rename them.


@pytest.fixture(scope="module")
def nanobind():
    return native.required("nanobind_arrays")


def test_nanobind_uses_our_memory(nanobind):
    array = Array.full((3, 3), 2.0)
    assert nanobind.is_square(array)
    assert not nanobind.is_square(Array.full((3, 4), 2.0))
    theirs = nanobind.asarray(array)
    facts = interop_demo.describe(array)
    del array
    found = interop_demo.describe(theirs)
    assert {**found, "protocol": None} == {**facts, "protocol": None}
    interop_demo.scale_(theirs, 2.0)
    assert interop_demo.checksum(theirs) == 36


@pytest.mark.parametrize("wrong", [Array.full((3,), 1.0), Array.full((3, 3), 1.0, "<f8")], ids=["rank", "dtype"])
def test_nanobind_refuses_what_its_functions_do_not_take(nanobind, wrong):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        nanobind.is_square(wrong)


def test_keywords_that_nanobind_does_not_know(nanobind):
    """Its own errors are not mistaken for those of an old producer."""
    theirs = nanobind.asarray(np.zeros((2, 2)))
    with pytest.raises(TypeError):
        theirs.__dlpack__(unknown=1)
    assert interop_demo.describe(theirs)["protocol"] == "numpy"


# C


def test_an_array_of_c():
    c = native.required("handwritten")
    array = c.Array()
    assert interop_demo.describe(array)["shape"] == (4, 4)
    interop_demo.scale_(array, 2.0)
    back = c.asarray(interop_demo.asarray(array))
    assert np.shares_memory(np.from_dlpack(back), np.from_dlpack(array))
    assert c.is_square(interop_demo.asarray(np.zeros((2, 2), np.float32)))


def test_a_method_in_the_dict_of_an_instance():
    """It takes precedence over the method of the type, also if the type was cached without one."""
    c = native.required("handwritten")
    plain, dressed = c.Dressed(), c.Dressed()
    dressed.__dlpack__ = interop_demo.asarray(np.zeros(3, np.int8)).__dlpack__
    assert [interop_demo.describe(array)["dtype"] for array in (plain, dressed, plain)] == ["<f4", "|i1", "<f4"]


def test_a_table_that_refuses_leads_to_the_method():
    """R171: its `BufferError` is discarded if the method succeeds."""
    c = native.required("handwritten")
    array = c.Array()
    assert interop_demo.describe(array)["protocol"] == "exchange"
    c.refuse(True)
    try:
        facts = interop_demo.describe(array)
    finally:
        c.refuse(False)
    assert (facts["protocol"], facts["shape"]) == ("dlpack_versioned", (4, 4))
    assert interop_demo.describe(array)["protocol"] == "exchange"


def test_a_table_that_works_and_raises_all_the_same():
    """Its tensor is released, its exception is left, and `__dlpack__` is called."""
    c = native.required("handwritten")
    array = c.Array()
    references = sys.getrefcount(array)
    c.refuse(2)
    try:
        assert interop_demo.describe(array)["protocol"] == "dlpack_versioned"
    finally:
        c.refuse(0)
    assert sys.getrefcount(array) == references


def test_a_type_that_answers_for_its_attributes():
    c = native.required("handwritten")
    array = c.Watched()
    assert interop_demo.describe(array)["shape"] == (4, 4)
    c.refuse(True)
    with pytest.raises(BufferError, match="not today"):
        interop_demo.describe(array)
    c.refuse(False)
    assert interop_demo.describe(array)["shape"] == (4, 4)


def test_a_capsule_of_c_without_a_deleter():
    c = native.required("handwritten")
    assert interop_demo.describe(c.imagined())["device"] == (2, 0)


# An owner that is passed between all of them


def test_a_chain_through_every_partner(nanobind, warp):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    c = native.required("handwritten")
    source = np.arange(16, dtype=np.float32).reshape(4, 4)
    value = source
    for step in (c.asarray, nanobind.asarray, tvm_ffi.from_dlpack, warp.from_dlpack, np.from_dlpack):
        value = step(interop_demo.asarray(value))
    assert interop_demo.describe(value)["data"] == source.__array_interface__["data"][0]
    assert interop_demo.checksum(value) == 120
    tensor = Tensor(flags=READ_ONLY)
    assert look(interop_demo.asarray(Producer(tensor)).__dlpack__(max_version=(1, 0))).flags == READ_ONLY
