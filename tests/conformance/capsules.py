"""DLPack structs made by hand, valid and invalid, and a view of foreign structs.

Each struct ends at the border of two pages: its own page is read-only, and the next is inaccessible. A consumer that
writes to the producer's struct, or reads beyond its shape, crashes the test.
"""

import ctypes
import mmap
import os

libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
PAGE = mmap.PAGESIZE
PROT_NONE, PROT_READ = 0, 1

CPU, CUDA, CUDA_HOST, ROCM, CUDA_MANAGED = 1, 2, 3, 10, 13
READ_ONLY, IS_COPIED, PADDED = 1, 2, 4
FLOAT32 = (2, 32, 1)

# The version of DLPack that this crate writes, and asks for.
VERSION = (1, 3)

# The names live as long as the program, because a capsule keeps only the pointer.
NAMES = {"legacy": b"dltensor", "versioned": b"dltensor_versioned"}
USED = {"legacy": b"used_dltensor", "versioned": b"used_dltensor_versioned"}


class DLTensor(ctypes.Structure):
    """`DLTensor`, with integers instead of pointers."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class Table(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("borrow", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


STRUCTS = {"legacy": Legacy, "versioned": Versioned}


# A separate handle: `ctypes.pythonapi` is shared, and Warp changes the signatures of its functions.
interpreter = ctypes.PyDLL(None) if os.name == "posix" else ctypes.pythonapi


def python_function(name, result, *arguments):
    """A function of Python's C API. A capsule that is being destroyed is passed as an integer."""
    function = getattr(interpreter, name)
    function.restype, function.argtypes = result, arguments
    return function


new_capsule = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
get_name = python_function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
get_pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
set_name = python_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def count_release(address):
    """The deleter of each `Tensor`."""
    Tensor.alive[address].released += 1


class Pages:
    """Two pages: the first is filled from its end and then made read-only, and the second is inaccessible."""

    def __init__(self):
        self.map = mmap.mmap(-1, 2 * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.end = self.start + PAGE

    def room(self, size):
        """The address of `size` bytes directly before the previous allocation."""
        self.end = (self.end - size) & ~7
        return self.end

    def numbers(self, numbers):
        """The address of these numbers. It is 0 for `None`, and the inaccessible page for an empty sequence."""
        if numbers is None:
            return 0
        if not numbers:
            return self.start + PAGE
        place = self.room(8 * len(numbers))
        (ctypes.c_int64 * len(numbers)).from_address(place)[:] = numbers
        return place

    def protect(self, first=PROT_READ):
        """Protects both pages."""
        if libc is not None:
            assert libc.mprotect(ctypes.c_void_p(self.start), PAGE, first) == 0
            assert libc.mprotect(ctypes.c_void_p(self.start + PAGE), PAGE, PROT_NONE) == 0


class Tensor:
    """A managed tensor, by default a contiguous (2, 3) array of float32 in host memory. It counts its releases."""

    # The memory behind a struct must outlive it, whoever holds it, so nothing is ever freed.
    alive = {}

    def __init__(
        self,
        form="versioned",
        *,
        shape=(2, 3),
        strides=(3, 1),
        ndim=None,
        dtype=FLOAT32,
        device=(CPU, 0),
        data=None,
        byte_offset=0,
        version=(1, 0),
        flags=0,
        deleter=True,
        sealed=True,
    ):
        self.form, self.device, self.released = form, device, 0
        self.room = ctypes.create_string_buffer(1024)
        # There are 256 bytes before the first element, for negative strides.
        self.memory = (ctypes.addressof(self.room) + 511) & ~255
        self.pages = Pages()
        rank = len(shape or ()) if ndim is None else ndim
        extents, steps = self.pages.numbers(shape), self.pages.numbers(strides)
        self.struct = STRUCTS[form].from_address(self.pages.room(ctypes.sizeof(STRUCTS[form])))
        self.address = ctypes.addressof(self.struct)
        self.struct.tensor = DLTensor(
            self.memory if data is None else data, *device, rank, *dtype, extents, steps, byte_offset
        )
        self.struct.deleter = ctypes.cast(count_release, ctypes.c_void_p).value if deleter else None
        if form == "versioned":
            self.struct.major, self.struct.minor = version
            self.struct.flags = flags
        if sealed:
            self.pages.protect()
        Tensor.alive[self.address] = self

    def capsule(self, name=None):
        """A capsule around the struct without a destructor: only its consumer releases the struct."""
        name = NAMES[self.form] if name is None else name
        return new_capsule(self.address, ctypes.cast(name, ctypes.c_void_p) if name else None, None)

    def floats(self, count):
        """The first elements as a ctypes array of float32."""
        return (ctypes.c_float * count).from_address(self.memory)


class Producer:
    """An object with `__dlpack__` around a tensor, as in the standard. It records the calls."""

    def __init__(self, tensor, device=None):
        self.tensor, self.device, self.asked = tensor, device or tensor.device, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **wishes):
        self.asked.append(wishes)
        return self.tensor.capsule()


def producer_with(**members):
    """A producer of a new tensor whose class has these additional members."""
    return type("Odd", (Producer,), members)(Tensor())


def raising(error, notes=None):
    """A method that raises, and records the keywords of each call."""

    def method(*_, **wishes):
        if notes is not None:
            notes.append(wishes)
        raise error

    return method


def name_of(capsule):
    """The name of a capsule."""
    return get_name(capsule).decode()


def form_of(capsule):
    """Returns `legacy` or `versioned`, whether the capsule was consumed or not."""
    return {name: form for names in (NAMES, USED) for form, name in names.items()}[get_name(capsule)]


def look(capsule):
    """The struct in a capsule, in place."""
    return STRUCTS[form_of(capsule)].from_address(get_pointer(capsule, get_name(capsule)))


def numbers_at(address, count):
    """Reads `count` 64-bit integers, or returns `None` for null."""
    return None if not address else tuple((ctypes.c_int64 * count).from_address(address))


def take(capsule):
    """Takes the struct out of a capsule as a consumer does; `release` releases it."""
    struct = look(capsule)
    set_name(capsule, USED[form_of(capsule)])
    return struct


def release(struct):
    """Calls the deleter of a struct as a C consumer does, without holding the GIL."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(struct.deleter)(ctypes.addressof(struct))


def release_attached(struct):
    """Calls the deleter of a struct while holding the GIL."""
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(struct.deleter)(ctypes.addressof(struct))
