"""Libraries whose threads have a current stream, on the simulated driver, as PyTorch, CuPy, Numba and Warp are.

Each operation of an array runs on the current stream of its thread. Memory comes from a pool of the stream on which it
was allocated, and goes back to it as soon as its array is gone, without a wait. So whatever uses the memory on another
stream must be ordered with that stream, or the driver reports a race.
"""

import contextlib
import ctypes
import math
import sys
import threading
import types

import numpy as np
from capsules import CUDA, DLTensor, Table, Versioned, new_capsule, numbers_at, python_function

DRIVER = ctypes.CDLL("libcuda.so.1")
FLOAT32 = np.dtype(np.float32)
CODES = {"i": 0, "u": 1, "f": 2}
NAME, VERSIONED = b"dlpack_exchange_api", b"dltensor_versioned"
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p
)
CURRENT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
increment = python_function("Py_IncRef", None, ctypes.py_object)
get_pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
set_name = python_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
BLOCKING, NON_BLOCKING = 0, 1


def call(name, *arguments):
    """Calls a function of the driver, which must succeed. Integers are passed as 64 bits."""
    arguments = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments]
    code = getattr(DRIVER, name)(*arguments)
    assert code == 0, f"{name} answered {code}"


def made(name, *arguments):
    """Calls a function that returns a handle or an address through its first argument."""
    handle = ctypes.c_uint64()
    call(name, ctypes.byref(handle), *arguments)
    return handle.value


call("cuInit", ctypes.c_uint(0))
CONTEXT = made("cuDevicePrimaryCtxRetain", ctypes.c_int(0))


class Stream:
    """A stream, which is destroyed with its object, as in CuPy. `ptr` and `cuda_stream` are its handle."""

    def __init__(self, flags=None):
        call("cuCtxSetCurrent", CONTEXT)
        self.owned = flags is not None
        self.ptr = made("cuStreamCreate", flags) if self.owned else 0

    @property
    def cuda_stream(self):
        return self.ptr or None

    def wait_for(self, other):
        if other.ptr == self.ptr:
            return
        event = made("cuEventCreate", 2)
        call("cuEventRecord", event, other.ptr)
        call("cuStreamWaitEvent", self.ptr, event, 0)
        call("cuEventDestroy_v2", event)

    def synchronize(self):
        call("cuStreamSynchronize", self.ptr)

    def __del__(self):
        if self.owned:
            call("cuStreamDestroy_v2", self.ptr)


class Foreign(Stream):
    """A stream of somebody else, by its handle."""

    def __init__(self, handle):
        self.owned, self.ptr = False, handle


class Block:
    """Memory of a pool."""

    def __init__(self, library, nbytes):
        self.stream = library.current()
        # The pool belongs to the object, because the number of a stream is used again.
        self.free = self.stream.__dict__.setdefault("free", {}).setdefault(nbytes, [])
        self.address = self.free.pop() if self.free else allocated(nbytes)

    def __del__(self):
        self.free.append(self.address)


def allocated(nbytes):
    """New memory, which libraries allocate in the mode that does not affect a capture."""
    mode = ctypes.c_int(RELAXED)
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        return made("cuMemAlloc_v2", max(nbytes, 1))
    finally:
        call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


class Graph:
    """A graph, as PyTorch and CuPy capture it on a stream of the library. The private pool of the memory that the
    capture allocated is that of the stream.
    """

    def __init__(self, stream):
        self.stream = stream

    def replay(self, stream):
        call("cuGraphLaunch", self.executable, stream.ptr)


# The structs that are exported, with the block of their memory.
exported = {}


@DELETER
def delete(address):
    exported.pop(address)[0].array.library.released.append(threading.get_ident())


class Export:
    """A managed tensor that keeps an array alive."""

    def __init__(self, array, ndim=None):
        self.array = array
        axes = range(len(array.shape))
        self.shape = (ctypes.c_int64 * len(axes))(*array.shape)
        self.strides = (ctypes.c_int64 * len(axes))(*(math.prod(array.shape[axis + 1 :]) for axis in axes))
        ndim = len(axes) if ndim is None else ndim
        dtype = (CODES[array.dtype.kind], 8 * array.dtype.itemsize, 1)
        places = (ctypes.addressof(self.shape), ctypes.addressof(self.strides), 0)
        tensor = DLTensor(array.address, CUDA, 0, ndim, *dtype, *places)
        deleter = ctypes.cast(delete, ctypes.c_void_p).value
        self.struct = Versioned(1, 3, None, deleter, 0, tensor)


def export(array):
    """Returns the address of a managed tensor."""
    kept = Export(array)
    address = ctypes.addressof(kept.struct)
    exported[address] = (kept,)
    return address


class Array:
    """A contiguous array in device memory. Subclasses belong to a library."""

    library = None

    def __init__(self, shape, dtype=FLOAT32):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.block = self.library.block(self.nbytes)
        self.address = self.block.address

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, values):
        """Writes on the current stream."""
        values = np.ascontiguousarray(values, self.dtype)
        data = values.ctypes.data_as(ctypes.c_void_p)
        call("cuMemcpyHtoDAsync_v2", self.address, data, ctypes.c_size_t(values.nbytes), self.library.current().ptr)

    def fill_(self, value):
        bits = int(np.float32(value).view(np.uint32))
        call("cuMemsetD32Async", self.address, bits, math.prod(self.shape), self.library.current().ptr)

    def copy_(self, other):
        call("cuMemcpyDtoDAsync_v2", self.address, other.address, self.nbytes, self.library.current().ptr)

    def tolist(self):
        """Reads on the current stream."""
        host, stream = np.empty(self.shape, self.dtype), self.library.current()
        data = host.ctypes.data_as(ctypes.c_void_p)
        call("cuMemcpyDtoHAsync_v2", data, self.address, ctypes.c_size_t(host.nbytes), stream.ptr)
        stream.synchronize()
        return host.tolist()

    @classmethod
    def around(cls, capsule):
        """Makes an array that owns the managed tensor of a capsule."""
        address = get_pointer(capsule, VERSIONED)
        set_name(capsule, b"used_dltensor_versioned")
        return cls.owning(address)

    @classmethod
    def owning(cls, address):
        self, tensor = cls.__new__(cls), Versioned.from_address(address).tensor
        self.shape = numbers_at(tensor.shape, tensor.ndim)
        kind = {code: kind for kind, code in CODES.items()}[tensor.code]
        self.dtype = np.dtype(f"{kind}{tensor.bits // 8}")
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.block = Taken(address)
        return self


class Taken:
    """A managed tensor of somebody else."""

    def __init__(self, address):
        self.address, self.deleter = address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __del__(self):
        if deleter := Versioned.from_address(self.address).deleter:
            self.deleter(deleter)(self.address)


class Library:
    """A library with a current stream for each thread. Each subclass tells it in the way of another library."""

    module = "silent"

    def __init__(self):
        # The threads on which the library's memory was released.
        self.released = []
        self.default, self.local = Stream(), threading.local()
        self.Array = type("Array", (Array,), {"__module__": self.module, "library": self, **self.protocols()})

    def protocols(self):
        raise NotImplementedError

    def block(self, nbytes):
        return Block(self, nbytes)

    def current(self):
        return getattr(self.local, "stream", self.default)

    # The flag of its streams.
    streams = NON_BLOCKING

    def new_stream(self):
        """A stream that waits for the current one, as a program must order its own streams."""
        stream = Stream(self.streams)
        stream.wait_for(self.current())
        return stream

    @contextlib.contextmanager
    def using(self, stream):
        """Makes a stream current on this thread."""
        before = self.current()
        self.local.stream = stream
        try:
            yield stream
        finally:
            self.local.stream = before

    def array(self, values, dtype=FLOAT32):
        array = self.Array(np.shape(values), dtype)
        array.write(values)
        return array

    def empty(self, shape, dtype="float32", **_):
        shape = (shape,) if isinstance(shape, int) else shape
        return self.Array(shape, dtype)

    def from_dlpack(self, array):
        """The array is ordered after its pending work on the current stream."""
        stream = self.current().ptr or 1
        return self.Array.around(array.__dlpack__(stream=stream, max_version=(1, 3)))

    @contextlib.contextmanager
    def capture(self, mode=GLOBAL):
        """Captures a graph on a new stream, as `torch.cuda.graph` does."""
        graph = Graph(self.new_stream())
        with self.using(graph.stream):
            call("cuStreamBeginCapture_v2", graph.stream.ptr, mode)
            try:
                yield graph
            finally:
                captured = ctypes.c_uint64()
                code = DRIVER.cuStreamEndCapture(ctypes.c_uint64(graph.stream.ptr), ctypes.byref(captured))
            assert code == 0, f"the capture was spoiled: {code}"
            graph.executable = made("cuGraphInstantiateWithFlags", captured.value, 0)
            call("cuGraphDestroy", captured.value)

    # The methods of its arrays.

    def dlpack_method(self, default):
        def __dlpack__(array, *, stream=default, **_):  # noqa: N807
            assert stream is None or stream == -1 or stream > 0, stream
            if stream not in (-1, None):
                Foreign(0 if stream == 1 else stream).wait_for(self.current())
            return new_capsule(export(array), ctypes.cast(VERSIONED, ctypes.c_void_p), None)

        return __dlpack__

    def members(self, default=-1):
        return {"__dlpack__": self.dlpack_method(default), "__dlpack_device__": lambda _: (CUDA, 0)}

    def interface(self, stream):
        def __cuda_array_interface__(array):  # noqa: N807
            found = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.address, False)}
            found |= {"strides": None, "version": 3 if stream else 2}
            return found | ({"stream": stream(array)} if stream else {})

        return {"__cuda_array_interface__": property(__cuda_array_interface__)}


# Tables live as long as the program.
tables = []


class Torch(Library):
    """As PyTorch with its exchange table. The default stream is a null pointer there."""

    module = "torch"

    def asked(self):
        """The stream that the table states."""
        return self.current().ptr

    def protocols(self):
        def hand_out(address, out):
            out[0] = export(ctypes.cast(address, ctypes.py_object).value)
            return 0

        def make(address, out):
            array = self.Array.owning(address)
            increment(array)
            out[0] = id(array)
            return 0

        def allocate(prototype, out, context, set_error):
            tensor = DLTensor.from_address(prototype)
            kind = {code: kind for kind, code in CODES.items()}[tensor.code]
            out[0] = export(self.empty(numbers_at(tensor.shape, tensor.ndim), f"{kind}{tensor.bits // 8}"))
            return 0

        def current(device_type, ordinal, out):
            if device_type != CUDA or ordinal != 0:
                out[0] = None
                return 0
            out[0] = self.asked()
            return 0

        functions = [ALLOCATE(allocate), FROM_OBJECT(hand_out), FROM_OBJECT(make), CURRENT(current)]
        places = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        table = Table(1, 3, None, *places[:3], None, places[3])
        tables.append((table, functions))
        capsule = new_capsule(ctypes.addressof(table), ctypes.cast(NAME, ctypes.c_void_p), None)
        return {"__dlpack_c_exchange_api__": capsule, **self.members()}


class Unset(Torch):
    """As `cuda.core`, and TVM FFI outside of a call: its table knows no stream."""

    module = "silent"

    def asked(self):
        return None


class OldTorch(Library):
    """As PyTorch before 2.10, which has no exchange table."""

    module = "torch"

    def protocols(self):
        return self.members()

    def modules(self):
        internals = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda _ordinal: self.current().ptr)
        torch = types.ModuleType("torch")
        torch.__dict__.update(
            _C=internals, float32="float32", Tensor=self.Array, empty=self.empty, from_dlpack=self.from_dlpack
        )
        return {"torch": torch}


class CuPy(Library):
    """As CuPy: a stream lives as long as its object."""

    module = "cupy"

    def protocols(self):
        return {**self.members(default=1), **self.interface(lambda _: self.current().ptr or 1)}

    def modules(self):
        cupy = types.ModuleType("cupy")

        def device(_ordinal):
            return types.SimpleNamespace(__enter__=lambda: None, __exit__=lambda *_: None)

        cupy.__dict__.update(
            cuda=types.SimpleNamespace(get_current_stream=lambda _ordinal=0: self.current(), Device=device),
            ndarray=self.Array,
            empty=self.empty,
            from_dlpack=self.from_dlpack,
        )
        return {"cupy": cupy}


class Numba(Library):
    """As Numba: the dict names the stream, and memory is freed by the driver, which waits."""

    module, streams = "numba_cuda.devicearray", BLOCKING

    def protocols(self):
        return self.interface(lambda _: self.current().ptr or None)

    def block(self, nbytes):
        return Freed(nbytes)


class NumbaCudaMlir(Numba):
    """As numba-cuda-mlir, the successor of numba-cuda, which is another package."""

    module = "numba_cuda_mlir.numba_cuda.cudadrv.devicearray"


class Freed:
    def __init__(self, nbytes):
        self.address = allocated(nbytes)

    def __del__(self):
        call("cuMemFree_v2", self.address)


class Warp(Library):
    """As Warp: each device has a current stream."""

    module, streams = "warp._src.types", BLOCKING

    def protocols(self):
        return {**self.members(default=1), **self.interface(None)}

    def modules(self):
        warp = types.ModuleType("warp")
        warp.get_stream = lambda _device: self.current()
        return {"warp": warp}


class Silent(Library):
    """As JAX and DALI: nothing tells the stream. `__dlpack__` makes the consumer's stream wait."""

    def protocols(self):
        return self.members(default=1)


LEARNED = {
    "torch": Torch,
    "torch without a table": OldTorch,
    "cupy": CuPy,
    "numba": Numba,
    "numba-cuda-mlir": NumbaCudaMlir,
    "warp": Warp,
}
ASSUMED = {"silent": Silent, "a table without a stream": Unset}


def library(name):
    return (LEARNED | ASSUMED)[name]()


@contextlib.contextmanager
def installed(*libraries):
    """Makes the modules of these libraries importable."""
    modules = {name: module for each in libraries for name, module in getattr(each, "modules", dict)().items()}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
