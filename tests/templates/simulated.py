"""A tensor on the simulated driver, and the kernel of `examples/hello-cuda` as that driver runs it."""

import ctypes

import numpy as np

DRIVER = ctypes.CDLL("libcuda.so.1")
DRIVER.interop_sim_translate.restype = ctypes.c_void_p
DRIVER.interop_sim_translate.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p))


class View(ctypes.Structure):
    """`interop::view<float, 1>`."""

    _fields_ = [("data", ctypes.c_uint64), ("extent", ctypes.c_int64), ("stride", ctypes.c_int64)]

    def elements(self, write):
        for at in range(self.extent):
            place = DRIVER.interop_sim_translate(self.data + 4 * at * self.stride, 4, write)
            yield ctypes.c_float.from_address(place)


@KERNEL
def double_elements(grid, block, shared, parameters):
    for place in View.from_address(parameters[0]).elements(write=1):
        place.value *= 2


SIZES = (ctypes.c_size_t * 1)(ctypes.sizeof(View))
DRIVER.interop_sim_register_kernel(b"double_elements", double_elements, SIZES, ctypes.c_uint64(1))


def call(name, *arguments):
    code = getattr(DRIVER, name)(*arguments)
    assert code == 0, f"{name} answered {code}"


CONTEXT = ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(CONTEXT), 0)
call("cuCtxSetCurrent", CONTEXT)


class Tensor:
    """An array of a library with the CUDA Array Interface and `from_dlpack`."""

    def __init__(self, numbers):
        self.shape, self.address = numbers.shape, ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(numbers.nbytes))
        call("cuMemcpyHtoD_v2", self.address, numbers.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(numbers.nbytes))

    @classmethod
    def from_dlpack(cls, array):
        self = cls.__new__(cls)
        interface = array.__cuda_array_interface__
        self.shape, self.address, self.owner = array.shape, ctypes.c_uint64(interface["data"][0]), array
        return self

    @property
    def __cuda_array_interface__(self):
        data = (self.address.value, False)
        return {"shape": self.shape, "typestr": "<f4", "data": data, "strides": None, "version": 3, "stream": 1}

    def __del__(self):
        if not hasattr(self, "owner"):
            DRIVER.cuMemFree_v2(self.address)


def numbers(array):
    """Returns the elements, copied to the host in the way that the array supports."""
    host = np.empty(array.shape, np.float32)
    call("cuMemcpyDtoH_v2", host.ctypes.data_as(ctypes.c_void_p), array.address, ctypes.c_size_t(host.nbytes))
    return host.tolist()
