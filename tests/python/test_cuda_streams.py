"""Functions on arrays of libraries whose threads have a current stream, on the simulated driver.

The driver reports every pair of accesses that nothing orders. So one call shows what a busy GPU shows in some of many.
"""

import contextlib
import ctypes
import gc
import threading

import interop_demo
import numpy as np
import pytest
import streamed_library
from simulation import Simulation
from streamed_library import ASSUMED, LEARNED, Stream, installed

SIM = Simulation()
pytestmark = pytest.mark.skipif(
    SIM.library is None, reason="the simulated driver is not found; `cargo xtask test python` runs this file with it"
)
COUNT = 6
POINTER, ARRAY_ERROR = "cuPointerGetAttributes", interop_demo.ArrayError


@pytest.fixture(autouse=True)
def nothing_wrong(nothing_leaks):
    """Checks that nothing raced."""
    yield
    gc.collect()
    assert interop_demo.finish_releases() == 0
    SIM.library.simulated_cuda_run_all()
    assert SIM.reports() == []


@pytest.fixture
def library(request):
    library = streamed_library.library(request.param)
    with installed(library):
        yield library


def each(names):
    return pytest.mark.parametrize("library", names, indirect=True)


each_library = each([*LEARNED, *ASSUMED])
each_learned = each(list(LEARNED))


@pytest.fixture(params=["default stream", "side stream"])
def stream(request, library):
    stream = library.default if request.param == "default stream" else library.new_stream()
    with library.using(stream):
        yield stream


def calls(action):
    """The number of driver calls of an action, and its result."""
    SIM.library.simulated_cuda_reset_calls()
    result = action()
    return SIM.library.simulated_cuda_calls(None), result


def read(array):
    """The elements, whether the library knows the array or it is ours."""
    return array.tolist() if isinstance(array, streamed_library.Array) else np.from_dlpack(array, device="cpu").tolist()


def warm_up(library):
    """Loads the kernels, and sees the library for the first time."""
    interop_demo.scale_(library.array([0.0] * COUNT), 1.0)
    interop_demo.checksum(library.array([0.0] * COUNT))
    gc.collect()
    interop_demo.finish_releases()


@each_library
def test_in_place(library, stream):
    array = library.array([1.0] * COUNT)
    for value in (2.0, 3.0):
        array.fill_(value)
        interop_demo.scale_(array, 10.0)
        assert array.tolist() == [10 * value] * COUNT


@each_library
def test_a_sum(library, stream):
    array = library.array([1.0] * COUNT)
    array.fill_(3.0)
    assert interop_demo.checksum(array) == 3.0 * COUNT
    array.fill_(4.0)
    assert array.tolist() == [4.0] * COUNT


@each_library
def test_a_result(library, stream):
    array = library.array([1.0] * COUNT)
    array.fill_(4.0)
    result = interop_demo.twice(array)
    array.fill_(5.0)
    assert (read(result), array.tolist()) == ([8.0] * COUNT, [5.0] * COUNT)
    # The memory of the result is used again at once, in stream order.
    del result
    assert library.array([6.0] * COUNT).tolist() == [6.0] * COUNT


@each_library
def test_the_memory_is_used_again_at_once(library, stream):
    """The pool does not wait for the functions."""
    for value in (1.0, 2.0, 3.0):
        array = library.array([value] * COUNT)
        interop_demo.scale_(array, 2.0)
        del array
        later = library.array([value] * COUNT)
        later.fill_(7.0)
        assert later.tolist() == [7.0] * COUNT
        del later
        interop_demo.finish_releases()


@each_learned
def test_only_the_pointer_is_asked_about(library, stream):
    """A kernel on one array adds its launch alone. The library gets its memory back at once."""
    warm_up(library)
    array = library.array([1.0] * COUNT)
    calls(lambda: interop_demo.scale_(array, 2.0))
    assert SIM.calls(POINTER) == SIM.calls("cuLaunchKernel") == 1
    assert SIM.calls("cuEventRecord", "cuStreamWaitEvent", "cuCtxRecordEvent", "cuCtxWaitEvent") == 0
    assert interop_demo.pending_releases() == 0


@each_learned
def test_the_import_and_the_release(library, stream):
    """The stream of a dict is asked for its context, which must be the memory's, and whether it captures."""
    warm_up(library)
    array = library.array([0.0] * COUNT)
    found, _ = calls(lambda: interop_demo.describe(array))
    of_numba = SIM.calls("cuStreamGetCtx", "cuStreamIsCapturing") if library.module.startswith("numba") else 0
    # `describe` asks which default stream is meant.
    of_describe = 0 if stream.ptr else SIM.calls("cuCtxGetCurrent")
    assert (found - of_numba - of_describe, SIM.calls(POINTER)) == (1, 1) and of_numba <= 2


@each(["torch", "torch without a table", "cupy"])
def test_an_argument_that_is_the_result(library, stream):
    """In and out again, on the same stream: only the pointer is asked about."""
    warm_up(library)
    array = library.array([1.0] * COUNT)
    del interop_demo._as_it_came(array).block
    interop_demo.finish_releases()
    found, result = calls(lambda: interop_demo._as_it_came(array))
    assert (found, SIM.calls(POINTER)) == (1, 1)
    assert type(result) is library.Array and result.address == array.address


@each(["torch", "torch without a table", "cupy"])
def test_functions_in_a_graph(library):
    """They replay with the inputs of that time, and what is freed in the capture stays the graph's."""
    warm_up(library)
    array, out = library.array([1.0] * COUNT), library.array([0.0] * COUNT)
    interop_demo.twice(array)
    parked = library.array([0.0] * COUNT)
    with library.using(library.new_stream()):
        interop_demo.asarray(parked)  # its release is pending during the capture
    with library.capture() as graph:
        for _ in range(5):
            interop_demo.scale_(array, 2.0)
            gc.collect()
        result = interop_demo.twice(array)
        out.copy_(result)
        del result
        other = interop_demo.twice(array)
        interop_demo.scale_(other, 3.0)
    assert type(other) is library.Array
    for value in (1.0, 3.0):
        array.fill_(value)
        graph.replay(library.current())
        assert out.tolist() == [64 * value] * COUNT
        assert array.tolist() == [32 * value] * COUNT
        assert other.tolist() == [192 * value] * COUNT


@each(["torch", "cupy"])
def test_another_thread_exports_during_a_capture(library):
    warm_up(library)
    array, ours = library.array([1.0] * COUNT), interop_demo.Array.full((COUNT,), 1.0, device="cuda")
    stop, errors = threading.Event(), []

    def export():
        with library.using(library.new_stream()):
            while not stop.is_set():
                try:
                    ours.__dlpack__(stream=library.current().ptr, max_version=(1, 0))
                    other = library.array([1.0] * COUNT)
                    interop_demo.scale_(other, 2.0)
                    del other
                except Exception as error:
                    errors.append(error)
                    return

    thread = threading.Thread(target=export)
    thread.start()
    try:
        for value in range(20):
            # The release of an array that another thread exports would spoil the capture, which nothing shows there.
            with interop_demo.HoldReleases(), library.capture(streamed_library.THREAD_LOCAL) as graph:
                interop_demo.scale_(array, 2.0)
            array.fill_(value)
            graph.replay(library.current())
            assert array.tolist() == [2.0 * value] * COUNT
    finally:
        stop.set()
        thread.join()
    assert errors == []


def test_arrays_of_several_libraries():
    """A result of one library is the argument of the next, each on a stream of its own."""
    libraries = [streamed_library.library(name) for name in ("torch", "cupy", "numba", "warp", "silent")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(installed(*libraries))
        for each in libraries:
            stack.enter_context(each.using(each.new_stream()))
        for first in libraries:
            array = first.array([1.0] * COUNT)
            array.fill_(2.0)
            kept = interop_demo.asarray(array)
            for second in libraries:
                if not hasattr(second.Array, "__dlpack__"):
                    continue
                view = second.from_dlpack(kept)
                interop_demo.scale_(view, 2.0)
                assert view.tolist()[0] == 2.0 * 2 ** (1 + libraries.index(second) - (libraries.index(second) > 2))
                del view
            del kept
        gc.collect()


@each_library
def test_threads_have_streams_of_their_own(library):
    array, errors = library.array([1.0] * COUNT), []
    library.default.synchronize()

    def work(value):
        try:
            with library.using(library.new_stream()):
                for step in range(20):
                    own = library.array([value] * COUNT)
                    interop_demo.scale_(own, float(step))
                    assert own.tolist() == [value * step] * COUNT
                    del own
                assert interop_demo.checksum(array) == COUNT
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@each(["cupy", "numba", "warp"])
def test_a_kept_array_outlives_its_stream(library):
    """Its number belongs to another stream then."""
    SIM.library.simulated_cuda_set_reuse(1)
    try:
        array = library.array([0.0] * COUNT)
        with library.using(library.new_stream()) as stream:
            array.fill_(2.0)
            kept = interop_demo.asarray(array)
        number = stream.ptr
        del stream
        library.local.stream = library.default
        gc.collect()
        again = Stream(streamed_library.NON_BLOCKING)
        assert interop_demo.checksum(kept) == 2.0 * COUNT
        interop_demo.scale_(kept, 2.0)
        assert library.array([1.0]).tolist() == [1.0]
        assert array.tolist() == [4.0] * COUNT
        del kept, again, number
        interop_demo.poll_releases()
    finally:
        SIM.library.simulated_cuda_set_reuse(0)


@each(["torch", "cupy"])
def test_an_array_that_was_kept_on_another_stream(library):
    """The library writes on one stream, we read on another, and the other way round."""
    array = library.array([1.0] * COUNT)
    with library.using(library.new_stream()):
        array.fill_(2.0)
        kept = interop_demo.asarray(array)
    interop_demo.scale_(kept, 3.0)
    assert interop_demo.checksum(kept) == 6.0 * COUNT
    with library.using(library.new_stream()):
        assert library.from_dlpack(kept).tolist() == [6.0] * COUNT


@each_library
def test_the_library_goes_on_with_an_array_that_was_kept(library, stream):
    """It writes and reads on any stream, without a word to the object."""
    array = library.array([1.0] * COUNT)
    kept = interop_demo.asarray(array)
    for value in (2.0, 3.0):
        with library.using(library.new_stream()):
            array.fill_(value)
            assert interop_demo.checksum(kept) == value * COUNT
            array.fill_(value + 1.0)
            interop_demo.scale_(kept, 10.0)
            assert array.tolist() == [10.0 * (value + 1.0)] * COUNT
        array.fill_(value + 2.0)
        assert read(kept) == [value + 2.0] * COUNT


@each_library
def test_a_result_like_our_own_object(library, stream):
    array = library.array([1.0] * COUNT)
    kept = interop_demo.asarray(array)
    array.fill_(4.0)
    result = interop_demo.twice(kept)
    assert (type(result), read(result)) == (type(kept), [8.0] * COUNT)
    again = interop_demo.twice(result)
    interop_demo.scale_(result, 0.5)
    assert (read(again), read(result)) == ([16.0] * COUNT, [4.0] * COUNT)


@each(["torch", "cupy"])
def test_an_import_that_is_kept_in_a_capture_is_refused(library):
    warm_up(library)
    array = library.array([1.0] * COUNT)
    with library.capture() as graph:
        with pytest.raises(ARRAY_ERROR, match="captur"):
            interop_demo.asarray(array)
        interop_demo.scale_(array, 2.0)
    array.fill_(2.0)
    graph.replay(library.current())
    assert array.tolist() == [4.0] * COUNT


@each(["torch", "cupy"])
def test_an_import_without_a_wait_in_a_capture(library):
    """The issue's case: an array is imported once, its release is pending, and it is imported with the stream -1."""
    warm_up(library)
    array, side = library.array([1.0] * COUNT), library.new_stream()
    kept = interop_demo.asarray(array, stream=side.ptr)
    side.synchronize()
    with library.using(side), library.capture():
        found, again = calls(lambda: interop_demo.asarray(array, stream=-1))
        assert found == SIM.calls(POINTER) == 1
        del again
    del kept


@pytest.mark.parametrize("library", ["cupy"], indirect=True)
def test_a_library_that_cannot_tell_its_stream(library):
    """Then its stream is unknown, and `__dlpack__` orders as before."""
    import cupy

    def fails(_ordinal=0):
        raise RuntimeError("no stream today")

    cupy.cuda.get_current_stream = fails
    with library.using(library.new_stream()):
        array = library.array([1.0] * COUNT)
        array.fill_(3.0)
        interop_demo.scale_(array, 2.0)
        assert array.tolist() == [6.0] * COUNT


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("library", ["cupy"], indirect=True)
def test_an_interrupt_while_the_stream_is_asked(library, error):
    import cupy

    array = library.array([1.0] * COUNT)

    def fails(_ordinal=0):
        raise error

    cupy.cuda.get_current_stream = fails
    with pytest.raises(error):
        interop_demo.scale_(array, 2.0)


@each(["torch", "cupy", "warp"])
def test_a_host_function_waits_for_the_work(library, stream):
    """An owned copy on the host has what the library wrote."""
    array = library.array([1.0] * COUNT)
    array.fill_(9.0)
    assert interop_demo.checksum(array) == 9.0 * COUNT


@each(["torch", "cupy"])
def test_nested_calls(library, stream):
    """A function that calls the library, which calls a function, on another stream."""
    array = library.array([1.0] * COUNT)
    with library.using(library.new_stream()) as inner:
        inner.wait_for(stream)
        array.fill_(2.0)
        interop_demo.scale_(array, 2.0)
        with library.using(stream):
            stream.wait_for(inner)
            interop_demo.scale_(array, 2.0)
            assert array.tolist() == [8.0] * COUNT


@each(["torch", "cupy"])
def test_a_call_back_into_python(library, stream):
    """While a kernel is queued by a function that has not returned, only its own stream may use the array."""
    array, other = library.array([1.0] * COUNT), library.new_stream()

    def on_another_stream():
        with library.using(other):
            for function in (lambda: interop_demo.scale_(array, 5.0), lambda: interop_demo.checksum(array)):
                with pytest.raises(ARRAY_ERROR, match="a writer of 0x"):
                    function()

    def back():
        on_another_stream()
        interop_demo.scale_(array, 3.0, then=on_another_stream)
        assert interop_demo.checksum(array) == 6.0 * COUNT

    interop_demo.scale_(array, 2.0, then=back)
    with pytest.raises(ZeroDivisionError):
        interop_demo.scale_(array, 2.0, then=lambda: 1 / 0)
    with library.using(other):
        other.wait_for(stream)
        interop_demo.scale_(array, 0.5)
        assert interop_demo.checksum(array) == 6.0 * COUNT


@each(["torch", "cupy"])
def test_a_result_outlives_its_stream(library):
    with library.using(library.new_stream()):
        result = interop_demo.twice(library.array([1.0] * COUNT))
        values = result.tolist()
    gc.collect()
    assert values == result.tolist() == [2.0] * COUNT
    del result
    gc.collect()


@each(["numba", "cupy"])
def test_a_loop_holds_no_memory(library, stream):
    """Not one release waits, whatever is pending."""
    warm_up(library)
    busy = Stream(streamed_library.NON_BLOCKING)
    spin = SIM.library.simulated_cuda_spin(busy.ptr)
    array = library.array([1.0] * COUNT)
    for _ in range(1000):
        interop_demo.scale_(array, 1.0)
        assert interop_demo.pending_releases() == 0
    SIM.library.simulated_cuda_release_spin(spin)
    busy.synchronize()


@pytest.mark.parametrize("library", ["numba"], indirect=True)
def test_a_dict_whose_stream_is_of_another_device(library):
    """Our work cannot be on it. It waits for it, and comes before all later work."""
    first, second = streamed_library.CONTEXT, streamed_library.made("cuDevicePrimaryCtxRetain", ctypes.c_int(1))
    array = library.array([1.0] * COUNT)
    streamed_library.call("cuCtxSetCurrent", second)
    far = Stream.__new__(Stream)
    far.owned, far.ptr = True, streamed_library.made("cuStreamCreate", streamed_library.NON_BLOCKING)
    streamed_library.call("cuCtxSetCurrent", first)
    with library.using(far):
        interop_demo.scale_(array, 2.0)
    assert array.tolist() == [2.0] * COUNT


def test_memory_whose_deleter_waits(monkeypatch):
    """As that of tensors of other processes: it waits for the current stream of the thread that drops it."""
    library = streamed_library.library("torch")
    freed = []

    class Block(streamed_library.Block):
        def __del__(self):
            library.current().synchronize()
            freed.append(threading.get_ident())
            super().__del__()

    monkeypatch.setattr(library, "block", lambda nbytes: Block(library, nbytes))
    with library.using(library.new_stream()):
        array = library.array([1.0] * COUNT)
        result = interop_demo.twice(array)
        kept = interop_demo.asarray(array)
        del array
        assert result.tolist() == [2.0] * COUNT and freed == []
        holder = [kept]
        del kept
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        interop_demo.finish_releases()
        gc.collect()
        assert len(freed) == 1


def test_pinned_memory_that_the_host_writes_at_once():
    """Its kernel is done when the function returns, because no stream orders the host."""
    array = interop_demo.Array.full((COUNT,), 1.0, device="pinned")

    class Pinned:
        """As PyTorch's pinned tensors: no stream is told."""

        __module__ = "torch"

        def __dlpack_device__(self):
            return array.__dlpack_device__()

        def __dlpack__(self, **wishes):
            return array.__dlpack__(**{**wishes, "stream": -1})

    view = np.from_dlpack(array)
    for value in (2.0, 3.0):
        view[:] = value
        interop_demo.scale_(Pinned(), 2.0)
        assert view.tolist() == [2 * value] * COUNT


@each(["cupy"])
def test_a_global_that_outlives_its_stream(library):
    """An argument in a global of Rust must be kept; the releases of all threads use no stream of the library."""
    array = library.array([1.0] * COUNT)
    kept = []
    for value in range(5):
        with library.using(library.new_stream()):
            array.fill_(value)
            kept.append(interop_demo.asarray(array))
        gc.collect()
    library.default.synchronize()
    assert {interop_demo.describe(each)["stream"] for each in kept} == {1}
    assert interop_demo.checksum(kept[0]) == 4.0 * COUNT
