"""tvm-ffi and Rust on the same memory, in both directions; tvm-ffi supports each form of DLPack."""

import interop_demo
import numpy as np
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi")

Array = interop_demo.Array
DTYPES = ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3)], ids=repr)
def test_rust_to_tvm_and_back(dtype, shape):
    array = Array.full(shape, 1, dtype)
    tensor = tvm_ffi.from_dlpack(array)
    facts = interop_demo.describe(array)
    assert tuple(tensor.shape) == shape
    assert tensor.data_ptr() == facts["data"]
    found = interop_demo.describe(tensor)
    assert {**found, "protocol": None} == {**facts, "protocol": None}
    assert interop_demo.checksum(tensor) == interop_demo.checksum(array) == max(1, np.prod(shape))


def test_strides_arrive():
    array = Array.full((6, 8), 1.0)[1::2, ::-3]
    tensor = tvm_ffi.from_dlpack(array)
    assert tuple(tensor.strides) == interop_demo.describe(array)["strides"] == (16, -3)
    assert interop_demo.checksum(tensor) == 9
    interop_demo.scale_(tensor, 2.0)
    assert interop_demo.checksum(array) == 18


def test_numpy_through_tvm():
    array = np.arange(12.0).reshape(3, 4)
    tensor = tvm_ffi.from_dlpack(array)
    assert interop_demo.describe(tensor)["data"] == array.__array_interface__["data"][0]
    back = np.from_dlpack(interop_demo.asarray(tensor))
    assert np.array_equal(back, array)


def test_the_kinds_of_capsules_of_tvm():
    """Without a version it returns a legacy capsule, with one a versioned one."""
    tensor = tvm_ffi.from_dlpack(Array.full((3,), 1.0))
    assert interop_demo.describe(tensor.__dlpack__())["protocol"] == "dlpack"
    assert interop_demo.describe(tensor.__dlpack__(max_version=(1, 0)))["protocol"] == "dlpack_versioned"
    assert interop_demo.describe(tensor)["protocol"] in ("exchange", "dlpack_versioned")


def test_empty_tensors():
    tensor = tvm_ffi.from_dlpack(Array.full((0, 3), 1.0))
    assert interop_demo.describe(tensor)["data"] == 0
    assert interop_demo.describe(tensor)["shape"] == (0, 3)


def test_ten_thousand_trips_leave_nothing():
    array = Array.full((64,), 1.0)
    for _ in range(10_000):
        interop_demo.asarray(tvm_ffi.from_dlpack(array))


def test_what_its_functions_return_is_an_array_like_any_other():
    """TVM FFI creates it with our exchange table (`managed_tensor_to_py_object_no_sync`)."""
    array = interop_demo.asarray(np.arange(6, dtype="f4").reshape(2, 3))
    back = tvm_ffi.get_global_func("testing.echo")(array)
    names = ("shape", "ndim", "size", "nbytes", "strides", "dtype")
    assert [getattr(back, name) for name in names] == [getattr(array, name) for name in names]
    assert (len(back), back.__dlpack_device__()) == (2, (1, 0))
    interop_demo.scale_(back, 2)
    assert np.from_dlpack(back).tolist() == memoryview(array).tolist() == memoryview(back).tolist()
    assert np.asarray(back).flags.writeable
    assert interop_demo.describe(back) == interop_demo.describe(array)
