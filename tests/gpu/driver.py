"""The CUDA driver through ctypes: streams, memory and kernels that belong to none of the libraries under test.

All libraries use the primary context of device 0, which this module makes current.
"""

import contextlib
import ctypes
import functools
from pathlib import Path

FOLDERS = [Path(__file__).parent.parent / "kernels", Path(__file__).parents[2] / "examples/kernels/ptx"]


class DriverError(RuntimeError):
    """The error of a driver call."""


@functools.cache
def library():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0)),
        ("cuCtxSetCurrent", (context,)),
    ):
        if code := getattr(cuda, name)(*arguments):
            raise DriverError(f"{name}: {code}")
    return cuda


def call(name, *arguments):
    if code := getattr(library(), name)(*arguments):
        text = ctypes.c_char_p()
        library().cuGetErrorName(code, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")


def answer(name, *arguments, kind=ctypes.c_uint64):
    """Calls a function whose first argument is an output parameter, and returns the output."""
    place = kind()
    call(name, ctypes.byref(place), *arguments)
    return place.value


def enter(ordinal):
    """Retains the primary context of a device for the rest of the process and makes it current on this thread."""
    library()
    call("cuCtxSetCurrent", ctypes.c_uint64(answer("cuDevicePrimaryCtxRetain", ordinal)))


def devices():
    library()
    return answer("cuDeviceGetCount", kind=ctypes.c_int)


def stream():
    """Creates a non-blocking stream. It is never destroyed, because much code keeps its handle."""
    library()
    return answer("cuStreamCreate", 1)


@functools.cache
def green_context():
    """Creates a context with some of the device's processors, and a non-blocking stream in it."""
    library()
    # `CUdevResource` has 144 bytes. Its contents are not used here.
    whole, some, rest = (ctypes.create_string_buffer(256) for _ in range(3))
    count = ctypes.c_uint(1)
    call("cuDeviceGetDevResource", 0, whole, 1)
    call("cuDevSmResourceSplitByCount", some, ctypes.byref(count), whole, rest, 0, 8)
    green = answer("cuGreenCtxCreate", ctypes.c_uint64(answer("cuDevResourceGenerateDesc", some, 1)), 0, 1)
    context = answer("cuCtxFromGreenCtx", ctypes.c_uint64(green))
    return context, answer("cuGreenCtxStreamCreate", ctypes.c_uint64(green), 1, 0)


@contextlib.contextmanager
def current(context):
    """Makes a context current, and afterwards the previous one."""
    call("cuCtxPushCurrent_v2", ctypes.c_uint64(context))
    try:
        yield
    finally:
        answer("cuCtxPopCurrent_v2")


def sleep(on, milliseconds):
    """Keeps a stream of any context busy for this time by sleeping in a host function."""
    call("cuLaunchHostFunc", ctypes.c_uint64(on), ctypes.CDLL(None).usleep, ctypes.c_void_p(milliseconds * 1000))


def synchronize(handle=None):
    library()
    if handle is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", ctypes.c_uint64(handle))


def alloc(size, kind="device"):
    """Allocates memory; release it with `free`."""
    library()
    if kind == "device":
        return answer("cuMemAlloc_v2", ctypes.c_size_t(size))
    if kind == "pinned":
        return answer("cuMemHostAlloc", ctypes.c_size_t(size), 1)
    return answer("cuMemAllocManaged", ctypes.c_size_t(size), 1)


def free_memory():
    """The number of free bytes on the device."""
    synchronize()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def free(address, kind="device"):
    call("cuMemFreeHost" if kind == "pinned" else "cuMemFree_v2", ctypes.c_uint64(address))


def write(address, data):
    """Copies bytes from the host to any memory."""
    call("cuMemcpy", ctypes.c_uint64(address), ctypes.c_uint64(ctypes.addressof(ctypes.c_char.from_buffer(data))), len(data))


def read(address, size):
    """Copies bytes from any memory to the host, after all work of the context."""
    data = bytearray(size)
    synchronize()
    call("cuMemcpy", ctypes.c_uint64(ctypes.addressof(ctypes.c_char.from_buffer(data))), ctypes.c_uint64(address), size)
    return bytes(data)


@functools.cache
def kernel(name, module="order"):
    library()
    folder = next(folder for folder in FOLDERS if folder.exists())
    loaded = answer("cuModuleLoadData", (folder / f"{module}.ptx").read_bytes() + b"\0")
    return answer("cuModuleGetFunction", ctypes.c_uint64(loaded), name.encode())


def launch(function, on, arguments, threads=1):
    """Queues a kernel on the stream `on`, with one block per 256 threads."""
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    blocks = -(-threads // 256)
    sizes = (blocks, 1, 1, min(threads, 256), 1, 1, 0)
    call("cuLaunchKernel", ctypes.c_uint64(function), *sizes, ctypes.c_uint64(on), places, None)


def spin(on, milliseconds):
    """Keeps a stream busy for about this time, at 1.7 GHz."""
    launch(kernel("spin"), on, [ctypes.c_uint64(int(milliseconds * 1.7e6))])


class Interface:
    """An array at an address that has only an interface dict. By default it is `float32` with this shape or number of
    elements.
    """

    def __init__(self, address, shape=(4,), **changes):
        shape = shape if isinstance(shape, tuple) else (shape,)
        interface = {"shape": shape, "typestr": "<f4", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**interface, **changes}


class View3(ctypes.Structure):
    """`interop::view<T, 3>`."""

    _fields_ = [("address", ctypes.c_uint64), ("extents", ctypes.c_int64 * 3), ("strides", ctypes.c_int64 * 3)]

    @classmethod
    def of(cls, address, shape):
        """The view of a contiguous array."""
        _, width, channels = shape
        return cls(address, shape, (width * channels, channels, 1))


class View1(ctypes.Structure):
    """`interop::view<T, 1>`."""

    _fields_ = [("address", ctypes.c_uint64), ("extent", ctypes.c_int64), ("stride", ctypes.c_int64)]


class View0(ctypes.Structure):
    """`interop::view<T, 0>`."""

    _fields_ = [("address", ctypes.c_uint64)]


def produce(on, address, count, value):
    """Writes `value + i` to element i of `count` uint32."""
    launch(kernel("produce"), on, [View1(address, count, 1), ctypes.c_uint32(value)], count)


def consume(on, address, count, value, wrong):
    """Adds to the uint64 at `wrong` the number of the `count` uint32 that differ from what `produce` writes."""
    arguments = [View1(address, count, 1), ctypes.c_uint32(value), View0(wrong)]
    launch(kernel("consume"), on, arguments, count)
