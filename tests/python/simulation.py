"""Controls the simulated CUDA driver.

`cargo xtask test python` runs `test_cuda_*.py` in a separate process that finds this driver as `libcuda.so.1`,
because other libraries would mistake it for a GPU. Beside it is a library with the kernels of the extension.
"""

import ctypes

import interop_demo


class Simulation:
    """The loaded driver. `library` is `None` if another driver or none was found."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
            self.library.interop_sim_translate.restype = ctypes.c_void_p
            self.library.interop_sim_translate.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
            for name in ("interop_sim_live", "interop_sim_calls", "interop_sim_report_count", "interop_sim_spin"):
                getattr(self.library, name).restype = ctypes.c_uint64
        except (OSError, AttributeError):
            self.library = None
            return
        self.library.interop_sim_spin.argtypes = [ctypes.c_uint64]
        self.library.interop_sim_release_spin.argtypes = [ctypes.c_uint64]
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
