"""The libraries that `matrix.py` tests: how each creates an array, and how each imports one.

Each creates an array with 4 rows of 6 `float32`, row `i` filled with `i + 1`, in a kind of memory. `protocols` are
those that its arrays support; `takes` says how it imports ours.

To add a library, change these places. `cargo xtask guard lists` finds them by `dali` and, in the core, by `CuPy` and `Warp`.
* Here: a class, and its name in `PARTNERS`.
* `tests/gpu/run.py`: the name in `PARTNERS`, so that it is a part of a run.
* `tests/gpu/refusals.py`: each cell that the library lacks or refuses, with the reason. Take the lines from a run on a GPU.
* `tests/gpu/matrix.py`: nothing, unless its arrays have no views.
* `tests/gpu/races.py`, `tests/gpu/dali_stream_none.py`: how it orders its work, and a fault of it that this crate works around.
* `interop-core/src/python/import/package.rs`: the package of its classes, the function that returns its stream, and what its tensors misstate.
* `interop-core/src/python/import/type_cache.rs`: what it needs no `__dlpack_device__` for, and what its streams are.
* `interop-core/src/python/export`, `interop-core/src/python/hints.rs`: only if functions return its arrays, as a `ResultLibrary`.
* `interop-core/src/python/errors.rs`: what its users write instead, for each `Cure`.
* `interop-core/src/derive/launch_scope.rs`, `interop-core/src/guide/streams.md`: a library that does not report its stream.
* `interop-core/src/protocols/cai/mod.rs`, `tests/conformance/source/faults.py`: a fault of its consumers, with its report.
* `tests/python/streamed_library.py`: a stand-in for machines without a GPU, if its way to order work is new.
* `tests/gpu/run.sh`: the help.
* `COMPATIBILITY.md`: the protocols, what it refuses, what it ignores.
"""

import importlib

import driver
import numpy as np

BASE = np.repeat(np.arange(1, 5, dtype=np.float32), 6).reshape(4, 6)
CASES = {
    "1-d": lambda array: array[1],
    "0-d": lambda array: array[2, 3],
    "empty": lambda array: array[:0],
    "strided": lambda array: array[::2, ::3],
    "negative": lambda array: array[::-1, ::-1],
    "readonly": lambda array: array,
}


class OnlyDLPack:
    """An array with DLPack only. With `unordered` it asks for stream -1, whatever stream the consumer passes."""

    def __init__(self, array, unordered=False):
        self.array, self.unordered = array, unordered

    def __dlpack__(self, **wishes):
        if self.unordered:
            wishes["stream"] = -1
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyCAI:
    """An array with the CUDA Array Interface only."""

    def __init__(self, array, unordered=False):
        self.array = array
        interface = array.__cuda_array_interface__
        if unordered:
            interface.pop("stream", None)
        self.__cuda_array_interface__ = interface

    def __len__(self):
        shape = self.__cuda_array_interface__["shape"]
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]


class Partner:
    module = None
    protocols = ("dlpack", "cai")
    takes = ()
    # Whether the library waits for the stream in an interface dict. If not, the exporter synchronizes.
    heeds_cai_stream = True

    def __init__(self):
        self.library = importlib.import_module(self.module)
        self.setup()

    def setup(self):
        pass

    def make(self, kind):
        """Returns an array with the values of `BASE`, or `None` if the library has no memory of this kind."""
        return None

    def cut(self, array, case):
        return CASES[case](array)

    def address(self, array):
        return array.__cuda_array_interface__["data"][0]

    def values(self, array):
        """Returns its elements on the host, or `None` if the library only describes arrays."""
        return None


class Torch(Partner):
    module = "torch"
    protocols = ("exchange", "dlpack", "cai")
    takes = ("dlpack", "cai")
    heeds_cai_stream = False

    def make(self, kind):
        host = self.library.from_numpy(BASE.copy())
        return {"device": host.cuda, "pinned": host.pin_memory}.get(kind, lambda: None)()

    def take(self, protocol, array):
        if protocol == "dlpack":
            return self.library.from_dlpack(array)
        return self.library.as_tensor(array, device="cuda")

    def address(self, array):
        return array.data_ptr()

    def values(self, array):
        return array.cpu().numpy()


class CuPy(Partner):
    module = "cupy"
    takes = ("dlpack", "cai")

    def make(self, kind):
        cupy = self.library
        if kind == "device":
            return cupy.asarray(BASE)
        if kind == "managed":
            array = cupy.ndarray(BASE.shape, BASE.dtype, memptr=cupy.cuda.malloc_managed(BASE.nbytes))
            array.set(BASE)
            return array
        return None

    def take(self, protocol, array):
        return self.library.from_dlpack(array) if protocol == "dlpack" else self.library.asarray(array)

    def address(self, array):
        return array.data.ptr

    def values(self, array):
        return array.get()


class Jax(Partner):
    module = "jax"
    takes = ("dlpack", "cai")
    heeds_cai_stream = False

    def make(self, kind):
        return self.library.numpy.asarray(BASE).block_until_ready() if kind == "device" else None

    def take(self, protocol, array):
        if protocol == "dlpack":
            return self.library.dlpack.from_dlpack(array)
        return self.library.numpy.asarray(array)

    def address(self, array):
        return array.unsafe_buffer_pointer()

    def values(self, array):
        return np.asarray(array)


class Numba(Partner):
    module = "numba.cuda"
    protocols = ("cai",)
    takes = ("cai",)

    def make(self, kind):
        if kind == "device":
            return self.library.to_device(BASE)
        if kind == "managed":
            array = self.library.managed_array(BASE.shape, BASE.dtype)
            array[...] = BASE
            return array
        return None

    def take(self, protocol, array):
        return self.library.as_cuda_array(array)

    def values(self, array):
        return array.copy_to_host()


class NumbaCudaMlir(Numba):
    """The successor of numba-cuda, with the same functions."""

    module = "numba_cuda_mlir.cuda"


class Warp(Partner):
    module = "warp"
    takes = ("dlpack", "cai")
    heeds_cai_stream = False

    def setup(self):
        self.library.config.quiet = True
        self.library.init()

    def make(self, kind):
        wp = self.library
        if kind == "device":
            return wp.array(BASE, dtype=wp.float32, device="cuda:0")
        return wp.array(BASE, dtype=wp.float32, device="cpu", pinned=True) if kind == "pinned" else None

    def take(self, protocol, array):
        wp = self.library
        if protocol == "dlpack":
            return wp.from_dlpack(array)
        return wp.array(array, dtype=wp.float32, device="cuda:0", copy=False)

    def address(self, array):
        return array.ptr

    def values(self, array):
        # The library reads pinned memory on the host immediately, whatever its streams do.
        self.library.synchronize()
        return array.numpy()


class CudaCore(Partner):
    module = "cuda.core"
    protocols = ("dlpack",)
    takes = ("dlpack", "cai")

    def setup(self):
        self.device = self.library.Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()

    def resource(self, kind):
        core = self.library
        name = {"pinned": "LegacyPinnedMemoryResource", "managed": "ManagedMemoryResource"}.get(kind)
        if kind == "device":
            return self.device.memory_resource
        return getattr(core, name)() if hasattr(core, name) else None

    def make(self, kind):
        resource = self.resource(kind)
        if resource is None:
            return None
        buffer = resource.allocate(BASE.nbytes, stream=self.stream)
        self.stream.sync()
        driver.write(int(buffer.handle), bytearray(BASE.tobytes()))
        return buffer

    def cut(self, array, case):
        return array  # a buffer is a range of bytes and has no views

    def take(self, protocol, array):
        view, stream = self.library.utils.StridedMemoryView, int(self.stream.handle)
        if protocol == "dlpack":
            return view.from_dlpack(array, stream_ptr=stream)
        return view.from_cuda_array_interface(array, stream_ptr=stream)

    def address(self, array):
        return int(array.ptr) if hasattr(array, "ptr") else int(array.handle)


class NanobindArrays(Partner):
    module = "nanobind"
    protocols = ("dlpack",)
    takes = ("dlpack",)

    def setup(self):
        import native

        self.arrays = native.load("gpu_arrays")

    def make(self, kind):
        memory = driver.alloc(BASE.nbytes, kind)
        driver.write(memory, bytearray(BASE.tobytes()))
        device = {"device": 2, "pinned": 3, "managed": 13}[kind]
        # The memory is kept here, because nanobind's array has no owner.
        return memory, device

    def cut(self, array, case):
        memory, device = array
        start, shape, strides = {
            "1-d": (6, [6], [1]),
            "0-d": (15, [], []),
            "empty": (0, [0, 6], [6, 1]),
            "strided": (0, [2, 2], [12, 3]),
            "negative": (23, [4, 6], [-6, -1]),
            "readonly": (0, [4, 6], [6, 1]),
        }[case]
        make = self.arrays.make_readonly if case == "readonly" else self.arrays.make
        return make(memory + 4 * start, shape, strides, device, 0)

    def take(self, protocol, array):
        return self.arrays.Array(array)

    def address(self, array):
        return array.address() if hasattr(array, "address") else self.arrays.Array(array).address()


class Dali(Partner):
    module = "nvidia.dali.backend"
    protocols = ("dlpack", "cai")
    takes = ("dlpack", "cai")

    def make(self, kind):
        import cupy

        return self.library.TensorGPU(cupy.asarray(BASE), "HW") if kind == "device" else None

    def cut(self, array, case):
        return array  # a DALI tensor has no views

    def take(self, protocol, array):
        # The library accepts capsules and dicts, but does not request a capsule from an object.
        return self.library.TensorGPU(array.__dlpack__(stream=1) if protocol == "dlpack" else array)

    def address(self, array):
        return array.data_ptr()

    def values(self, array):
        return np.asarray(array.as_cpu())


class TvmFfi(Partner):
    module = "tvm_ffi"
    protocols = ("dlpack",)
    takes = ("exchange", "dlpack")

    def make(self, kind):
        import cupy

        return self.library.from_dlpack(cupy.asarray(BASE)) if kind == "device" else None

    def cut(self, array, case):
        import cupy

        return self.library.from_dlpack(CASES[case](cupy.from_dlpack(array)))

    def take(self, protocol, array):
        return self.library.from_dlpack(array)

    def address(self, array):
        return array.data_ptr()


class PyCuda(Partner):
    module = "pycuda.gpuarray"
    protocols = ("cai",)

    def setup(self):
        importlib.import_module("pycuda.autoprimaryctx")

    def make(self, kind):
        return self.library.to_gpu(BASE) if kind == "device" else None

    def values(self, array):
        return array.get()


PARTNERS = {
    "torch": Torch,
    "cupy": CuPy,
    "jax": Jax,
    "numba": Numba,
    "numba_cuda_mlir": NumbaCudaMlir,
    "warp": Warp,
    "cuda_core": CudaCore,
    "nanobind": NanobindArrays,
    "dali": Dali,
    "tvm_ffi": TvmFfi,
    "pycuda": PyCuda,
}
