"""The CUDA driver by ctypes: streams, memory and kernels that belong to no partner.

Every library here works in the primary context of device 0, which this module makes current.
"""

import contextlib
import ctypes
import functools
from pathlib import Path

FOLDERS = [Path(__file__).parent.parent / "kernels", Path(__file__).parents[2] / "examples/kernels/ptx"]


class DriverError(RuntimeError):
    """What the driver answered."""


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
    """Calls a function whose first argument is the place for its answer."""
    place = kind()
    call(name, ctypes.byref(place), *arguments)
    return place.value


def enter(ordinal):
    """Makes the primary context of a device current on this thread; it stays as long as the process."""
    library()
    call("cuCtxSetCurrent", ctypes.c_uint64(answer("cuDevicePrimaryCtxRetain", ordinal)))


def devices():
    library()
    return answer("cuDeviceGetCount", kind=ctypes.c_int)


def stream():
    """A stream that is not ordered with the default stream. It lives as long as the process: handles are kept by many."""
    library()
    return answer("cuStreamCreate", 1)


@functools.cache
def green_context():
    """A context that has some of the device's processors, and a stream of it, which is not ordered with the default stream."""
    library()
    # `CUdevResource` has 144 bytes, in which nobody looks here.
    whole, some, rest = (ctypes.create_string_buffer(256) for _ in range(3))
    count = ctypes.c_uint(1)
    call("cuDeviceGetDevResource", 0, whole, 1)
    call("cuDevSmResourceSplitByCount", some, ctypes.byref(count), whole, rest, 0, 8)
    green = answer("cuGreenCtxCreate", ctypes.c_uint64(answer("cuDevResourceGenerateDesc", some, 1)), 0, 1)
    context = answer("cuCtxFromGreenCtx", ctypes.c_uint64(green))
    return context, answer("cuGreenCtxStreamCreate", ctypes.c_uint64(green), 1, 0)


@contextlib.contextmanager
def current(context):
    """A context current, and then the one before."""
    call("cuCtxPushCurrent_v2", ctypes.c_uint64(context))
    try:
        yield
    finally:
        answer("cuCtxPopCurrent_v2")


def sleep(on, milliseconds):
    """Keeps a stream of any context busy for so long: the host sleeps in it."""
    call("cuLaunchHostFunc", ctypes.c_uint64(on), ctypes.CDLL(None).usleep, ctypes.c_void_p(milliseconds * 1000))


def synchronize(handle=None):
    library()
    if handle is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", ctypes.c_uint64(handle))


def alloc(size, kind="device"):
    """New memory; free it with `free`."""
    library()
    if kind == "device":
        return answer("cuMemAlloc_v2", ctypes.c_size_t(size))
    if kind == "pinned":
        return answer("cuMemHostAlloc", ctypes.c_size_t(size), 1)
    return answer("cuMemAllocManaged", ctypes.c_size_t(size), 1)


def free_memory():
    """Bytes of the device that nobody has."""
    synchronize()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def free(address, kind="device"):
    call("cuMemFreeHost" if kind == "pinned" else "cuMemFree_v2", ctypes.c_uint64(address))


def write(address, data):
    """Bytes from the host to anywhere."""
    call("cuMemcpy", ctypes.c_uint64(address), ctypes.c_uint64(ctypes.addressof(ctypes.c_char.from_buffer(data))), len(data))


def read(address, size):
    """Bytes from anywhere to the host, after all work of the context."""
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
    """Queues a kernel on the stream `on`, with one block for every 256 threads."""
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    blocks = -(-threads // 256)
    sizes = (blocks, 1, 1, min(threads, 256), 1, 1, 0)
    call("cuLaunchKernel", ctypes.c_uint64(function), *sizes, ctypes.c_uint64(on), places, None)


def spin(on, milliseconds):
    """Keeps a stream busy for about so long, at 1.7 GHz."""
    launch(kernel("spin"), on, [ctypes.c_uint64(int(milliseconds * 1.7e6))])


class Interface:
    """An array at an address that has nothing but an interface dict: `float32` of a shape, or so many, unless it is said."""

    def __init__(self, address, shape=(4,), **changes):
        shape = shape if isinstance(shape, tuple) else (shape,)
        interface = {"shape": shape, "typestr": "<f4", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**interface, **changes}


class View3(ctypes.Structure):
    """`interop::view<T, 3>`."""

    _fields_ = [("address", ctypes.c_uint64), ("extents", ctypes.c_int64 * 3), ("strides", ctypes.c_int64 * 3)]

    @classmethod
    def of(cls, address, shape):
        """The view of a compact array."""
        _, width, channels = shape
        return cls(address, shape, (width * channels, channels, 1))


class View1(ctypes.Structure):
    """`interop::view<T, 1>`."""

    _fields_ = [("address", ctypes.c_uint64), ("extent", ctypes.c_int64), ("stride", ctypes.c_int64)]


class View0(ctypes.Structure):
    """`interop::view<T, 0>`."""

    _fields_ = [("address", ctypes.c_uint64)]


def produce(on, address, count, value):
    """Element i of `count` uint32 becomes `value + i`."""
    launch(kernel("produce"), on, [View1(address, count, 1), ctypes.c_uint32(value)], count)


def consume(on, address, count, value, wrong):
    """Adds to the uint64 at `wrong` how many of `count` uint32 are not what `produce` writes."""
    arguments = [View1(address, count, 1), ctypes.c_uint32(value), View0(wrong)]
    launch(kernel("consume"), on, arguments, count)
