"""Rules about streams, devices and owners that need a driver, on the simulated driver."""

import ctypes
import gc
import threading
import weakref

import interop_demo
import native
import numpy as np
import pytest
from capsules import CUDA, IS_COPIED, READ_ONLY, Table, look
from test_exchange import in_capsule
from test_cuda_arrays import SIM, full, nothing_wrong, on_host, pytestmark  # noqa: F401


def pending(spin):
    return bool(SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin)))


def current_device():
    ordinal = ctypes.c_int(-1)
    SIM.call("cuCtxGetDevice", ctypes.byref(ordinal))
    return ordinal.value


def test_every_stream_with_pending_work_is_waited_for():
    """R140: work on an array in two streams, which its export joins, and a dict that states no stream."""
    first, second, third, ours = (SIM.stream() for _ in range(4))
    array = full("cuda")
    spins = [SIM.library.simulated_cuda_spin(first)]
    interop_demo.scale_(array, 2, stream=first)
    spins.append(SIM.library.simulated_cuda_spin(second))
    interop_demo.scale_(array, 2, stream=second)
    array.__dlpack__(stream=third, max_version=(1, 0))
    later = SIM.library.simulated_cuda_spin(first)
    # The driver runs only what the third stream waits for.
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(third))
    assert [pending(spin) for spin in (*spins, later)] == [False, False, True]

    class SaysNothing:
        __cuda_array_interface__ = {**array.__cuda_array_interface__, "version": 2}

    SaysNothing.__cuda_array_interface__.pop("stream")
    spins = [later, SIM.library.simulated_cuda_spin(second)]
    interop_demo.describe(SaysNothing(), stream=ours)
    later = SIM.library.simulated_cuda_spin(second)
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(ours))
    assert [pending(spin) for spin in (*spins, later)] == [False, False, True]
    SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(later))


class OnItsDevice:
    """An array on the second device that records the current device when it is called."""

    def __init__(self, fails):
        self.array, self.fails, self.seen = full("cuda", ordinal=1), fails, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes):
        self.seen.append(current_device())
        if self.fails:
            raise RuntimeError("the producer fails")
        return self.array.__dlpack__(**wishes)


@pytest.mark.parametrize("fails", [False, True], ids=["taken", "failed"])
@pytest.mark.parametrize("package", ["theirs", "cupy"])
def test_a_producer_is_asked_with_its_device_current(fails, package):
    """R143: the caller's current device is restored, also after an error. A class of CuPy's is asked only once."""
    producer = type("Theirs", (OnItsDevice,), {"__module__": package})(fails)
    assert current_device() == 0
    for times in (1, 2):
        if fails:
            with pytest.raises(RuntimeError, match="the producer fails"):
                interop_demo.describe(producer)
        else:
            assert interop_demo.describe(producer)["device"] == (CUDA, 1)
        assert producer.seen == [1] * times
        assert current_device() == 0


@pytest.mark.skipif(native.missing() is not None, reason=f"a module in C cannot be compiled: {native.missing()}")
def test_the_exchange_table_waits_for_nothing():
    """R174: pending work stays pending. That the current stream's later work follows it is not a host wait."""
    c = native.load("handwritten")
    array, stream = full("cuda"), SIM.stream()
    spin = SIM.library.simulated_cuda_spin(stream)
    interop_demo.scale_(array, 2, stream=stream)
    waits = [f"cu{what}Synchronize" for what in ("Stream", "Event", "Ctx")]
    before = SIM.calls(*waits)
    c.table_import(array, array)
    assert SIM.calls(*waits) == before
    assert pending(spin)
    SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))


@pytest.mark.skipif(native.missing() is not None, reason=f"a module in C cannot be compiled: {native.missing()}")
def test_what_goes_out_by_the_table_comes_after_pending_work():
    """The export is ready on the stream that the table reports, the legacy default stream."""
    array, stream = full("cuda"), SIM.stream()
    spin = SIM.library.simulated_cuda_spin(stream)
    interop_demo.scale_(array, 2, stream=stream)
    native.load("handwritten").table_import(array, array)
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(1))
    assert not pending(spin)


class Theirs:
    """An array of a library that works on `stream` and states it in its dict."""

    def __init__(self, stream):
        self.array, self.asked = full("cuda"), 0
        self.interface = {**self.array.__cuda_array_interface__, "stream": stream}

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        return self.interface


class ByTable(Theirs):
    """The same, but the stream is in the exchange table of its class; its dict states another."""

    def __init__(self, stream):
        super().__init__(SIM.stream())
        type(self).stream = stream

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))
    def work_stream(device, ordinal, place):
        place[0] = ByTable.stream
        return 0

    table = Table(1, 3, None, None, None, None, None, ctypes.cast(work_stream, ctypes.c_void_p))
    __dlpack_c_exchange_api__ = in_capsule(ctypes.addressof(table))


class Silent(Theirs):
    """The same, but it states no stream."""

    def __init__(self, _stream):
        super().__init__(None)


def overwrite(producer, stream):
    """The library's next operation: it writes all bytes on its stream."""
    address = interop_demo.describe(producer.array)["data"]
    SIM.call("cuMemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(48), ctypes.c_uint64(stream))
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(stream))


@pytest.mark.parametrize(("library", "waits"), [(Theirs, 0), (ByTable, 0), (Silent, 0)])
def test_later_work_of_a_library_comes_after_ours(library, waits):
    """R46: without a host wait, also if the library states no stream: then all later work of the context waits."""
    theirs, synchronize = SIM.stream(), ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"]
    producer = library(theirs)
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(1))
    before = SIM.calls(*synchronize)
    interop_demo.scale_(producer, 2)
    assert (SIM.calls(*synchronize) - before, pending(spin)) == (waits, waits == 0)
    overwrite(producer, theirs)
    assert not pending(spin)
    # A caller that passes a stream must make the library's stream wait; the driver reports it if that is omitted.
    interop_demo.scale_(producer, 2, stream=SIM.stream())
    overwrite(producer, theirs)
    SIM.library.simulated_cuda_run_all()
    (report,) = SIM.reports()
    assert "an edge from operation" in report and "cuMemsetD8Async" in report


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize(("kind", "reachable"), [("cuda", False), ("pool", False), ("pinned", True), ("managed", True)])
def test_the_host_asks_for_an_array(kind, reachable, copy):
    """Bug 150: in place if the host can access the memory, else a copy. With `copy=False` the refusal has the
    standard's class.
    """
    array, wishes = full(kind), {"dl_device": (1, 0), "copy": copy, "max_version": (1, 0)}
    if copy is False and not reachable:
        with pytest.raises(interop_demo.ArrayError, match="`copy`: found False with dl_device") as raised:
            array.__dlpack__(**wishes)
        assert isinstance(raised.value, BufferError) and isinstance(raised.value, ValueError)
        return
    capsule = array.__dlpack__(**wishes)
    in_place = reachable and not copy
    facts = interop_demo.describe(array)
    assert (look(capsule).tensor.data == facts["data"], look(capsule).flags) == (in_place, 0 if in_place else IS_COPIED)
    assert np.from_dlpack(interop_demo.asarray(capsule)).tolist() == [[2.5] * 4] * 3


def test_a_dict_that_owns_the_memory_is_kept():
    """Bug 42: a property that creates a temporary array, which only the dict keeps alive."""

    class Owning(dict):
        """A dict that supports weak references and attributes."""

    class Fresh:
        @property
        def __cuda_array_interface__(self):
            array = full("cuda", value=7)
            interface = Owning(array.__cuda_array_interface__)
            interface.owner = array
            dicts.append(weakref.ref(interface))
            return interface

    dicts = []
    imported = interop_demo.asarray(Fresh())
    gc.collect()
    assert on_host(imported).tolist() == [[7.0] * 4] * 3
    assert [reference() is None for reference in dicts] == [False]
    del imported
    gc.collect()
    assert interop_demo.finish_releases() == 0
    assert [reference() is None for reference in dicts] == [True]


def test_an_object_that_owns_the_memory_is_kept():
    """Bug 42: its dict keeps nothing alive."""

    class Holder:
        def __init__(self):
            self.array = full("cuda", value=7)

        @property
        def __cuda_array_interface__(self):
            return self.array.__cuda_array_interface__

    holder = Holder()
    imported, known = interop_demo.asarray(holder), weakref.ref(holder)
    del holder
    gc.collect()
    assert known() is not None
    assert on_host(imported).tolist() == [[7.0] * 4] * 3
    del imported
    gc.collect()
    assert interop_demo.finish_releases() == 0
    assert known() is None


@pytest.mark.parametrize("stream", [1, 2, "handle"])
def test_an_import_by_the_table_is_ready_on_the_stream_that_is_named(stream):
    number = SIM.stream() if stream == "handle" else stream
    facts = interop_demo.describe(full("cuda"), stream=number)
    assert (facts["protocol"], facts["stream"]) == ("exchange", number)


@pytest.mark.parametrize("kind", ["cuda", "pool", "pinned", "managed"])
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_copy_of_a_read_only_array_may_be_written(kind, version):
    """R123: only the caller has the copy. The legacy form, which cannot state read-only, accepts it too."""
    array = full(kind, readonly=True)[::-1]
    sets = SIM.calls("cuMemsetD8Async")
    capsule = array.__dlpack__(copy=True, max_version=version)
    assert SIM.calls("cuMemsetD8Async") == sets, "what is overwritten at once is zeroed before"
    if version:
        assert look(capsule).flags == IS_COPIED
        interop_demo.scale_(capsule, 2)
    assert on_host(array).tolist() == [[2.5] * 4] * 3
    repeated = array.__cuda_array_interface__

    class Broadcast:
        __cuda_array_interface__ = {**repeated, "strides": (0, 4)}

    if version:
        # A write would change several elements, so the copy is read-only.
        copy = interop_demo.asarray(Broadcast()).__dlpack__(copy=True, max_version=version)
        assert look(copy).flags == IS_COPIED | READ_ONLY


@pytest.mark.parametrize("kind", ["cuda", "pool", "pinned", "managed"])
def test_a_copy_does_not_run_backwards(kind):
    """B81: PyTorch up to 2.11 ends the process on negative strides; a copy avoids them."""
    array = full(kind, (3, 4))
    for row in range(3):
        interop_demo.scale_(array[row], row + 1)
    backwards = array[::-1, ::-2]
    copy = interop_demo.asarray(backwards.__dlpack__(copy=True, max_version=(1, 0)))
    assert (copy.shape, copy.strides) == ((3, 2), (8, 4))
    assert copy.__dlpack_device__() == backwards.__dlpack_device__()
    assert on_host(copy).tolist() == [[7.5] * 2, [5.0] * 2, [2.5] * 2]
    # Nor does it have gaps.
    assert interop_demo.asarray(array[:, ::2].__dlpack__(copy=True, max_version=(1, 0))).strides == (8, 4)


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("kind", ["pinned", "managed", "cuda"])
def test_the_stream_2_of_another_thread_is_waited_for(kind):
    """On this thread, 2 refers to another stream, on which nothing is pending."""
    array = full(kind)

    def work():
        SIM.library.simulated_cuda_spin(2)
        interop_demo.scale_(array, 2, stream=2)
        # On the other thread the handle is still valid.
        assert array.__cuda_array_interface__["stream"] == 2
        assert interop_demo.describe(array, stream=2)["stream"] == 2

    in_a_thread(work)
    assert array.__cuda_array_interface__["stream"] == 1
    assert on_host(array).tolist() == [[5.0] * 4] * 3


def test_an_import_for_the_stream_2_is_used_in_another_thread():
    array, imported = full("cuda"), []
    interop_demo.scale_(array, 2, stream=SIM.stream())
    in_a_thread(lambda: imported.append(interop_demo.asarray(array, stream=2)))
    assert on_host(imported.pop()).tolist() == [[5.0] * 4] * 3


@pytest.mark.parametrize("function", [interop_demo.checksum, lambda array, stream: interop_demo.scale_(array, 1, stream=stream)])
def test_no_order_is_no_stream_to_remember(function):
    """Pending work stays pending on its stream, and the next consumer waits for it."""
    array, stream = full("cuda"), SIM.stream()
    interop_demo.scale_(array, 2, stream=stream)
    waits = SIM.calls("cuStreamWaitEvent")
    function(array, stream=-1)
    assert SIM.calls("cuStreamWaitEvent") == waits
    assert array.__cuda_array_interface__["stream"] == stream
    assert on_host(array).tolist() == [[5.0] * 4] * 3


@pytest.mark.parametrize("stream", [None, 1, "handle"])
@pytest.mark.parametrize("again", [False, True])
def test_two_arrays_in_one_memory_know_of_each_others_work(stream, again):
    """`asarray` of one of our arrays: a consumer of one array waits for a kernel that was launched through the other.
    """
    array = full("cuda")
    interop_demo.scale_(array, 2, stream=SIM.stream())
    other = interop_demo.asarray(array, stream=SIM.stream() if stream == "handle" else stream)
    first, second = (other, array) if again else (array, other)
    interop_demo.scale_(first, 2, stream=SIM.stream())
    assert on_host(second).tolist() == [[10.0] * 4] * 3
    assert interop_demo.checksum(first) == 120


def test_the_dtype_of_struct_elements_is_numpys():
    """Names, offsets, axes and padding, with nested structs; `repr` writes them as error messages do."""
    array = full("cuda", shape=(24,))
    inner = np.dtype({"names": ["a", "b"], "formats": ["u1", "<i2"], "offsets": [0, 4], "itemsize": 8})
    described = [("pos", "<f4", (3,)), ("id", "<u4"), ("in", [("a", "|u1"), ("", "|V3"), ("b", "<i2"), ("", "|V2")])]
    fresh = {"typestr": "|V24", "shape": (4,), "strides": None, "descr": described}

    class Particles:
        __cuda_array_interface__ = {**array.__cuda_array_interface__, **fresh}

    particles = interop_demo.asarray(Particles())
    assert particles.dtype == np.dtype([("pos", "<f4", (3,)), ("id", "<u4"), ("in", inner)])
    assert "dtype=struct {pos: float32[3] @0, id: uint32 @12, in: {a: uint8 @0, b: int16 @4} @16}" in repr(interop_demo._exported(particles))
