"""The budget of driver calls of each exchange, call by call, on the simulated driver.

The producers are made by hand and make no driver calls, so each call is ours. An import queries the pointer once. A
trusted import, and the release of a foreign tensor, make no query. A stream wait is a record and a wait. Each further
call has its reason next to it.
"""

import ctypes

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, Producer, Table, Tensor
from test_cuda_arrays import SIM, full, nothing_wrong, pytestmark  # noqa: F401
from test_exchange import FROM_OBJECT, in_capsule

POINTER = "cuPointerGetAttributes"
# The calls of a stream wait.
RECORD, WAIT = "cuEventRecord", "cuStreamWaitEvent"
# Whether a stream captures a graph: recording or waiting for an event on the wrong side of a capture invalidates it.
CAPTURES = "cuStreamIsCapturing"
# Whether a stream is alive: querying the capture status of a destroyed stream ends the process.
ALIVE = "cuStreamGetCtx"
# The current context, to which default streams refer.
CURRENT = "cuCtxGetCurrent"
# Sets the capture mode in which queries and frees do not affect captures, and restores the previous one.
MODE = "cuThreadExchangeStreamCaptureMode"
# The event that a batch of releases shares, and the query whether the work before it has finished.
SHARED, DONE = "cuCtxRecordEvent", "cuEventQuery"
# Whether a device is in use.
IN_USE = "cuDevicePrimaryCtxGetState"
FREE = "cuMemFree_v2"
NAMES = [POINTER, RECORD, WAIT, CAPTURES, ALIVE, CURRENT, MODE, SHARED, DONE, IN_USE, FREE]
# Makes the context of another device current: a check that it is alive, a push and a pop.
ABROAD = ["cuCtxGetApiVersion", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]

EDGE = {RECORD: 1, WAIT: 1}


def count_all(action):
    """Returns the driver calls of the action, and its result."""
    SIM.library.simulated_cuda_reset_calls()
    result = action()
    return {name: SIM.calls(name) for name in NAMES + ABROAD if SIM.calls(name)}, result


def calls(action):
    """Like `count_all`, but only calls with a name here are allowed."""
    found, result = count_all(action)
    assert sum(found.values()) == SIM.library.simulated_cuda_calls(None), "a call that is not in the list"
    return found, result


def plus(*parts):
    """The sum of the calls of several steps."""
    return {name: sum(part.get(name, 0) for part in parts) for name in NAMES if any(name in part for part in parts)}


@pytest.fixture(autouse=True)
def at_once():
    """Releases make no driver calls of their own."""
    interop_demo.set_unordered(releases=True)
    yield
    interop_demo.set_unordered()
    interop_demo.set_release_policy("after_context")


def allocated():
    """The address of device memory for all tests."""
    address = ctypes.c_uint64()
    SIM.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(256))
    return address.value


MEMORY = allocated() if SIM.library else None


@pytest.fixture
def memory():
    return MEMORY


def tensor(memory, form="versioned"):
    return Tensor(form, shape=(4, 4), strides=(4, 1), device=(CUDA, 0), data=memory)


# The stream that the library with the exchange table uses.
work = {"stream": None}


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def work_stream(device_type, device_id, stream):
    stream[0] = work["stream"]
    return 0


@FROM_OBJECT
def hand_over(address, out):
    producer = ctypes.cast(address, ctypes.py_object).value
    producer.handed = getattr(producer, "handed", 0) + 1
    out[0] = producer.tensor.address
    return 0


TABLE = Table(1, 3, None, None, None, None, None, None)
TABLE.from_object = ctypes.cast(hand_over, ctypes.c_void_p).value
TABLE.stream = ctypes.cast(work_stream, ctypes.c_void_p).value


class TorchLike(Producer):
    """Its table answers null for the legacy default stream."""

    __module__ = "torch"
    __dlpack_c_exchange_api__ = in_capsule(ctypes.addressof(TABLE))


class CupyLike(Producer):
    __module__ = "cupy"


class JaxLike(Producer):
    """Returns a legacy capsule for any requested version."""

    __module__ = "jaxlib._jax"


class Unknown(Producer):
    """Belongs to an unknown library."""


class NumbaLike:
    def __init__(self, memory, version=3, stream=None):
        self.__cuda_array_interface__ = {
            "shape": (4, 4),
            "typestr": "<f4",
            "data": (memory, False),
            "strides": None,
            "version": version,
        }
        if version == 3:
            self.__cuda_array_interface__["stream"] = stream


# A `stream` field has no context, so a default stream is stored in it only if its context is current.
KEPT_ON_A_DEFAULT_STREAM = {CURRENT: 1}

PRODUCERS = {
    # The exchange table reports its stream.
    "torch": (lambda memory: TorchLike(tensor(memory)), {POINTER: 1}),
    # A producer reads the current device, which only the driver knows.
    "cupy": (lambda memory: CupyLike(tensor(memory)), {POINTER: 1, CURRENT: 1}),
    "jax": (lambda memory: JaxLike(tensor(memory, "legacy")), {POINTER: 1, CURRENT: 1}),
    "unknown": (lambda memory: Unknown(tensor(memory)), {POINTER: 1, CURRENT: 1}),
    "numba": (NumbaLike, {POINTER: 1}),
}


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_import_asks_about_the_pointer(name, memory):
    """The release of a foreign tensor makes no call."""
    make, budget = PRODUCERS[name]
    interop_demo.is_square(make(memory))  # The class is cached now.
    producer = make(memory)
    imported, array = calls(lambda: interop_demo.asarray(producer))
    assert imported == plus(budget, KEPT_ON_A_DEFAULT_STREAM)
    del producer
    released, _ = calls(lambda: globals().update(array=None))
    del array
    assert (released, interop_demo.pending_releases()) == ({}, 0)


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_argument_that_is_given_back_at_once(name, memory):
    """A struct without a `stream` field remembers where work is pending; that costs no call."""
    make, budget = PRODUCERS[name]
    interop_demo.is_square(make(memory))
    producer = make(memory)
    assert calls(lambda: interop_demo.is_square(producer))[0] == budget


def test_a_class_of_host_arrays_hands_over_its_first_device_array_once(memory):
    """The import expects host memory, but orders the tensor that it got."""
    mixed = type("Mixed", (TorchLike,), {"__module__": "torch"})
    interop_demo.is_square(mixed(Tensor("versioned", shape=(4, 4), strides=(4, 1))))
    producer = mixed(tensor(memory))
    assert calls(lambda: interop_demo.is_square(producer))[0] == {POINTER: 1}
    assert producer.handed == 1


def test_a_trusted_import_asks_nothing(memory):
    interop_demo.is_square_trusted(TorchLike(tensor(memory)))
    producer = TorchLike(tensor(memory))
    assert calls(lambda: interop_demo.is_square_trusted(producer))[0] == {}


def test_a_trusted_import_by_method_asks_which_device_is_current(memory):
    for make in (lambda: CupyLike(tensor(memory)), lambda: JaxLike(tensor(memory, "legacy"))):
        interop_demo.is_square_trusted(make())
        producer = make()
        assert calls(lambda producer=producer: interop_demo.is_square_trusted(producer))[0] == {CURRENT: 1}


def test_our_own_array_in_and_out_by_the_table():
    """An export, an import and two releases: the export and the import query the pointer, and there are no other
    calls.
    """
    array = full("cuda", shape=(4, 4))
    interop_demo.is_square(array)
    assert calls(lambda: interop_demo.is_square(array))[0] == {POINTER: 2}
    # Only the export is trusted.
    assert calls(lambda: interop_demo.is_square_trusted(array))[0] == {POINTER: 1}


def test_memory_of_numpy_is_not_asked_about():
    """NumPy has allocated it, also for a view. The memory of another object may be anywhere."""
    own, numbers = np.arange(24.0).reshape(4, 6), (ctypes.c_double * 6)()
    for array in (own, own[1:, ::2].T, np.zeros(0), np.float64(1.0) + own):
        assert calls(lambda array=array: interop_demo.describe(array))[0] == {}
    for array in (np.ctypeslib.as_array(numbers), np.frombuffer(bytearray(16))[1:]):
        assert calls(lambda array=array: interop_demo.describe(array))[0] == {POINTER: 1}
    lying = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(MEMORY))
    with pytest.raises(interop_demo.ArrayError, match=r"device.*CPU \(1\)"):
        interop_demo.describe(lying[1:])


def test_an_export_asks_about_the_pointer():
    array = full("cuda", shape=(4, 4))
    exported, capsule = calls(lambda: array.__dlpack__(max_version=(1, 0)))
    assert exported == {POINTER: 1}
    held = [capsule]
    del capsule
    assert calls(held.clear)[0] == {}, "the array itself is still there"
    interface, _ = calls(lambda: array.__cuda_array_interface__)
    assert interface == {}


@pytest.mark.parametrize("releases", [True, False])
def test_an_export_of_imported_memory_waits_for_all_work(releases, memory):
    """The library of the memory works on without a word. The release adds no order, because that of the import does."""
    interop_demo.set_unordered(releases=releases)
    interop_demo.is_square(TorchLike(tensor(memory)))
    array = interop_demo.asarray(TorchLike(tensor(memory)))
    array.__dlpack__(max_version=(1, 0))  # The first time creates the event.
    interop_demo.finish_releases()
    exported, capsule = calls(lambda: array.__dlpack__(max_version=(1, 0)))
    # The address tells the context, whose work one event comes after. The consumer's default stream is that of the current context.
    assert exported == {POINTER: 1, SHARED: 1, WAIT: 1, CURRENT: 3, CAPTURES: 2}
    # The capsule is the last to keep the imported memory.
    del array
    held = [capsule]
    del capsule
    assert calls(held.clear)[0] == {}
    assert interop_demo.pending_releases() == (not releases)
    interop_demo.finish_releases()


def test_the_release_of_our_own_memory_frees_it():
    """In its context, and in the capture mode that does not affect captures."""
    held = [full("cuda", shape=(4, 4))]
    capsule = [held[0].__dlpack__(max_version=(1, 0))]
    held.clear()
    # The export is the last reference. The object may free in any current context, so the context is queried before
    # and after, and the mode is set. Our buffer also does both itself, because it may be dropped anywhere.
    released, _ = calls(capsule.clear)
    assert released == {CURRENT: 3, MODE: 4, FREE: 1}
    held = [full("cuda", shape=(4, 4))]
    released, _ = calls(held.clear)
    assert released == {CURRENT: 1, MODE: 2, FREE: 1}


def test_a_stream_wait_is_a_record_and_a_wait(memory):
    """In addition, both streams are queried for a capture, and the waiting stream is checked to be alive."""
    theirs, ours = SIM.stream(), SIM.stream()
    producer = TorchLike(tensor(memory))
    interop_demo.order(full("cuda"), theirs)
    interop_demo.describe(producer, stream=ours)

    def imported(works_on, **wishes):
        interop_demo.finish_releases()
        work["stream"] = works_on
        try:
            return calls(lambda: interop_demo.asarray(producer, **wishes))[0]
        finally:
            work["stream"] = None

    imported(theirs, stream=ours)
    two = plus({POINTER: 1}, EDGE, {CAPTURES: 2, ALIVE: 1})
    assert imported(theirs, stream=ours) == two
    assert imported(ours, stream=ours) == {POINTER: 1}
    assert imported(None, stream=1) == {POINTER: 1, **KEPT_ON_A_DEFAULT_STREAM}
    # A default stream belongs to the current context, so that must be checked to be the memory's.
    one_default = plus({POINTER: 1}, EDGE, {CAPTURES: 2, CURRENT: 1})
    assert imported(None, stream=ours) == plus(one_default, {ALIVE: 1})
    # The caller's stream, which the array leaves. An array is not kept during a capture, which is asked about first.
    assert imported(theirs) == plus(one_default, {CAPTURES: 1}, KEPT_ON_A_DEFAULT_STREAM)
    # The release will record an event, unless the stream captures a graph.
    interop_demo.set_unordered()
    assert imported(ours, stream=ours) == {POINTER: 1, CAPTURES: 1}
    assert imported(theirs, stream=ours) == two
    interop_demo.finish_releases()


def test_a_dict_that_names_a_stream_is_ordered_after_it(memory):
    theirs, ours = SIM.stream(), SIM.stream()
    producer = NumbaLike(memory, stream=theirs)
    interop_demo.asarray(producer, stream=ours)
    found, _ = calls(lambda: interop_demo.asarray(producer, stream=ours))
    assert found == plus({POINTER: 1}, EDGE, {CAPTURES: 2, ALIVE: 1})


@pytest.fixture
def eager():
    """Work finishes as soon as it is queued, so one query is enough."""
    SIM.library.simulated_cuda_set_policy(2)
    yield
    SIM.library.simulated_cuda_set_policy(0)


# For each context: it must be current, and no visible stream may capture in it. The mode allows the query.
DECIDED = {SHARED: 1, DONE: 1, CURRENT: 1, CAPTURES: 1, MODE: 2}


@pytest.mark.parametrize("count", [1, 20])
def test_releases_share_their_event(count, memory, eager):
    """A small array makes no call when it is dropped. The later calls are the same for any number of deferred
    releases.
    """
    interop_demo.set_unordered()
    interop_demo.is_square(TorchLike(tensor(memory)))
    arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(count)]
    interop_demo.finish_releases()
    assert calls(arrays.clear)[0] == {}
    assert interop_demo.pending_releases() == count
    assert calls(interop_demo.finish_releases) == (DECIDED, 0)


def test_the_import_of_an_array_that_is_kept_decides(memory, eager):
    """It polls, because its own release records an event."""
    interop_demo.set_unordered()
    for _ in range(2):  # The first time creates the event and counts the devices.
        arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(2)]
        arrays.pop()
        producer = TorchLike(tensor(memory))
        found, kept = count_all(lambda: interop_demo.asarray(producer))
        del kept
        interop_demo.finish_releases()
    assert found == plus({POINTER: 1}, KEPT_ON_A_DEFAULT_STREAM, DECIDED)


def test_a_release_after_all_contexts(memory, eager):
    """Each device is queried for use. If it is in use it gets an event, and its context is made current if another
    one is.
    """
    interop_demo.set_unordered()
    interop_demo.set_release_policy("after_all_contexts")
    full("cuda", ordinal=1)
    for _ in range(2):  # The first time creates the events.
        arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(20)]
        interop_demo.finish_releases()
        assert calls(arrays.clear)[0] == {}
        decided, left = count_all(interop_demo.finish_releases)
    there = dict.fromkeys(ABROAD, 1)
    each = dict.fromkeys([SHARED, DONE, CURRENT, CAPTURES], 2)
    assert (decided, left) == ({**each, **there, IN_USE: 2, MODE: 2}, 0)


def test_a_large_array_is_decided_when_it_is_dropped(eager):
    """A large array gets its own event."""
    interop_demo.set_unordered()
    large = full("cuda", shape=(1 << 18,))
    view = [interop_demo.asarray(large)]
    interop_demo.finish_releases()
    # The import and, within its release, the export from which it was made.
    assert calls(view.clear)[0] == plus(DECIDED, DECIDED)
    assert interop_demo.pending_releases() == 0
