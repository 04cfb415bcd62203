"""Controls the simulated CUDA driver.

`cargo xtask test python` runs `test_cuda_*.py` in a separate process that finds this driver as `libcuda.so.1`,
because other libraries would mistake it for a GPU. Beside it is a library with the kernels of the extension.
"""

import ctypes
import pathlib
import sys

import interop_demo

sys.path.append(str(pathlib.Path(__file__).parents[2] / "simulated-cuda-driver/python"))


class Simulation:
    """The loaded driver. `library` is `None` if another driver or none was found."""

    def __init__(self):
        try:
            import simulated_cuda
        except ImportError:
            self.library = None
            return
        self.client = simulated_cuda
        self.library = simulated_cuda.library
        ctypes.CDLL("libinterop_demo_kernels.so").register_kernels()

        context = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        # The first sum allocates memory and keeps it; no test should count it as its own.
        interop_demo.checksum(interop_demo.Array.full((1,), 0.0, device="pinned"))

    def call(self, name, *arguments):
        """Calls a function of the driver, which must succeed."""
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name} answered {code}"

    def calls(self, *names):
        """The number of calls of these functions."""
        return self.client.calls(*names)

    def reports(self):
        """Returns and clears the reported mistakes of the program, such as a race or a use after free."""
        return [report.text for report in self.client.reports()]

    def stream(self):
        """A new stream that does not synchronize with the default stream (`CU_STREAM_NON_BLOCKING`)."""
        handle = ctypes.c_uint64()
        self.call("cuStreamCreate", ctypes.byref(handle), 1)
        return handle.value
