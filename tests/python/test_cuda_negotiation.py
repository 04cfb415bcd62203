"""The requests to libraries with CUDA arrays: an array on a stream, a fallback if they refuse, and whether they
capture a graph.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import interop_demo
import native
import numpy as np
import pytest
from capsules import CUDA, CUDA_HOST
from test_cuda_arrays import SIM, full, nothing_wrong, pytestmark  # noqa: F401


class Choosy:
    """An array that accepts only some streams, and records the requested ones."""

    def __init__(self, array, takes, error):
        self.array, self.takes, self.error, self.asked = array, takes, error, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None, **wishes):
        self.asked.append(stream)
        if stream not in self.takes:
            raise self.error
        return self.array.__dlpack__(stream=-1, **wishes)


@pytest.mark.parametrize("error", [AssertionError, TypeError, ValueError], ids=["torch", "warp", "other"])
@pytest.mark.parametrize("stream", [None, 1, 2, "handle"])
def test_pinned_memory_of_those_who_give_it_no_stream(error, stream):
    """PyTorch and Warp treat pinned memory like host memory: a stream is an error. We then wait for all pending work.
    """
    array, number = full("pinned"), SIM.stream() if stream == "handle" else stream
    producer = Choosy(array, (None, -1), error("no stream for host memory"))
    before = SIM.calls("cuCtxRecordEvent"), SIM.calls("cuStreamWaitEvent"), SIM.calls("cuStreamSynchronize")
    facts = interop_demo.describe(producer, stream=number)
    after = SIM.calls("cuCtxRecordEvent"), SIM.calls("cuStreamWaitEvent"), SIM.calls("cuStreamSynchronize")
    assert (facts["data"], facts["device"]) == (interop_demo.describe(array)["data"], (CUDA_HOST, 0))
    assert producer.asked == [number or 1, None]
    # Each device can access the memory: one event for each context in use, and again for the release.
    contexts = SIM.library.simulated_cuda_live(3)
    assert (after[0] - before[0] >= contexts, after[1] - before[1], after[2] - before[2]) == (True, contexts, 0)


@pytest.mark.parametrize("stream", [None, 1, 2, "handle"])
def test_pinned_memory_that_a_capsule_calls_host_memory_is_ordered_with_nothing(stream):
    """PyTorch labels it so. The event of a context would invalidate a capture in progress."""
    array, number = full("pinned"), SIM.stream() if stream == "handle" else stream

    class Unpinned(Choosy):
        def __dlpack__(self, **wishes):
            return super().__dlpack__(dl_device=(1, 0), **wishes)

    producer, captures, graph = Unpinned(array, (None, -1), AssertionError()), SIM.stream(), ctypes.c_uint64()
    SIM.call("cuStreamBeginCapture_v2", ctypes.c_uint64(captures), 0)
    facts = interop_demo.describe(producer, stream=number)
    SIM.call("cuStreamEndCapture", ctypes.c_uint64(captures), ctypes.byref(graph))
    assert (facts["device"], facts["stream"], producer.asked) == ((1, 0), None, [number or 1, None])


def test_the_per_thread_default_stream_of_those_who_have_none():
    """PyTorch refuses stream 2. It synchronizes with the legacy stream, and here the caller's stream waits for that
    one.
    """
    array = full("cuda")
    producer = Choosy(array, (1, -1), BufferError("per-thread default stream is not supported."))
    before = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent")
    assert interop_demo.describe(producer, stream=2)["stream"] == 2
    after = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent")
    assert (producer.asked, after[0] - before[0], after[1] - before[1]) == ([2, 1], 1, 1)


def test_no_order_of_those_who_take_it_for_a_stream():
    """JAX passes -1 to the driver as a handle, which fails: more is waited for than was requested."""
    array = full("cuda")
    producer = Choosy(array, (1,), RuntimeError("INTERNAL: CUDA error: CUDA_ERROR_INVALID_HANDLE"))
    assert interop_demo.describe(producer, stream=-1)["data"] == interop_demo.describe(array)["data"]
    assert producer.asked == [-1, 1]


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_numpy_accepts_no_stream(kind):
    """Its array over a tensor is on the tensor's device, whose work the caller's stream waits for."""
    array = full(kind)
    theirs = np.from_dlpack(array)[1:]
    for stream, known in [(None, 1), (1, 1), (2, 2), (SIM.stream(), None)]:
        before = SIM.calls("cuStreamWaitEvent")
        facts = interop_demo.describe(theirs, stream=stream)
        assert facts["device"] == interop_demo.describe(array)["device"]
        assert facts["data"] == theirs.ctypes.data and facts["stream"] == (known or stream)
        assert SIM.calls("cuStreamWaitEvent") > before
    assert interop_demo.checksum(theirs) == theirs.sum()


@pytest.mark.parametrize(
    ("kind", "stream", "asked"),
    [
        ("pinned", 1, [1, None]), ("pinned", -1, [-1, None]), ("cuda", 2, [2, 1]), ("cuda", -1, [-1, 1]),
        ("cuda", 1, [1]), ("managed", 1, [1, None]), ("managed", -1, [-1, None]),
    ],
)
def test_whoever_refuses_more_is_asked_no_further(kind, stream, asked):
    """The error is that of the first requested stream."""
    producer = Choosy(full(kind), (), RuntimeError("never"))
    with pytest.raises(RuntimeError, match="never") as raised:
        interop_demo.describe(producer, stream=stream)
    assert raised.value is producer.error
    assert producer.asked == asked


def habitual(module="cupy"):
    """Returns a class with a library's module name, an array of it, and the list of the requests to its objects."""
    asked = []

    class Habitual:
        __module__ = module

        def __init__(self, array, takes_streams=True):
            self.array, self.takes_streams = array, takes_streams

        def __dlpack_device__(self):
            asked.append("device")
            return self.array.__dlpack_device__()

        def __dlpack__(self, *, stream=None, max_version=None):
            asked.append(stream)
            if stream is not None and not self.takes_streams:
                raise ValueError("no streams here")
            return self.array.__dlpack__(stream=stream, max_version=max_version)

    usual = Habitual(full("cuda"))
    assert interop_demo.describe(usual)["device"] == (CUDA, 0)
    assert asked == ["device", 1]
    asked.clear()
    return Habitual, usual, asked


@pytest.mark.parametrize("module", ["cupy", "cupy._core.core", "jaxlib._jax", "jax"])
def test_libraries_that_say_the_same_twice_are_asked_once(module):
    _, usual, asked = habitual(module)
    stream = SIM.stream()
    facts = interop_demo.describe(usual, stream=stream)
    assert (facts["stream"], facts["device"], asked) == (stream, (CUDA, 0), [stream])


@pytest.mark.parametrize("module", ["cupyx_of_mine", "mine.cupy"])
def test_others_are_asked_both_every_time(module):
    _, usual, asked = habitual(module)
    for _ in range(3):
        interop_demo.describe(usual)
    assert asked == ["device", 1] * 3


@pytest.mark.parametrize(("kind", "ordinal"), [("cuda", 1), ("pinned", 0), ("managed", 0)])
def test_an_array_in_an_unusual_place_is_asked_everything(kind, ordinal):
    """It is imported as if the class were new, and an unneeded capsule is released."""
    habit, usual, asked = habitual()
    array = full(kind, ordinal=ordinal)
    facts = interop_demo.describe(habit(array))
    known = interop_demo.describe(array)
    assert (facts["data"], facts["device"]) == (known["data"], known["device"])
    assert asked == [1, "device", 1]
    asked.clear()
    for _ in range(3):
        interop_demo.describe(usual)
    assert asked == ["device", 1] * 3, "once bitten"


def test_an_array_that_takes_no_stream_is_asked_as_if_nothing_had_come_before():
    habit, _, asked = habitual()
    array = full("pinned")
    assert interop_demo.describe(habit(array, takes_streams=False))["device"] == (CUDA_HOST, 0)
    assert asked == [1, "device", 1, None]
    habit, _, asked = habitual()
    with pytest.raises(ValueError, match="no streams here"):
        interop_demo.describe(habit(full("cuda"), takes_streams=False))
    assert asked == [1, "device", 1]


def test_an_interrupt_of_a_class_with_a_habit_is_no_refusal():
    habit, _, asked = habitual()

    class Interrupted:
        def __dlpack__(self, **_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interop_demo.describe(habit(Interrupted()))
    assert asked == [1]


def test_an_interrupt_is_no_refusal():
    producer = Choosy(full("pinned"), (None,), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        interop_demo.describe(producer, stream=1)
    assert producer.asked == [1]


def test_no_order_is_never_asked_of_jax():
    """JAX passes -1 to the driver as a handle, and an invalid handle can end the process (bug 8)."""
    array = full("cuda")
    producer = type("Jax", (Choosy,), {"__module__": "jaxlib._jax"})(array, (1, -1), AssertionError())
    assert interop_demo.describe(producer, stream=-1)["data"] == interop_demo.describe(array)["data"]
    assert producer.asked == [1]


def test_an_interrupt_of_the_second_question_is_no_refusal():
    class Interrupted(Choosy):
        def __dlpack__(self, stream=None, **wishes):
            self.asked.append(stream)
            raise BufferError if len(self.asked) == 1 else KeyboardInterrupt

    producer = Interrupted(full("cuda"), (), None)
    with pytest.raises(KeyboardInterrupt):
        interop_demo.describe(producer, stream=2)
    assert producer.asked == [2, 1]


LIBRARY = """
import ctypes, sys, interop_demo
sys.path.append("../conformance")
from capsules import Table
from simulation import Simulation

driver = Simulation()  # which has the kernels

table = Table(1, 3)
name = b"dlpack_exchange_api"
make = ctypes.pythonapi.PyCapsule_New
make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

class Library:
    __dlpack_c_exchange_api__ = make(ctypes.addressof(table), name, None)
    def __init__(self, array):
        self.array = array
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, **wishes):
        return self.array.__dlpack__(**wishes)

interop_demo.describe(interop_demo.Array.full((4,), 1.0))  # whose table is met first: of libraries there are several
assert interop_demo.checksum(Library(interop_demo.Array.full((4,), 1.0))) == 4
array = interop_demo.Array.full((4,), 1.0, device="cuda")
driver.call("cuCtxSynchronize")  # the kernel that fills it is Python code, too
"""


def run_beside_a_library(program):
    """The output of a process with a library that can report its stream, `current_work_stream`."""
    command = [sys.executable, "-c", LIBRARY + program]
    folder = Path(__file__).parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_library_without_an_answer_loses_no_exception():
    """A release queries the libraries for captures, also while another exception is pending."""
    program = """
# A function that answers what is not zero, and sets no exception.
table.stream = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
for _ in range(3):
    try:
        [interop_demo.asarray(array), 1 / 0]
    except ZeroDivisionError:
        print("whole")
"""
    assert run_beside_a_library(program) == ["whole"] * 3


def test_whoever_waits_for_a_device_spoils_no_capture():
    """Without the GIL libraries cannot be queried for captures: no event is recorded meanwhile."""
    program = """
captures, graph = driver.stream(), ctypes.c_uint64()

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def work_stream(device_type, device_id, stream):
    stream[0] = captures
    return 0

table.stream = ctypes.cast(work_stream, ctypes.c_void_p).value
pinned, view = interop_demo.Array.full((4,), 1.0, device="pinned"), interop_demo.asarray(array)
interop_demo.scale_(pinned, 2, stream=1)
driver.call("cuStreamBeginCapture_v2", ctypes.c_uint64(captures), 2)
del view
print(interop_demo.pending_releases())
pinned.__dlpack__(dl_device=(1, 0))
print(interop_demo.pending_releases())
driver.call("cuStreamEndCapture", ctypes.c_uint64(captures), ctypes.byref(graph))
print(interop_demo.finish_releases(), driver.reports())
"""
    assert run_beside_a_library(program) == ["1", "1", "0", "[]"]


def test_what_a_library_drops_while_it_is_asked_waits_like_the_rest():
    """The query happens within a poll, which holds the list of deferred releases."""
    program = """
captures, graph = driver.stream(), ctypes.c_uint64()
dropped = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def work_stream(device_type, device_id, stream):
    stream[0] = captures
    dropped.clear()
    return 0

table.stream = ctypes.cast(work_stream, ctypes.c_void_p).value
view, other = interop_demo.asarray(array), interop_demo.asarray(array)
driver.call("cuStreamBeginCapture_v2", ctypes.c_uint64(captures), 2)
del view
print(interop_demo.pending_releases())
dropped.append(other)
del other
interop_demo.poll_releases()
print(len(dropped), interop_demo.pending_releases(), interop_demo.live_exports())
driver.call("cuStreamEndCapture", ctypes.c_uint64(captures), ctypes.byref(graph))
print(interop_demo.finish_releases(), driver.reports())
"""
    assert run_beside_a_library(program) == ["1", "0", "2", "2", "0", "[]"]


def test_a_library_is_asked_for_the_devices_that_a_release_is_about():
    """A capture on another device is not affected by the release, and each query takes time."""
    program = """
asked = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def work_stream(device_type, device_id, stream):
    asked.append(device_id)
    stream[0] = None
    return 0

table.stream = ctypes.cast(work_stream, ctypes.c_void_p).value
for kind, device in [("cuda", 0), ("cuda", 1), ("pinned", 0)]:
    # So large that it is decided when it is dropped.
    array = interop_demo.Array.full((1 << 18,), 1.0, device=kind, ordinal=device)
    # The first release makes the event, and with it finds out what the context is.
    interop_demo.describe(array)
    interop_demo.finish_releases()
    asked.clear()
    interop_demo.describe(array)
    print(*sorted(set(asked)), sep=",")
"""
    assert run_beside_a_library(program) == ["0", "1", "0,1"]


class Unstated:
    """A dict that states no stream."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "version": 2}
        self.__cuda_array_interface__.pop("stream", None)


class Streamless(Choosy):
    """Pinned memory whose producer treats it as host memory, which has no streams."""

    def __init__(self, array):
        super().__init__(array, [None], BufferError("no streams"))


@pytest.mark.skipif(native.missing() is not None, reason=f"the work of the host is in C and cannot be compiled: {native.missing()}")
@pytest.mark.parametrize(("producer", "kind"), [(Unstated, "cuda"), (Unstated, "pinned"), (Streamless, "pinned")])
def test_an_import_that_waits_lets_other_threads_run(producer, kind):
    """Drivers before 12.5 cannot record an event for a context. The host waits for all work, which may need the GIL."""
    probe, array = native.load("threads"), producer(full(kind))
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)
    SIM.library.simulated_cuda_fail_next(b"cuCtxRecordEvent", 500)
    waits = SIM.calls("cuCtxSynchronize")
    interop_demo.describe(array, stream=SIM.stream())
    assert SIM.calls("cuCtxSynchronize") == waits + 1
    assert probe.attachment(1) is False
