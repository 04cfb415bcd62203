"""The extension's arrays in CUDA memory, on the simulated driver: everything that needs no GPU."""

import ctypes
import gc
import threading

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, CUDA_HOST, CUDA_MANAGED
from simulation import Simulation

SIM = Simulation()
pytestmark = pytest.mark.skipif(
    SIM.library is None, reason="the simulated driver is not found; `cargo xtask test python` runs this file with it"
)
Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
KINDS = {"cuda": (CUDA, 0), "pool": (CUDA, 0), "pinned": (CUDA_HOST, 0), "managed": (CUDA_MANAGED, 0)}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def nothing_wrong(nothing_leaks):
    """Checks that the driver has nothing to report and that no driver memory leaks."""
    live = SIM.library.simulated_cuda_live(0)
    yield
    gc.collect()
    assert interop_demo.finish_releases() == 0
    # Pool memory that is freed in stream order.
    SIM.library.simulated_cuda_run_all()
    assert SIM.reports() == []
    assert SIM.library.simulated_cuda_live(0) == live


def full(kind, shape=(3, 4), value=2.5, dtype="<f4", **options):
    return Array.full(shape, value, dtype, device=kind, **options)


def on_host(array):
    return np.from_dlpack(array, device="cpu")


@each_kind
def test_a_new_array_has_its_values(kind):
    array = full(kind)
    assert array.__dlpack_device__() == KINDS[kind]
    assert on_host(array).tolist() == [[2.5] * 4] * 3


@each_kind
def test_both_protocols_describe_it(kind):
    array = full(kind)
    facts = interop_demo.describe(array)
    assert (facts["device"], facts["shape"], facts["strides"]) == (KINDS[kind], (3, 4), (4, 1))
    interface = array.__cuda_array_interface__
    assert interface["data"] == (facts["data"], False)
    # Device memory is filled on the legacy default stream; nothing is pending on other kinds of memory.
    assert interface.get("stream") == (1 if kind in ("cuda", "pool") else None)

    class ByInterface:
        __cuda_array_interface__ = interface

    by_interface = interop_demo.describe(ByInterface())
    assert by_interface["protocol"] == "cai"
    assert (by_interface["data"], by_interface["device"]) == (facts["data"], KINDS[kind])


def test_each_access_makes_a_dict():
    """R20: the dict states what is pending at that time, and no two reads share a dict."""
    array, stream = full("cuda"), SIM.stream()
    first = array.__cuda_array_interface__
    interop_demo.scale_(array, 2, stream=stream)
    second = array.__cuda_array_interface__
    assert first is not second
    assert (first["stream"], second["stream"]) == (1, stream)
    assert {**second, "stream": None} == {**first, "stream": None}


@each_kind
def test_the_dict_holds_what_the_interface_says_and_nothing_else(kind):
    """R1 to R3, R22, bugs 65, 154: including the type of each value."""
    interface = full(kind)[:, ::2].__cuda_array_interface__
    assert interface.pop("stream", 1) == 1
    types = {key: type(value) for key, value in interface.items()}
    assert types == {"shape": tuple, "typestr": str, "data": tuple, "version": int, "strides": tuple}
    assert type(interface) is dict
    assert {type(number) for number in (*interface["shape"], *interface["strides"])} == {int}
    assert [type(part) for part in interface["data"]] == [int, bool]


@each_kind
def test_an_import_shares_the_memory(kind):
    array = full(kind)
    again = interop_demo.asarray(array)
    assert interop_demo.describe(again)["data"] == interop_demo.describe(array)["data"]
    del array
    gc.collect()
    assert on_host(again).tolist() == [[2.5] * 4] * 3


@each_kind
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2", "<i4", "<i8", "|u1"])
def test_a_kernel_changes_it_in_place(kind, dtype):
    array = full(kind, value=4, dtype=dtype)
    before = interop_demo.describe(array)["data"]
    interop_demo.scale_(array[1:, ::2], 3)
    assert interop_demo.describe(array)["data"] == before
    expected = np.full((3, 4), 4.0)
    expected[1:, ::2] *= 3
    assert on_host(array).tolist() == expected.tolist()
    assert interop_demo.checksum(array) == expected.sum()


@each_kind
def test_views_go_backwards(kind):
    array = full(kind)
    interop_demo.scale_(array[::-1, ::-2], 2)
    assert on_host(array)[:, 1].tolist() == [5.0] * 3
    assert interop_demo.checksum(array[::-1]) == 2.5 * 6 + 5 * 6


@pytest.mark.parametrize("kind", ["cuda", "pool"])
@pytest.mark.parametrize("dtype", ["|u1", "<f2", "<f4", "<c8", "<c16"])
def test_a_device_fills_its_memory_while_the_host_goes_on(kind, dtype):
    """Nothing is zeroed, copied or waited for on the host; each reader waits for the kernel."""
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(1))
    before = SIM.calls("cuMemsetD8Async", "cuMemcpyAsync"), SIM.calls("cuLaunchKernel")
    waits = SIM.calls("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")
    array = full(kind, value=3, dtype=dtype)
    assert (SIM.calls("cuMemsetD8Async", "cuMemcpyAsync"), SIM.calls("cuLaunchKernel")) == (before[0], before[1] + 1)
    # Pool memory can be used after its stream has been reached.
    assert kind == "pool" or SIM.calls("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize") == waits
    assert kind == "pool" or SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin))
    SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))
    assert on_host(array).tolist() == [[3] * 4] * 3


def test_a_new_array_spoils_no_capture():
    """The kernel would run on the legacy default stream, which waits for the capturing stream."""
    captures, graph = ctypes.c_uint64(), ctypes.c_uint64()
    SIM.call("cuStreamCreate", ctypes.byref(captures), 0)
    SIM.call("cuStreamBeginCapture_v2", captures, 2)
    array = full("cuda")
    SIM.call("cuStreamEndCapture", captures, ctypes.byref(graph))
    assert "stream" not in array.__cuda_array_interface__
    assert on_host(array).tolist() == [[2.5] * 4] * 3


def test_a_sum_is_no_part_of_a_graph():
    """Its kernel would overwrite the partial sums of other calls each time the graph is launched."""
    array, captures, graph = full("pinned"), SIM.stream(), ctypes.c_uint64()
    SIM.call("cuStreamBeginCapture_v2", ctypes.c_uint64(captures), 2)
    launches = SIM.calls("cuLaunchKernel")
    with pytest.raises(interop_demo.ArrayError, match="captur"):
        interop_demo.checksum(array, stream=captures)
    assert SIM.calls("cuLaunchKernel") == launches
    SIM.call("cuStreamEndCapture", ctypes.c_uint64(captures), ctypes.byref(graph))


def test_a_sum_allocates_nothing_and_waits_once():
    array, stream = full("cuda", (5000,)), SIM.stream()
    names = ("cuMemHostAlloc", "cuMemAlloc_v2", "cuMemAllocFromPoolAsync", "cuMemcpyAsync", "cuMemsetD8Async")
    waits = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")
    before = SIM.calls(*names), SIM.calls(*waits), SIM.calls("cuLaunchKernel")
    assert interop_demo.checksum(array, stream=stream) == 2.5 * 5000
    after = SIM.calls(*names), SIM.calls(*waits), SIM.calls("cuLaunchKernel")
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 1]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,)])
def test_ranks_without_axes_and_without_elements(shape):
    array = full("cuda", shape)
    interop_demo.scale_(array, 2)
    assert interop_demo.checksum(array) == 5.0 * np.prod(shape, dtype=int)
    assert on_host(array).shape == shape


def test_an_array_knows_where_it_was_written():
    array, stream = full("cuda"), SIM.stream()
    row = array[0]
    interop_demo.scale_(row, 2, stream=stream)
    # The view and the array share their memory.
    assert array.__cuda_array_interface__["stream"] == stream
    array.__dlpack__(stream=1, max_version=(1, 0))  # another test's last event may be tried first
    before = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent"), SIM.calls("cuStreamSynchronize")
    array.__dlpack__(stream=1, max_version=(1, 0))
    after = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent"), SIM.calls("cuStreamSynchronize")
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 0]
    assert interop_demo.checksum(array) == 2.5 * 8 + 5 * 4


def test_no_order_is_asked_for_and_none_is_made():
    array, stream = full("cuda"), SIM.stream()
    interop_demo.scale_(array, 2, stream=stream)
    before = SIM.calls("cuEventRecord")
    array.__dlpack__(stream=-1, max_version=(1, 0))
    array.__dlpack__(stream=stream, max_version=(1, 0))
    assert SIM.calls("cuEventRecord") == before


def test_order_by_hand():
    array, first, second = full("cuda"), SIM.stream(), SIM.stream()
    interop_demo.scale_(array, 2, stream=first)
    before = SIM.calls("cuStreamWaitEvent")
    interop_demo.order(array, second)
    assert SIM.calls("cuStreamWaitEvent") == before + 1


def test_all_releases_of_a_long_chain_are_finished():
    """Each array owns the one before it, so one release leads to the next."""

    class Forwarding:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = full("cuda")
    for _ in range(40):
        array = interop_demo.asarray(Forwarding(array))
    del array
    assert (interop_demo.finish_releases(), interop_demo.pending_releases()) == (0, 0)


@each_kind
def test_memory_is_released_after_the_work_that_uses_it(kind):
    array, stream = full(kind), SIM.stream()
    spin = SIM.library.simulated_cuda_spin(stream)
    interop_demo.scale_(array, 2, stream=stream)
    capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
    imported = interop_demo.asarray(capsule)
    del array, capsule, imported
    gc.collect()
    assert interop_demo.pending_releases() > 0
    SIM.library.simulated_cuda_release_spin(spin)
    assert interop_demo.finish_releases() == 0


def test_an_address_of_the_host_is_no_memory_of_cuda():
    memory = np.zeros(12, "f4")

    class Liar:
        __cuda_array_interface__ = {**full("cuda").__cuda_array_interface__, "data": (memory.ctypes.data, False)}

    with pytest.raises(interop_demo.ArrayError, match=rf"found {memory.ctypes.data:#x}, which the driver does not know"):
        interop_demo.describe(Liar())


@pytest.mark.parametrize(("device", "ordinal"), [("gpu", 0), ("cpu", 1), ("cuda", 99), ("cuda", -1)])
def test_places_that_are_none(device, ordinal):
    with pytest.raises(interop_demo.ArrayError):
        Array.full((2,), 0.0, device=device, ordinal=ordinal)


def test_the_second_device():
    array = full("cuda", ordinal=1)
    assert interop_demo.describe(array)["device"] == (CUDA, 1)
    interop_demo.scale_(array, 2)
    assert interop_demo.checksum(array) == 60


def test_read_only_arrays_stay_as_they_are():
    array = full("cuda", readonly=True)
    assert array.__cuda_array_interface__["data"][1] is True
    with pytest.raises(interop_demo.ArrayError, match="read-only"):
        interop_demo.scale_(array, 2)
    assert interop_demo.checksum(array) == 30


def test_the_switches_say_what_they_were():
    names = ["after_all_contexts", "after_context"]
    assert [interop_demo.set_release_policy(name) for name in names] == [names[-1], *names[:-1]]
    with pytest.raises(ValueError, match=names[0]):
        interop_demo.set_release_policy("never")
    assert interop_demo.set_unordered(releases=True) == (False, False)
    assert interop_demo.set_unordered(unknown_work=True) == (True, False)
    assert interop_demo.set_unordered() == (False, True)


def test_releases_can_be_held():
    with interop_demo.HoldReleases():
        array = full("cuda")
        imported = interop_demo.asarray(array.__dlpack__(max_version=(1, 0)))
        del array, imported
        gc.collect()
        assert interop_demo.finish_releases() > 0
    assert interop_demo.finish_releases() == 0


def test_ten_thousand_trips_leave_nothing():
    array = full("cuda")
    for _ in range(10_000):
        interop_demo.asarray(array)
    del array


def test_what_is_believed_is_not_asked_for():
    array, asked = full("cuda", (4, 4)), []
    for function in (interop_demo.is_square, interop_demo.is_square_trusted):
        before = SIM.calls("cuPointerGetAttributes")
        assert function(array)
        asked.append(SIM.calls("cuPointerGetAttributes") - before)
    assert asked[1] == asked[0] - 1


def test_a_function_that_works_on_a_copy_says_how_to_make_one():
    """It does not copy the array from the device by itself."""
    with pytest.raises(interop_demo.ArrayError, match=r"for a copy into host memory; copy it to the host, .*asnumpy\(x\)"):
        interop_demo.trace(full("cuda", (2, 2)))


@pytest.mark.parametrize("stream", [1, 2, "handle"])
def test_pinned_memory_is_handed_over_on_a_stream(stream):
    """R138: kernels read it like other memory, so the stream that is passed waits for pending work."""
    array, number = full("pinned"), SIM.stream() if stream == "handle" else stream
    interop_demo.scale_(array, 2, stream=SIM.stream())
    before = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent")
    capsule = array.__dlpack__(stream=number, max_version=(1, 0))
    after = SIM.calls("cuEventRecord"), SIM.calls("cuStreamWaitEvent")
    # An event of another context may be tried first.
    assert (after[0] - before[0] >= 1, after[1] - before[1]) == (True, 1)
    # Reads on that stream; the driver reports a missing wait.
    assert interop_demo.checksum(capsule, stream=number) == 60


def test_the_stream_2_is_that_of_the_thread_that_names_it():
    """R135: each thread that passes 2 gets the array ready on its own per-thread stream."""
    array = full("cuda")
    interop_demo.scale_(array, 2, stream=SIM.stream())
    sums = []

    def work():
        capsule = array.__dlpack__(stream=2, max_version=(1, 0))
        sums.append(interop_demo.checksum(capsule, stream=2))

    threads = [threading.Thread(target=work) for _ in range(2)]
    before = SIM.calls("cuStreamWaitEvent")
    for thread in threads:
        thread.start()
        thread.join()
    assert (sums, SIM.calls("cuStreamWaitEvent") - before >= 2) == ([60.0, 60.0], True)


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_the_host_reads_memory_that_it_can_reach_once_it_is_ready(kind):
    array, stream = full(kind), SIM.stream()
    interop_demo.scale_(array[1:], 2, stream=stream)
    waits = SIM.calls("cuStreamSynchronize") + SIM.calls("cuEventSynchronize")
    view = memoryview(array)
    assert SIM.calls("cuStreamSynchronize") + SIM.calls("cuEventSynchronize") == waits + 1
    assert view.tolist() == [[2.5] * 4, [5.0] * 4, [5.0] * 4]
    view[0, 0] = 7.5
    assert interop_demo.checksum(array) == 55.0


@pytest.mark.parametrize("where", [None, (1, 0)], ids=["there", "host"])
@each_kind
def test_a_copy_is_made_once_the_work_is_done(kind, where):
    array = full(kind)
    interop_demo.scale_(array, 2, stream=SIM.stream())
    capsule = array.__dlpack__(dl_device=where, copy=True, max_version=(1, 0))
    assert on_host(interop_demo.asarray(capsule)).tolist() == [[5.0] * 4] * 3


def test_what_numpy_cannot_have_of_a_device():
    """The message is about the requested array and suggests a remedy; NumPy's is about an internal struct."""
    own = full("cuda")
    array = interop_demo._exported(own)
    for without in (array, array[:0], own):
        with pytest.raises(ArrayError, match=r"__array__.*CUDA.*from_dlpack"):
            np.asarray(without)


@pytest.mark.parametrize("kind", ["cuda", "pool"])
def test_no_buffer_of_device_memory(kind):
    array = full(kind)
    for use in (memoryview, bytes):
        with pytest.raises(BufferError, match="`device`: found .*CUDA.*memory that the host can reach"):
            use(array)


RECORDS = {
    "aligned": np.dtype([("a", "u1"), ("b", "<f4", (2, 3)), ("c", "<i8")], align=True),
    "packed": np.dtype([("a", "u1"), ("b", "<f8"), ("é", "<c16")]),
    "nested": np.dtype([("p", [("x", "<i4"), ("y", "|V3"), ("z", "|b1")], (2,)), ("q", "<f2")]),
}


@pytest.mark.parametrize("dtype", RECORDS.values(), ids=RECORDS)
def test_records_have_names_and_places(dtype):
    """Through the interface dict, which alone can describe them; NumPy reads its own records back from the buffer."""
    array = full("managed", (4 * dtype.itemsize,), 0, "|u1")
    values = np.asarray(array).view(dtype)
    for name in dtype.names:
        field = values[name]
        if field.dtype.names is None:
            field[...] = np.arange(field.size).reshape(field.shape)

    class Records:
        __cuda_array_interface__ = {
            "shape": (4,),
            "typestr": f"|V{dtype.itemsize}",
            "descr": dtype.descr,
            "data": (values.ctypes.data, False),
            "version": 3,
        }

    records = interop_demo.asarray(Records())
    found = np.asarray(records)
    assert found.dtype.itemsize == dtype.itemsize
    assert {name: found.dtype.fields[name] for name in dtype.names} == dict(dtype.fields)
    assert [bytes(found[name]) for name in dtype.names] == [bytes(values[name]) for name in dtype.names]
    found[dtype.names[-1]] = 0
    assert not values[dtype.names[-1]].any()  # in place
    assert memoryview(records[::-2]).strides == (-2 * dtype.itemsize,)


@each_kind
def test_an_argument_that_must_be_where_the_host_can_reach_it(kind):
    image = full(kind, (2, 2, 3))
    if KINDS[kind] != (CUDA, 0):
        interop_demo.blur_(image, 1)
        assert interop_demo.edges(image).shape == (2, 2, 3)
        return
    wanted = r"allowed: CPU \(1\) or CUDAHost \(3\) or CUDAManaged \(13\); copy it to the host, .* \(from interop_demo.Array\)"
    for function in (lambda: interop_demo.blur_(image, 1), lambda: interop_demo.edges(image)):
        with pytest.raises(BufferError, match=r"`device`: found CUDA \(2\), ordinal 0, " + wanted):
            function()
