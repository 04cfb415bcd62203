"""Orders and questions to the simulated CUDA driver, and the kernels of the extension as Python functions.

`cargo xtask test python` runs `test_cuda_*.py` in a process of their own that finds this driver as `libcuda.so.1`: other
libraries would take it for a GPU.
"""

import ctypes
import itertools
import struct

DTYPES = {(2, 32): "f", (2, 64): "d", (0, 32): "i", (0, 64): "q", (1, 8): "B", (2, 16): "e", (6, 8): "B"}
KERNEL = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_void_p),
)


class Dynamic(ctypes.Structure):
    """The first argument of the extension's kernels (`kernels/dynamic.cu`)."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_int64),
        ("ndim", ctypes.c_uint32),
        ("code", ctypes.c_int),
        ("bits", ctypes.c_int),
        ("shape", ctypes.c_int64 * 64),
        ("strides", ctypes.c_int64 * 64),
    ]

    def elements(self):
        """The address and the format of each element."""
        form = DTYPES[self.code, self.bits]
        for index in itertools.product(*(range(extent) for extent in self.shape[: self.ndim])):
            offset = sum(at * stride for at, stride in zip(index, self.strides, strict=False))
            yield self.address + offset * self.bits // 8, form


class Simulation:
    """The loaded driver, or `None` for `library` where another driver, or none, is found."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
            self.library.interop_sim_translate.restype = ctypes.c_void_p
        except (OSError, AttributeError):
            self.library = None
            return
        self.library.interop_sim_translate.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
        for name in ("interop_sim_live", "interop_sim_calls", "interop_sim_report_count", "interop_sim_spin"):
            getattr(self.library, name).restype = ctypes.c_uint64
        self.library.interop_sim_spin.argtypes = [ctypes.c_uint64]
        self.library.interop_sim_release_spin.argtypes = [ctypes.c_uint64]
        self.kernels = [KERNEL(self.scale), KERNEL(self.sum)]
        sizes = (ctypes.c_size_t * 2)(ctypes.sizeof(Dynamic), 8)
        for name, kernel in zip([b"dynamic_scale", b"dynamic_sum"], self.kernels, strict=True):
            self.library.interop_sim_register_kernel(name, kernel, sizes, ctypes.c_uint64(2))

        context = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def read(self, address, form):
        place = self.library.interop_sim_translate(address, struct.calcsize(form), 0)
        if not place:  # the driver has noted it
            return 0
        return struct.unpack(form, ctypes.string_at(place, struct.calcsize(form)))[0]

    def write(self, address, form, value):
        data = struct.pack(form, value)
        place = self.library.interop_sim_translate(address, len(data), 1)
        if place:  # the driver has noted it otherwise
            ctypes.memmove(place, data, len(data))

    def scale(self, grid, block, shared, parameters):
        array = Dynamic.from_address(parameters[0])
        factor = ctypes.c_double.from_address(parameters[1]).value
        for address, form in array.elements():
            value = self.read(address, form) * factor
            self.write(address, form, value if form in "def" else int(value))

    def sum(self, grid, block, shared, parameters):
        array = Dynamic.from_address(parameters[0])
        parts = ctypes.c_uint64.from_address(parameters[1]).value
        total = sum(self.read(address, form) for address, form in array.elements())
        for at in range(grid[0]):
            self.write(parts + 8 * at, "d", total if at == 0 else 0.0)

    def call(self, name, *arguments):
        """Calls a function of the driver, which must succeed."""
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name} answered {code}"

    def calls(self, *names):
        """How often these functions were called."""
        return sum(self.library.interop_sim_calls(name.encode()) for name in names)

    def reports(self):
        """What the program did wrong, such as a race or a use of freed memory, which is forgotten."""
        texts = []
        for at in range(self.library.interop_sim_report_count()):
            text = ctypes.create_string_buffer(1000)
            self.library.interop_sim_report(ctypes.c_uint64(at), None, text, ctypes.c_uint64(999))
            texts.append(text.value.decode())
        self.library.interop_sim_clear_reports()
        return texts

    def stream(self):
        """A new stream that is not ordered with the default stream (`CU_STREAM_NON_BLOCKING`)."""
        handle = ctypes.c_uint64()
        self.call("cuStreamCreate", ctypes.byref(handle), 1)
        return handle.value
