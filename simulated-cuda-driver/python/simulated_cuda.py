"""Asks the simulated CUDA driver what the program did wrong, counts its calls, and simulates its kernels in Python.

    LD_LIBRARY_PATH=~/sim PYTHONPATH=~/sim pytest

    import simulated_cuda

    def test_no_race():
        work()
        simulated_cuda.assert_no_reports()

Import it before or after the program has loaded `libcuda.so.1`, which must be the simulated one. The module needs nothing but Python.
"""

import atexit
import contextlib
import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from typing import NamedTuple

__all__ = [
    "Launch", "Report", "Spin", "assert_no_reports", "calls", "clear_faults", "fail_next", "host_reads", "host_writes", "kernel",
    "live", "no_waits", "read", "reports", "reset_calls", "run_all", "set_policy", "set_seed", "spin", "write",
]  # fmt: skip

try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as why:
    raise ImportError(f"no libcuda.so.1 was found ({why}): set LD_LIBRARY_PATH to the folder of the simulated one") from why

KERNEL = ctypes.CFUNCTYPE(None, POINTER(c_uint32), POINTER(c_uint32), c_uint32, POINTER(c_void_p))


def _hook(name, result, *arguments):
    try:
        function = getattr(library, f"simulated_cuda_{name}")
    except AttributeError:
        why = "the libcuda.so.1 of this process is not the simulated one: set LD_LIBRARY_PATH to its folder"
        raise ImportError(why) from None
    function.restype, function.argtypes = result, arguments
    return function


_calls = _hook("calls", c_uint64, c_char_p)
reset_calls = _hook("reset_calls", None)
_report_count = _hook("report_count", c_uint64)
_report = _hook("report", c_uint64, c_uint64, POINTER(c_uint32), c_char_p, c_uint64)
_clear_reports = _hook("clear_reports", None)
_forbid_waits = _hook("forbid_waits", None, c_uint32)
_host_access = _hook("host_access", None, c_uint64, c_uint64, c_uint32)
_live = _hook("live", c_uint64, c_uint32)
_set_policy = _hook("set_policy", None, c_uint32)
_set_seed = _hook("set_seed", None, c_uint64)
run_all = _hook("run_all", None)
_fail_next = _hook("fail_next", None, c_char_p, c_int32)
clear_faults = _hook("clear_faults", None)
_spin = _hook("spin", c_uint64, c_uint64)
_release_spin = _hook("release_spin", None, c_uint64)
_is_pending = _hook("is_pending", c_uint32, c_uint64)
_register_kernel = _hook("register_kernel", c_uint64, c_char_p, KERNEL, POINTER(ctypes.c_size_t), c_uint64)
_translate = _hook("translate", c_void_p, c_uint64, c_uint64, c_uint32)

# In the order of their numbers in the driver.
MISTAKES = (
    "Race", "UseAfterFree", "UseBeforeAllocation", "DoubleFree", "WrongContext", "LeakedEvent", "HostWait", "Capture",
    "DestroyedStream", "DestroyedEvent", "OutOfBounds", "CallInside", "NoKernel",
)  # fmt: skip
LIVE = ("allocations", "streams", "events", "contexts", "operations", "modules", "captures", "graphs")
POLICIES = ("late", "random", "eager")

# A kernel may still be queued when the program ends, and it needs Python. What is queued is also what may race.
atexit.register(run_all)


class Report(NamedTuple):
    """A mistake of the program."""

    mistake: str
    """The kind, such as `"Race"`: the README of the driver lists them."""
    text: str

    def __str__(self):
        return f"{self.mistake}: {self.text}"


def reports():
    """Returns the reports and clears them."""
    found = []
    for index in range(_report_count()):
        mistake = c_uint32()
        text = ctypes.create_string_buffer(_report(index, ctypes.byref(mistake), None, 0) + 1)
        _report(index, None, text, len(text) - 1)
        found.append(Report(MISTAKES[mistake.value], text.value.decode()))
    _clear_reports()
    return found


def assert_no_reports():
    """Runs what is queued, clears the reports, and raises an `AssertionError` with their texts if there are any."""
    run_all()
    found = reports()
    if found:
        raise AssertionError("the driver reports:\n" + "\n".join(map(str, found)))


def calls(*names):
    """The number of calls of these driver functions, by exported name (`"cuMemFree_v2"`), or of all."""
    return sum(_calls(name.encode()) for name in names) if names else _calls(None)


def live(kind):
    """The number of live objects of a kind: one of `LIVE`."""
    return _live(LIVE.index(kind))


def fail_next(name, code):
    """Makes the next call of a driver function return a code and do nothing."""
    _fail_next(name.encode(), code)


def set_policy(policy):
    """Chooses when work runs: one of `POLICIES`."""
    _set_policy(POLICIES.index(policy))


def set_seed(seed):
    """Restarts the random choices of the scheduler."""
    _set_seed(seed)


def host_reads(address, nbytes):
    """Declares that the program reads memory now that devices use too. The driver cannot see that."""
    _host_access(address, nbytes, 0)


def host_writes(address, nbytes):
    """Declares that the program writes memory now that devices use too."""
    _host_access(address, nbytes, 1)


@contextlib.contextmanager
def no_waits():
    """Reports every call of this thread inside the block that makes the host wait for a device."""
    _forbid_waits(1)
    try:
        yield
    finally:
        _forbid_waits(0)


class Spin:
    """Work on a stream that runs until it is released, or until a call waits for it."""

    def __init__(self, stream):
        self._number = _spin(stream)
        if self._number == 2**64 - 1:
            raise RuntimeError(f"no spin can be queued on stream {stream:#x}: no context is current, or it captures")

    def release(self):
        """Lets it end."""
        _release_spin(self._number)

    def is_pending(self):
        """Whether it has not ended yet."""
        return _is_pending(self._number) != 0


def spin(stream=0):
    """Queues a `Spin` on a stream of the current context, by its handle."""
    return Spin(stream)


def _place(address, element, count, writes):
    size = ctypes.sizeof(element) * count
    place = _translate(address, size, writes)
    if place is None:
        raise ValueError(f"{size} bytes at {address:#x} may not be {'written' if writes else 'read'}: see `reports()`")
    return (element * count).from_address(place)


def read(address, element, count):
    """Returns elements at a device address as an array of a ctypes type. In a kernel it declares that the kernel reads them."""
    return _place(address, element, count, 0)


def write(address, element, count):
    """Returns elements at a device address, for writing. `numpy.frombuffer` makes a NumPy array of them."""
    return _place(address, element, count, 1)


class Launch(NamedTuple):
    """The extents of a launch, which a kernel receives as its first argument."""

    grid: tuple
    block: tuple
    shared_bytes: int


_kernels = {}


def kernel(name, *parameters):
    """Registers the decorated function as the kernel `name`, whose parameters have these ctypes types.

    It runs once for each launch, with a `Launch` and the values of the parameters, and loops over the threads itself. It must not
    call the driver. It gets memory by `read` and `write`. An exception is printed, and the launch is then incomplete.

        @simulated_cuda.kernel("fill", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float)
        def fill(launch, out, count, value):
            simulated_cuda.write(out, ctypes.c_float, count)[:] = [value] * count
    """

    def register(function):
        def run(grid, block, shared_bytes, values):
            launch = Launch(tuple(grid[:3]), tuple(block[:3]), shared_bytes)
            function(launch, *(kind.from_address(values[at]).value for at, kind in enumerate(parameters)))

        # The driver keeps the pointer, so the object must live.
        _kernels[name] = KERNEL(run)
        sizes = (ctypes.c_size_t * len(parameters))(*map(ctypes.sizeof, parameters))
        _register_kernel(name.encode(), _kernels[name], sizes, len(parameters))
        return function

    return register
