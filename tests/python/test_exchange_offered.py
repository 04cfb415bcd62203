"""The C exchange table of our classes, called from C and by tvm-ffi (R158, R161 to R168, R173, bugs 59, 163)."""

import ctypes
import gc
import sys

import interop_demo
import native
import numpy as np
import pytest
from capsules import (
    CPU, CUDA, CUDA_HOST, CUDA_MANAGED, READ_ONLY, DLTensor, Producer, Tensor, python_function, release, take
)
from scripts import run
from test_exchange import Table

c = native.required("handwritten")

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
NAME = "__dlpack_c_exchange_api__"
pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)


def returned():
    """The result of a Rust function, which is of the runtime's class."""
    return interop_demo.edges(np.zeros((2, 3, 3), np.float32))


@pytest.mark.parametrize("owner", [Array.full((1,), 0), returned()], ids=["pyclass", "returned"])
def test_the_table(owner):
    """R158, R161, bug 163: on the type, always the same, of our version, with all functions but the optional one that
    borrows: it would need memory that lives with the object.
    """
    kind = type(owner)
    assert pointer(getattr(kind, NAME), b"dlpack_exchange_api") == pointer(vars(kind)[NAME], b"dlpack_exchange_api")
    assert c.table_members(owner) == {"version": (1, 3), "previous": False, "functions": (True, True, True, False, True)}


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (Array.full((2, 3), 1, "<f4"), (2, 32, 1)),
        (Array.full((2, 3), 1, "bfloat16")[::-1, ::2], (4, 16, 1)),
        (Array.full((), 1, "<i8"), (0, 64, 1)),
        (Array.full((0, 3), 1, "|u1"), (1, 8, 1)),
        (Array.full((4, 5, 6), 1, "<f8", order="F")[1:], (2, 64, 1)),
        (returned(), (2, 32, 1)),
    ],
    ids=["2d", "reversed", "0d", "empty", "F", "returned"],
)
def test_tensors_say_what_the_array_says(array, dtype):
    facts = interop_demo.describe(array)
    expected = {key: facts[key] for key in ("data", "device", "shape", "strides")} | {"dtype": dtype, "byte_offset": 0}
    assert c.table_import(array, array) == (expected, (1, 3), 0)


def test_read_only_arrays_say_so():
    array = Array.full((2,), 1, readonly=True)
    assert c.table_import(array, array)[1:] == ((1, 3), READ_ONLY)


@pytest.mark.parametrize("wrong", [None, 1, "array", np.zeros(3), pytest.param(returned(), id="returned"), Array], ids=repr)
def test_other_objects_are_refused(wrong):
    """R163."""
    with pytest.raises(TypeError, match=r"py_object.*interop_demo\.Array"):
        c.table_import(Array.full((1,), 0), wrong)


def test_an_owned_tensor_becomes_an_object():
    """R166: in place, and released with the object."""
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    references = sys.getrefcount(source)
    wrapped = c.table_wrap(Array.full((1,), 0), source)
    assert np.shares_memory(np.from_dlpack(wrapped), source)
    assert np.from_dlpack(wrapped).flags.writeable
    assert interop_demo.checksum(wrapped) == 15
    assert sys.getrefcount(source) == references + 1
    del wrapped
    gc.collect()
    assert sys.getrefcount(source) == references


def test_an_owned_tensor_that_is_read_only_stays_so():
    source = np.zeros(3)
    source.flags.writeable = False
    wrapped = c.table_wrap(Array.full((1,), 0), source)
    assert interop_demo.describe(wrapped)["readonly"]
    assert not np.from_dlpack(wrapped).flags.writeable


@pytest.mark.parametrize(
    "fields", [{"version": (2, 0)}, {"ndim": -1}, {"data": 0}, {"dtype": (2, 8, 1)}, {"shape": (2, -3)}], ids=repr
)
def test_an_owned_tensor_that_is_refused_is_released(fields):
    """R166: once, and with an exception."""
    tensor = Tensor(**fields)
    with pytest.raises(ArrayError):
        c.table_wrap(Array.full((1,), 0), Producer(tensor))
    assert tensor.released == 1


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 3), (2, 32, 1)), ((), (0, 8, 1)), ((3, 0), (1, 16, 1)), ((5,), (2, 32, 4))], ids=repr
)
def test_allocations(shape, dtype):
    """R167: like the prototype, whose data and strides are not read (C passes wild pointers)."""
    facts = c.table_allocate(Array.full((1,), 0), shape, *dtype, CPU, 0)
    assert (facts["shape"], facts["dtype"], facts["device"]) == (shape, dtype, (CPU, 0))
    assert facts["data"] % 128 == 0
    assert (facts["data"] == 0) == (0 in shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "device", "kind", "place"),
    [
        ((2, -3), (2, 32, 1), CPU, "BufferError", "shape[1]"),
        ((2**40, 2**40), (2, 32, 1), CPU, "BufferError", "shape"),
        ((2**61,), (2, 64, 1), CPU, "BufferError", "shape"),
        ((2**46,), (2, 64, 1), CPU, "MemoryError", "memory"),
        ((2,), (2, 32, 1), CUDA, "BufferError", "no NVIDIA driver could be loaded"),
        ((2,), (2, 32, 1), 77, "BufferError", "device_type"),
        ((2,), (17, 4, 1), CPU, "BufferError", "dtype"),
        ((2,), (2, 7, 1), CPU, "BufferError", "dtype"),
    ],
    ids=repr,
)
def test_allocations_that_fail(shape, dtype, device, kind, place):
    """R167: reported once through the error function, with the name of an exception; no Python exception is set."""
    ((found, text),) = c.table_allocate(Array.full((1,), 0), shape, *dtype, device, 0)
    assert found == kind
    assert place in text


@pytest.mark.parametrize(
    ("ndim", "message"),
    [
        (1, b"`shape`: found a null pointer for 1 axis, allowed: a pointer to one extent for each axis"),
        (65, b"`ndim`: found 65, allowed: 0 to 64"),
        (-1, b"`ndim`: found -1, allowed: 0 to 64"),
    ],
)
def test_an_allocation_without_its_extents(ndim, message):
    """R167: the message tells a C caller which argument is wrong."""
    report = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, report)
    table = Table.from_address(pointer(getattr(Array, NAME), b"dlpack_exchange_api"))
    prototype = DLTensor(device_type=CPU, ndim=ndim, code=2, bits=32, lanes=1)
    told, out = [], ctypes.c_void_p()
    tell = report(lambda _, kind, text: told.append((kind, text)))
    assert allocate(table.allocator)(ctypes.addressof(prototype), ctypes.addressof(out), None, tell) == -1
    assert told == [(b"BufferError", message)]


@pytest.mark.parametrize("device", [CPU, CUDA, CUDA_HOST, CUDA_MANAGED])
def test_the_stream(device):
    """R168: none for host memory; otherwise the legacy default stream by its own handle, because null says nothing."""
    assert c.table_stream(Array.full((1,), 0), device, 0) == (0 if device == 1 else 1)


def test_the_stream_of_a_device_that_nobody_knows():
    """The message is that of each refused device."""
    with pytest.raises(ArrayError, match=r"`device_type`: found .*77.*, allowed: CPU \(1\), CUDA \(2\)"):
        c.table_stream(Array.full((1,), 0), 77, 0)


def test_our_own_import_uses_it():
    array = Array.full((2, 3), 2.0)
    assert interop_demo.describe(array)["protocol"] == "exchange"
    assert interop_demo.checksum(interop_demo.asarray(array)) == 12


def test_our_own_import_uses_that_of_a_c_module():
    """Null members are functions that the module does not have."""
    array = c.Array()
    assert c.table_members(array)["functions"] == (False, True, False, False, False)
    assert interop_demo.describe(array)["protocol"] == "exchange"
    assert interop_demo.is_square(array)


def test_what_had_to_wait_goes_before_the_next_tensor():
    """A consumer that only uses the table released them without the GIL: all its arrays leaked."""
    array = Array.full((4,), 1.0)
    references = sys.getrefcount(array)
    release(take(array.__dlpack__(max_version=(1, 3))))
    assert (interop_demo.pending_releases(), sys.getrefcount(array)) == (1, references + 1)
    c.table_import(array, array)
    assert (interop_demo.pending_releases(), sys.getrefcount(array)) == (0, references)


def refuse(*arguments, **keywords):
    raise AssertionError("the table was not used")


def test_tvm_takes_it(monkeypatch):
    """Also as a function argument, which is tvm-ffi's fast path; it drops the read-only flag."""
    tvm_ffi = pytest.importorskip("tvm_ffi")
    monkeypatch.setattr(Array, "__dlpack__", refuse)
    echo = tvm_ffi.get_global_func("testing.echo")
    for array in (Array.full((2, 3), 2.0), Array.full((2, 3), 2.0)[::-1], Array.full((2,), 1, readonly=True)):
        facts = interop_demo.describe(array)
        for tensor in (tvm_ffi.from_dlpack(array), echo(array)):
            found = interop_demo.describe(tensor)
            assert {key: found[key] for key in ("data", "shape", "strides")} == {
                key: facts[key] for key in ("data", "shape", "strides")
            }


def test_it_can_be_switched_off():
    """R173: for imports, before the module is loaded. A class always offers its table."""
    script = f"""
        import os
        os.environ["INTEROP_SKIP_DLPACK_C_EXCHANGE_API"] = "1"
        import interop_demo
        from test_exchange import make
        ours, theirs = interop_demo.Array.full((2,), 1), make()
        print(*(hasattr(array, "{NAME}") for array in (ours, theirs)))
        print(*(interop_demo.describe(array)["protocol"] for array in (ours, theirs)))
    """
    assert run(script).split() == ["True", "True", "dlpack_versioned", "dlpack_versioned"]


def test_a_hundred_thousand_tensors_leave_nothing():
    array = Array.full((2, 3), 0)
    for _ in range(100_000):
        c.is_square_by_table(array)
