"""The budget of driver calls: what each hand-over asks the driver, call by call, on the simulated one.

The producers are made by hand and call the driver for nothing, so that every call is ours. An import asks one question about the
pointer; a trusted import, and the release of a foreign tensor, ask nothing; a stream wait is a record and a wait. Every call beyond
that has its reason beside it.
"""

import ctypes

import interop_demo
import pytest
from capsules import CUDA, Producer, Tensor
from test_cuda_arrays import SIM, full, nothing_wrong, pytestmark  # noqa: F401
from test_exchange import FROM_OBJECT, Table, in_capsule

POINTER = "cuPointerGetAttributes"
# What a stream wait consists of.
RECORD, WAIT = "cuEventRecord", "cuStreamWaitEvent"
# Whether a stream captures a graph: an event that is recorded or waited for on the wrong side of a capture spoils it.
CAPTURES = "cuStreamIsCapturing"
# Whether a stream is alive: the question whether it captures ends the process for one that was destroyed.
ALIVE = "cuStreamGetCtx"
# Which context is current. Default streams are those of the current context.
CURRENT = "cuCtxGetCurrent"
# The mode in which queries and frees leave captures alone, set and put back.
MODE = "cuThreadExchangeStreamCaptureMode"
# The event that a batch of releases shares, and the question whether the work before it is done.
SHARED, DONE = "cuCtxRecordEvent", "cuEventQuery"
# Whether a device is in use.
IN_USE = "cuDevicePrimaryCtxGetState"
FREE = "cuMemFree_v2"
NAMES = [POINTER, RECORD, WAIT, CAPTURES, ALIVE, CURRENT, MODE, SHARED, DONE, IN_USE, FREE]
# What makes the context of another device current: it is alive, and is pushed and popped.
ABROAD = ["cuCtxGetApiVersion", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]

EDGE = {RECORD: 1, WAIT: 1}


def count_all(action):
    """What the driver is asked meanwhile, and the result."""
    SIM.library.interop_sim_reset_calls()
    result = action()
    return {name: SIM.calls(name) for name in NAMES + ABROAD if SIM.calls(name)}, result


def calls(action):
    """As `count_all`, where nothing else may be asked than what has a name here."""
    found, result = count_all(action)
    assert sum(found.values()) == SIM.library.interop_sim_calls(None), "a call that is not in the list"
    return found, result


def plus(*parts):
    """The calls of several steps together."""
    return {name: sum(part.get(name, 0) for part in parts) for name in NAMES if any(name in part for part in parts)}


@pytest.fixture(autouse=True)
def at_once():
    """Releases make no call of their own."""
    before = interop_demo.set_release_policy("immediate")
    yield
    interop_demo.set_release_policy(before)


def allocated():
    """Memory of the device, by its address, for all tests."""
    address = ctypes.c_uint64()
    SIM.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(256))
    return address.value


MEMORY = allocated() if SIM.library else None


@pytest.fixture
def memory():
    return MEMORY


def tensor(memory, form="versioned"):
    return Tensor(form, shape=(4, 4), strides=(4, 1), device=(CUDA, 0), data=memory)


# The stream that the library with the exchange table works on.
work = {"stream": None}


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def work_stream(device_type, device_id, stream):
    stream[0] = work["stream"]
    return 0


@FROM_OBJECT
def hand_over(address, out):
    out[0] = ctypes.cast(address, ctypes.py_object).value.tensor.address
    return 0


TABLE = Table(1, 3, None, None, None, None, None, None)
TABLE.from_object = ctypes.cast(hand_over, ctypes.c_void_p).value
TABLE.stream = ctypes.cast(work_stream, ctypes.c_void_p).value


class TorchLike(Producer):
    __dlpack_c_exchange_api__ = in_capsule(ctypes.addressof(TABLE))


class CupyLike(Producer):
    __module__ = "cupy"


class JaxLike(Producer):
    """Answers with a legacy capsule, whatever version it is asked for."""

    __module__ = "jaxlib._jax"


class Unknown(Producer):
    """Of a library that nobody knows."""


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


PRODUCERS = {
    # Its stream is asked of its table.
    "torch": (lambda memory: TorchLike(tensor(memory)), {POINTER: 1}),
    # A producer looks at the device that is current: which one is, only the driver knows.
    "cupy": (lambda memory: CupyLike(tensor(memory)), {POINTER: 1, CURRENT: 1}),
    "jax": (lambda memory: JaxLike(tensor(memory, "legacy")), {POINTER: 1, CURRENT: 1}),
    "unknown": (lambda memory: Unknown(tensor(memory)), {POINTER: 1, CURRENT: 1}),
    "numba": (NumbaLike, {POINTER: 1}),
}


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_import_asks_about_the_pointer(name, memory):
    """And a release of what is foreign asks nothing."""
    make, budget = PRODUCERS[name]
    interop_demo.is_square(make(memory))  # The class is met.
    producer = make(memory)
    imported, array = calls(lambda: interop_demo.asarray(producer))
    assert imported == budget
    del producer
    released, _ = calls(lambda: globals().update(array=None))
    del array
    assert (released, interop_demo.pending_releases()) == ({}, 0)


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_argument_that_is_given_back_at_once(name, memory):
    """A struct without a `stream` field remembers where work is pending, which costs no call."""
    make, budget = PRODUCERS[name]
    interop_demo.is_square(make(memory))
    producer = make(memory)
    assert calls(lambda: interop_demo.is_square(producer))[0] == budget


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
    """An export, an import and two releases: the export and the import ask about the pointer, and that is all."""
    array = full("cuda", shape=(4, 4))
    interop_demo.is_square(array)
    assert calls(lambda: interop_demo.is_square(array))[0] == {POINTER: 2}
    # What is trusted is the export.
    assert calls(lambda: interop_demo.is_square_trusted(array))[0] == {POINTER: 1}


def test_an_export_asks_about_the_pointer():
    array = full("cuda", shape=(4, 4))
    exported, capsule = calls(lambda: array.__dlpack__(max_version=(1, 0)))
    assert exported == {POINTER: 1}
    held = [capsule]
    del capsule
    assert calls(held.clear)[0] == {}, "the array itself is still there"
    interface, _ = calls(lambda: array.__cuda_array_interface__)
    assert interface == {}


def test_the_release_of_our_own_memory_frees_it():
    """In its context, and in the mode in which that leaves captures alone."""
    held = [full("cuda", shape=(4, 4))]
    capsule = [held[0].__dlpack__(max_version=(1, 0))]
    held.clear()
    # The export has the last reference. The object may free in whatever context is current: its context is looked for before,
    # and after it, and the mode is set. Our buffer does both for itself once more, as it may be dropped anywhere.
    released, _ = calls(capsule.clear)
    assert released == {CURRENT: 3, MODE: 4, FREE: 1}
    held = [full("cuda", shape=(4, 4))]
    released, _ = calls(held.clear)
    assert released == {CURRENT: 1, MODE: 2, FREE: 1}


def test_a_stream_wait_is_a_record_and_a_wait(memory):
    """Beside it both streams are asked whether they capture, and the one that waits whether it is alive."""
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
    assert imported(None, stream=1) == {POINTER: 1}
    # A default stream is that of the context that is current, so it is made sure that this is the memory's.
    one_default = plus({POINTER: 1}, EDGE, {CAPTURES: 2, CURRENT: 1})
    assert imported(theirs) == one_default
    assert imported(None, stream=ours) == plus(one_default, {ALIVE: 1})
    # An event will be recorded for the release, unless the stream captures a graph.
    interop_demo.set_release_policy("after_context")
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
    """Work is done as soon as it is queued, so that one question is answered once."""
    SIM.library.interop_sim_set_policy(2)
    yield
    SIM.library.interop_sim_set_policy(0)


# For each context: it is made sure that it is current and that no stream that can be seen captures in it. The mode allows the
# question.
DECIDED = {SHARED: 1, DONE: 1, CURRENT: 1, CAPTURES: 1, MODE: 2}


@pytest.mark.parametrize("count", [1, 20])
def test_releases_share_their_event(count, memory, eager):
    """A small array makes no call when it is dropped, and the calls after it are the same for all that wait."""
    interop_demo.set_release_policy("after_context")
    interop_demo.is_square(TorchLike(tensor(memory)))
    arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(count)]
    interop_demo.finish_releases()
    assert calls(arrays.clear)[0] == {}
    assert interop_demo.pending_releases() == count
    assert calls(interop_demo.finish_releases) == (DECIDED, 0)


def test_the_next_import_decides(memory, eager):
    interop_demo.set_release_policy("after_context")
    arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(2)]
    interop_demo.finish_releases()
    arrays.pop()
    producer = TorchLike(tensor(memory))
    assert calls(lambda: interop_demo.asarray(producer))[0] == plus({POINTER: 1}, DECIDED)
    interop_demo.finish_releases()


def test_a_release_after_all_contexts(memory, eager):
    """Each device is asked whether it is in use, and has an event if it is. Its context is made current if it is another."""
    interop_demo.set_release_policy("after_all_contexts")
    full("cuda", ordinal=1)
    for _ in range(2):  # The first time makes the events.
        arrays = [interop_demo.asarray(TorchLike(tensor(memory))) for _ in range(20)]
        interop_demo.finish_releases()
        assert calls(arrays.clear)[0] == {}
        decided, left = count_all(interop_demo.finish_releases)
    there = dict.fromkeys(ABROAD, 1)
    each = dict.fromkeys([SHARED, DONE, CURRENT, CAPTURES], 2)
    assert (decided, left) == ({**each, **there, IN_USE: 2, MODE: 2}, 0)


def test_a_large_array_is_decided_when_it_is_dropped(eager):
    """With an event of its own."""
    interop_demo.set_release_policy("after_context")
    large = full("cuda", shape=(1 << 18,))
    view = [interop_demo.asarray(large)]
    interop_demo.finish_releases()
    # The import and, inside of its release, the export that it was made of.
    assert calls(view.clear)[0] == plus(DECIDED, DECIDED)
    assert interop_demo.pending_releases() == 0
