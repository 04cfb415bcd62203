"""Copies of device arrays for a consumer, on the simulated driver: each layout, on the device, queued on the
consumer's stream.
"""

import contextlib
import ctypes
import random
import sys
import types

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, release, take
from test_cuda_arrays import SIM, Array, full, nothing_wrong, on_host, pytestmark  # noqa: F401

V1 = {"max_version": (1, 0)}
COPIES = ("cuMemcpyAsync", "cuLaunchKernel")
WAITS = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")


class ByInterface:
    """A part of an array's memory in another layout, with work pending on a stream."""

    def __init__(self, array, view, stream=None):
        self.array = array
        base = array.__cuda_array_interface__
        offset = view.__array_interface__["data"][0] - view.base.__array_interface__["data"][0] if view.base is not None else 0
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.dtype.str,
            "data": (base["data"][0] + offset, False),
            "version": 3,
        }
        if stream is not None:
            self.__cuda_array_interface__["stream"] = stream


def filled(count, dtype):
    """Returns a device array with distinct elements, and the same on the host."""
    array, host = full("cuda", (count,), 1, dtype), np.arange(count).astype(dtype)
    # `full` only queues the fill, which would overwrite what is written here.
    SIM.library.simulated_cuda_run_all()
    address = interop_demo.describe(array)["data"]
    place = SIM.library.simulated_cuda_translate(address, host.nbytes, 1)
    ctypes.memmove(place, host.tobytes(), host.nbytes)
    return array, host


def views(host, seed):
    """Yields views of a flat array that are permuted, sliced, stepped, flipped or repeated."""
    choose = random.Random(seed)
    shape = choose.choice([(3, 4, 5, 6), (60, 6), (8, 45), (360,), (2, 3, 2, 5, 6), (1, 360, 1)])
    view = host[:360].reshape(shape)
    view = view.transpose(choose.sample(range(view.ndim), view.ndim))
    for axis in range(view.ndim):
        step = choose.choice([1, 1, 1, 2, -1, -2])
        cut = [slice(None)] * view.ndim
        cut[axis] = slice(None, None, step) if step < 0 else slice(choose.choice([0, 0, 1]) if view.shape[axis] > 1 else 0, None, step)
        view = view[tuple(cut)]
    if choose.random() < 0.2:
        view = np.broadcast_to(view, (3, *view.shape))
    return view


def view_of(host, view):
    """Returns the view with its true base, because NumPy sometimes keeps another one."""
    start = view.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    return np.ndarray(view.shape, view.dtype, host.data, start, view.strides)


@pytest.mark.parametrize("dtype", ["|u1", "<f2", "<f4", "<f8"])
def test_random_layouts_are_copied_without_gaps_and_forwards(dtype):
    array, host = filled(400, dtype)
    for seed in range(80):
        view = views(host, seed)
        source = interop_demo.asarray(ByInterface(array, view_of(host, view), 1))
        before = [SIM.calls(name) for name in (*COPIES, *WAITS)]
        copy = interop_demo.asarray(source.__dlpack__(copy=True, stream=1, **V1), stream=1)
        made = [now - then for now, then in zip((SIM.calls(name) for name in (*COPIES, *WAITS)), before, strict=True)]
        assert (sum(made[:2]), sum(made[2:])) == (1, 0), (seed, made)
        facts = interop_demo.describe(copy)
        assert facts["shape"] == view.shape
        # Repeated elements stay repeated; the others are without gaps.
        kept = [(abs(stride), extent) for stride, extent in zip(facts["strides"], facts["shape"], strict=True)]
        assert all(stride >= 0 for stride in facts["strides"])
        expected = 1
        for stride, extent in sorted(axis for axis in kept if axis[1] > 1 and axis[0]):
            assert stride == expected, (seed, facts, view.strides)
            expected *= extent
        assert not facts["readonly"]
        assert on_host(copy).tolist() == view.tolist(), seed
        # A copy to the host is contiguous, whatever the layout.
        assert on_host(source).tolist() == view.tolist(), seed


def test_the_order_of_the_axes_stays():
    array, host = filled(24, "<f4")
    view = view_of(host, host.reshape(2, 3, 4).transpose(2, 0, 1)[:, ::-1])
    copy = interop_demo.asarray(interop_demo.asarray(ByInterface(array, view, 1)).__dlpack__(copy=True, stream=1, **V1))
    assert copy.strides == (4, 48, 16)
    assert on_host(copy).tolist() == view.tolist()


def test_windows_that_overlap_are_copied_as_they_are_or_spelled_out():
    array, host = filled(10, "<f4")
    for strides in [(4, 4), (-4, 4)]:
        start = 0 if strides[0] > 0 else 24
        view = np.ndarray((5, 3), "<f4", host.data, start, strides)
        interface = {**ByInterface(array, view_of(host, view), 1).__cuda_array_interface__}

        class Windows:
            __cuda_array_interface__ = interface

        copy = interop_demo.asarray(interop_demo.asarray(Windows()).__dlpack__(copy=True, stream=1, **V1), stream=1)
        assert on_host(copy).tolist() == view.tolist()
        assert copy.strides == ((4, 4) if strides[0] > 0 else (12, 4))


@pytest.mark.parametrize("layout", ["compact", "transposed", "every second column"])
def test_the_host_does_not_wait(layout):
    """Work is pending on the array, and more is queued after the copy. The copy has the elements from between them."""
    first, second = SIM.stream(), SIM.stream()
    array = full("cuda", (4, 6), 1.0)
    array = {"compact": array, "transposed": interop_demo.asarray(Transposed(array)), "every second column": array[:, ::2]}[layout]
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(first))
    interop_demo.scale_(array, 2, stream=first)
    waits = SIM.calls(*WAITS)
    capsule = array.__dlpack__(copy=True, stream=second, **V1)
    assert SIM.calls(*WAITS) == waits
    assert SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin))
    interop_demo.scale_(array, 3, stream=first)
    copy = interop_demo.asarray(capsule, stream=second)
    assert interop_demo.checksum(copy, stream=second) == 2 * np.prod(array.shape)
    assert interop_demo.checksum(array) == 6 * np.prod(array.shape)


class Transposed:
    def __init__(self, array):
        self.array, base = array, array.__cuda_array_interface__
        shape, (data, _) = base["shape"], base["data"]
        strides = tuple(4 * stride for stride in (1, shape[1]))
        self.__cuda_array_interface__ = {**base, "shape": shape[::-1], "strides": strides, "data": (data, False)}


@pytest.mark.parametrize("unordered", [False, True])
def test_memory_comes_from_the_pool_and_goes_back_in_order(unordered):
    """The simulated driver reports pool memory that is freed before its last use has run."""
    array, stream = full("cuda", (4, 6), 1.0), SIM.stream()
    interop_demo.scale_(array, 2, stream=stream)
    pool, plain, frees = SIM.calls("cuMemAllocFromPoolAsync"), SIM.calls("cuMemAlloc_v2"), SIM.calls("cuMemFreeAsync")
    copy = interop_demo.asarray(array.__dlpack__(copy=True, stream=stream, **V1), stream=stream)
    assert (SIM.calls("cuMemAllocFromPoolAsync") - pool, SIM.calls("cuMemAlloc_v2") - plain) == (1, 0)
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(stream))
    interop_demo.scale_(copy, 2, stream=stream)
    if unordered:
        SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))
        SIM.call("cuStreamSynchronize", ctypes.c_uint64(stream))
    interop_demo.set_unordered(releases=unordered)
    waits = SIM.calls(*WAITS)
    del copy
    interop_demo.set_unordered()
    assert SIM.calls(*WAITS) == waits
    if not unordered:
        # The release of the copy is deferred; its memory is not accessed after it has been released.
        SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))
        assert interop_demo.finish_releases() == 0
        assert SIM.calls("cuMemFreeAsync") - frees == 1


def test_a_copy_that_nobody_takes_goes_back_behind_its_work():
    """The next copy reuses its memory without a wait."""
    array, stream = full("cuda", (4, 6), 1.0), SIM.stream()
    interop_demo.scale_(array, 2, stream=stream)
    array.__dlpack__(copy=True, stream=stream, **V1)
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(stream))
    frees, waits = SIM.calls("cuMemFreeAsync"), SIM.calls(*WAITS)
    for round in range(1, 4):
        array.__dlpack__(copy=True, stream=stream, **V1)
        assert (SIM.calls("cuMemFreeAsync") - frees, SIM.calls(*WAITS) - waits) == (round, 0)
        assert interop_demo.pending_releases() == 0
    assert SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin))
    SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))


def taken(array, stream):
    """Takes a copy for a stream, and drops it."""
    release(take(array.__dlpack__(copy=True, stream=stream, **V1)))


def test_a_copy_that_was_taken_waits_for_all_work():
    array, stream = full("cuda", (512, 1024), 1.0), SIM.stream()
    taken(array, stream)
    interop_demo.finish_releases()
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(SIM.stream()))
    taken(array, stream)
    assert interop_demo.pending_releases() == 1
    SIM.library.simulated_cuda_release_spin(ctypes.c_uint64(spin))


def test_the_original_of_a_copy_is_not_free_before_the_copy():
    """The copy is on another stream than the array, which is dropped at once."""
    stream = SIM.stream()
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(stream))
    array = full("pool", (512, 1024), 1.0)
    copy = take(array.__dlpack__(copy=True, stream=stream, **V1))
    del array
    assert SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin))
    SIM.library.simulated_cuda_run_all()
    release(copy)
    assert SIM.reports() == []


def test_a_device_without_a_pool_gives_plain_memory():
    array = full("cuda", (4, 6), 1.0)
    for stream in (1, -1):
        SIM.library.simulated_cuda_fail_next(b"cuMemAllocFromPoolAsync", 801)
        copy = interop_demo.asarray(array.__dlpack__(copy=True, stream=stream, **V1))
        assert on_host(copy).tolist() == [[1.0] * 6] * 4


@pytest.mark.parametrize("stream", [1, -1])
def test_no_room_for_a_copy_says_how_much_it_takes(stream):
    array = full("cuda", (4, 6), 1.0)
    interop_demo.scale_(array, 2, stream=1)
    for _ in range(2):  # the second attempt comes after a trim of the pools
        SIM.library.simulated_cuda_fail_next(b"cuMemAllocFromPoolAsync", 2)
    with pytest.raises(interop_demo.ArrayError, match="96 bytes of free memory"):
        array.__dlpack__(copy=True, stream=stream, **V1)


def test_no_room_for_the_step_in_between():
    """A copy for the host is gathered in this memory."""
    array, host = filled(24, "<f4")
    source = interop_demo.asarray(Transposed(interop_demo.asarray(ByInterface(array, host.reshape(4, 6)))))
    launches = SIM.calls("cuLaunchKernel")
    SIM.library.simulated_cuda_fail_next(b"cuMemAllocFromPoolAsync", 2)
    assert on_host(source).tolist() == host.reshape(4, 6).T.tolist()
    assert SIM.calls("cuLaunchKernel") == launches


def test_a_copy_for_a_stream_that_captures_is_made_at_once():
    """The copy is not part of the graph, and the capture stays valid."""
    array, stream, graph = full("cuda", (4, 6), 1.0), SIM.stream(), ctypes.c_uint64()
    SIM.call("cuStreamBeginCapture_v2", ctypes.c_uint64(stream), 0)
    with interop_demo.HoldReleases():
        copy = interop_demo.asarray(array[:, ::2].__dlpack__(copy=True, stream=stream, **V1), stream=-1)
    SIM.call("cuStreamEndCapture", ctypes.c_uint64(stream), ctypes.byref(graph))
    SIM.call("cuGraphDestroy", graph)
    assert copy.__dlpack_device__() == (CUDA, 0)
    assert on_host(copy).tolist() == [[1.0] * 3] * 4


def test_a_source_whose_own_stream_captures_is_refused():
    array, stream, graph = full("cuda", (4, 6), 1.0), SIM.stream(), ctypes.c_uint64()
    interop_demo.scale_(array, 1, stream=stream)
    SIM.call("cuStreamBeginCapture_v2", ctypes.c_uint64(stream), 0)
    with pytest.raises(interop_demo.ArrayError, match="graph"):
        array.__dlpack__(copy=True, stream=1, **V1)
    SIM.call("cuStreamEndCapture", ctypes.c_uint64(stream), ctypes.byref(graph))
    SIM.call("cuGraphDestroy", graph)


def kept():
    """An array whose library may use it on any stream. Whoever gets it waits for all work of the context."""
    return interop_demo.asarray(full("cuda", (4, 6), 1.0))


@contextlib.contextmanager
def capture(stream):
    """Captures a graph, which must be good in the end."""
    graph = ctypes.c_uint64()
    SIM.call("cuStreamBeginCapture_v2", ctypes.c_uint64(stream), 0)
    yield
    SIM.call("cuStreamEndCapture", ctypes.c_uint64(stream), ctypes.byref(graph))
    SIM.call("cuGraphDestroy", graph)


@pytest.mark.parametrize(
    "use",
    [
        lambda array, stream: interop_demo.describe(array, stream=stream),
        lambda array, stream: array.__dlpack__(stream=stream, **V1),
        lambda array, stream: array.__dlpack__(stream=stream, copy=True, **V1),
    ],
    ids=["describe", "export", "copy"],
)
def test_what_waits_for_all_work_is_refused_before_it_spoils_the_capture(use):
    array, stream = kept(), SIM.stream()
    with capture(stream), pytest.raises(interop_demo.ArrayError, match="graph"):
        use(array, stream)


@pytest.mark.parametrize(
    "use",
    [
        lambda array: array.__cuda_array_interface__,
        lambda array: array.__dlpack__(copy=True, **V1),
        lambda array: interop_demo.describe(array),
    ],
    ids=["dict", "copy", "describe"],
)
def test_a_library_that_was_never_seen_is_asked_for_its_capture(use, monkeypatch):
    array, stream = kept(), SIM.stream()
    current = types.SimpleNamespace(get_current_stream=lambda ordinal: types.SimpleNamespace(ptr=stream))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=current))
    with capture(stream), pytest.raises(interop_demo.ArrayError, match="graph"):
        use(array)


def test_faults_leave_nothing_behind():
    array, second = full("cuda", (40, 60), 1.0), SIM.stream()
    interop_demo.scale_(array, 2, stream=SIM.stream())
    source = interop_demo.asarray(Transposed(array))[:, 1:]
    interop_demo.scale_(source, 1, stream=SIM.stream())
    for name in ("cuMemAllocFromPoolAsync", "cuLaunchKernel", "cuStreamWaitEvent"):
        for after in range(3):
            for _ in range(after):
                SIM.library.simulated_cuda_fail_next(name.encode(), 0)
            SIM.library.simulated_cuda_fail_next(name.encode(), 999)
            try:
                source.__dlpack__(copy=True, stream=second, **V1)
            except interop_demo.ArrayError as error:
                assert name in str(error)
            else:
                # The call is made fewer times than that.
                SIM.library.simulated_cuda_clear_faults()
    assert interop_demo.checksum(array) == 2 * 2400
