"""Fake libraries: a tensor class whose C exchange table is made of Python functions.

They replace PyTorch and others. Their memory is counted as that of `Array`s.
"""

import ctypes

import interop_demo
from capsules import DLTensor, Table, Versioned, new_capsule, numbers_at, python_function, release_attached, take

NAME, VERSIONED = b"dlpack_exchange_api", b"dltensor_versioned"
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p
)
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
DEVICES = {1: "cpu", 2: "cuda"}
increment = python_function("Py_IncRef", None, ctypes.py_object)


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value if function else None


def address_in(array, stream=None):
    """Returns a managed tensor that owns an `Array`, ready on the library's stream."""
    stream = None if array.__dlpack_device__()[0] == 1 else stream or 1
    return ctypes.addressof(take(array.__dlpack__(max_version=(1, 0), stream=stream)))


# The memory behind a table lives as long as the program.
kept = []


def library(*, module="fake", fails=None, allocator=True, refuses=None, stream=None, addresses=None):
    """Creates a class of tensors, each around an `Array`, and the list of calls that its table records.

    `fails` replaces the function that creates an object: an address, or "silent" for one that fails without an
    exception. `refuses` is the error that the allocator reports, or "silent". `addresses` replaces other functions of the table.
    """
    notes = []

    class Tensor:
        def __init__(self, array):
            self.array = array

    def hand_out(address, out):
        notes.append("from")
        out[0] = address_in(ctypes.cast(address, ctypes.py_object).value.array, stream)
        return 0

    def make(address, out):
        notes.append("to")
        struct = Versioned.from_address(address)
        Tensor.device = (struct.tensor.device_type, struct.tensor.device_id)
        if fails:
            release_attached(struct)
            return -1
        name = ctypes.cast(VERSIONED, ctypes.c_void_p)
        tensor = Tensor(interop_demo.asarray(new_capsule(address, name, None)))
        increment(tensor)
        out[0] = id(tensor)
        return 0

    def allocate(prototype, out, context, set_error):
        inner = DLTensor.from_address(prototype)
        shape = numbers_at(inner.shape, inner.ndim) if inner.ndim else ()
        notes.append(("allocate", shape, (inner.code, inner.bits), (inner.device_type, inner.device_id)))
        if refuses == "silent":
            return -1
        if refuses:
            SET_ERROR(set_error)(context, *refuses)
            return -1
        kind = DEVICES[inner.device_type]
        out[0] = address_in(interop_demo.Array.full(shape, 0, f"<f{inner.bits // 8}", device=kind), stream)
        return 0

    def current(device_type, ordinal, out):
        notes.append(("stream", device_type, ordinal))
        out[0] = stream
        return 0

    functions = [
        ALLOCATE(allocate) if allocator else None, FROM_OBJECT(hand_out), TO_OBJECT(make), None, STREAM(current)
    ]
    table = Table(1, 3, None, *map(address_of, functions))
    if isinstance(fails, int):
        table.to_object = fails
    for field, address in (addresses or {}).items():
        setattr(table, field, address)
    kept.append((table, functions))
    Tensor.__module__ = module
    Tensor.__dlpack_c_exchange_api__ = new_capsule(
        ctypes.addressof(table), ctypes.cast(NAME, ctypes.c_void_p), None
    )
    Tensor.notes = notes
    return Tensor
