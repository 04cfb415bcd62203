"""Controls the simulated CUDA driver, and implements the kernels of the extension as Python functions.

`cargo xtask test python` runs `test_cuda_*.py` in a separate process that finds this driver as `libcuda.so.1`,
because other libraries would mistake it for a GPU.
"""

import ctypes
import functools
import itertools
import math
import struct

import interop_demo

# The `struct` formats of the elements by kernel name, for each variant. Python has none for bfloat16.
FORMATS = {"int8": "Bb", "int16": "Hh", "int32": "Ii", "int64": "Qq", "float16": "e", "float32": "f", "float64": "d"}
KERNEL = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_void_p),
)


def scaled(value, factor, form):
    """An integer times a factor: exact if the factor is an integer, else rounded towards zero, and clamped to the
    type.
    """
    if math.isnan(factor):
        return 0
    bits = 8 * struct.calcsize(form)
    least, most = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if form.islower() else (0, (1 << bits) - 1)
    return min(max(value * int(factor) if factor.is_integer() else int(value * factor), least), most)


class Arrays(ctypes.Structure):
    """The first argument of the extension's kernels on one array: `Elementwise<1, 32>` in Rust."""

    class Axis(ctypes.Structure):
        _fields_ = [("extent", ctypes.c_int64), ("inverse", ctypes.c_uint64), ("strides", ctypes.c_int64 * 1)]

    _fields_ = [
        ("piece", ctypes.c_int64),
        ("inner", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("width", ctypes.c_uint32),
        ("tail", ctypes.c_uint32),
        ("addresses", ctypes.c_uint64 * 1),
        ("axes", Axis * 32),
    ]

    def elements(self, size, array=0):
        """Yields the address of each element of one of the arrays; `size` is the element size in bytes."""
        axes, first = self.axes[: self.rank], self.addresses[array]
        units = self.inner * axes[-1].extent
        for index in itertools.product(*(range(axis.extent) for axis in reversed(axes))):
            offset = sum(at * axis.strides[array] for at, axis in zip(index, reversed(axes), strict=True))
            yield from (first + (offset + at) * size for at in range(self.width))
        yield from (first + (units * self.width + at) * size for at in range(self.tail))


class Pair(ctypes.Structure):
    """The argument of kernels on two arrays: `Elementwise<2, 32>`."""

    class Axis(ctypes.Structure):
        _fields_ = [("extent", ctypes.c_int64), ("inverse", ctypes.c_uint64), ("strides", ctypes.c_int64 * 2)]

    _fields_ = [
        *Arrays._fields_[:5],
        ("addresses", ctypes.c_uint64 * 2),
        ("axes", Axis * 32),
    ]
    elements = Arrays.elements


class Simulation:
    """The loaded driver. `library` is `None` if another driver or none was found."""

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
        self.kernels = []
        for name, forms in FORMATS.items():
            self.register(f"scale_{name}", functools.partial(self.scale, forms), 8, 4, arrays=Pair)
            self.register(f"sum_{name}", functools.partial(self.sum, forms), 8, 4)
        for size in (1, 2, 4, 8, 16):
            self.register(f"fill_{8 * size}", functools.partial(self.fill, size), size)

        context = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        # The first sum allocates memory and keeps it; no test should count it as its own.
        interop_demo.checksum(interop_demo.Array.full((1,), 0.0, device="pinned"))

    def read(self, address, form):
        place = self.library.interop_sim_translate(address, struct.calcsize(form), 0)
        if not place:  # the driver has recorded it
            return 0
        return struct.unpack(form, ctypes.string_at(place, struct.calcsize(form)))[0]

    def write(self, address, form, value):
        data = struct.pack(form, value)
        place = self.library.interop_sim_translate(address, len(data), 1)
        if place:  # the driver has recorded it otherwise
            ctypes.memmove(place, data, len(data))

    def register(self, name, function, *sizes, arrays=Arrays):
        """Registers a function that the driver calls for the kernel of this name, with pointers to the parameters."""
        sizes = (ctypes.sizeof(arrays), *sizes)
        kernel = KERNEL(lambda grid, block, shared, parameters: function(grid[0], parameters))
        self.kernels.append(kernel)  # kept as long as the driver uses it
        sizes = (ctypes.c_size_t * len(sizes))(*sizes)
        self.library.interop_sim_register_kernel(name.encode(), kernel, sizes, ctypes.c_uint64(len(sizes)))

    def scale(self, forms, blocks, parameters):
        pair, factor = Pair.from_address(parameters[0]), ctypes.c_double.from_address(parameters[1]).value
        form = forms[ctypes.c_int.from_address(parameters[2]).value]
        size = struct.calcsize(form)
        for to, source in zip(pair.elements(size), pair.elements(size, 1), strict=True):
            value = self.read(source, form)
            self.write(to, form, value * factor if form in "def" else scaled(value, factor, form))

    def sum(self, forms, blocks, parameters):
        form = forms[ctypes.c_int.from_address(parameters[2]).value]
        elements = Arrays.from_address(parameters[0]).elements(struct.calcsize(form))
        parts = ctypes.c_uint64.from_address(parameters[1]).value
        total = sum(self.read(address, form) for address in elements)
        for at in range(blocks):
            self.write(parts + 8 * at, "d", total if at == 0 else 0.0)

    def fill(self, size, blocks, parameters):
        array, value = Arrays.from_address(parameters[0]), ctypes.string_at(parameters[1], size)
        count = array.axes[0].extent * array.width + array.tail  # new memory is one contiguous range of elements
        self.write(array.addresses[0], f"{count * size}s", value * count)

    def call(self, name, *arguments):
        """Calls a function of the driver, which must succeed."""
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name} answered {code}"

    def calls(self, *names):
        """The number of calls of these functions."""
        return sum(self.library.interop_sim_calls(name.encode()) for name in names)

    def reports(self):
        """Returns and clears the reported mistakes of the program, such as a race or a use after free."""
        texts = []
        for at in range(self.library.interop_sim_report_count()):
            text = ctypes.create_string_buffer(1000)
            self.library.interop_sim_report(ctypes.c_uint64(at), None, text, ctypes.c_uint64(999))
            texts.append(text.value.decode())
        self.library.interop_sim_clear_reports()
        return texts

    def stream(self):
        """A new stream that does not synchronize with the default stream (`CU_STREAM_NON_BLOCKING`)."""
        handle = ctypes.c_uint64()
        self.call("cuStreamCreate", ctypes.byref(handle), 1)
        return handle.value
