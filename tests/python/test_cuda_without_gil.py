"""Waits for a device release the GIL, on the simulated driver: other Python threads continue meanwhile."""

import ctypes

import interop_demo
import native
import numpy as np
import pytest
from capsules import CUDA_HOST
from scripts import run
from test_cuda_rules import Silent
from test_cuda_arrays import SIM, full, nothing_wrong, on_host, pytestmark  # noqa: F401

in_c = pytest.mark.skipif(native.missing() is not None, reason=f"the work of the host is in C and cannot be compiled: {native.missing()}")

WAYS = {
    "a copying argument": interop_demo.trace,
    "the same by its dict": lambda array: interop_demo.trace(type("D", (), {"__cuda_array_interface__": array.__cuda_array_interface__})()),
    "a copy for the host": lambda array: on_host(array).trace(),
    "a buffer": lambda array: np.array(memoryview(array)).trace(),
    "as host memory": lambda array: np.from_dlpack(HOSTED.pop()).trace(),
    "a buffer of that": lambda array: np.array(memoryview(HOSTED.pop())).trace(),
    "by its table": lambda array: interop_demo.checksum(HOSTED.pop()) / 3,
    "its attributes": lambda array: HOSTED.pop().size + 6,
    "new memory": lambda array: full("cuda").size + 3,
}
HOSTED = []


@in_c
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [1, "handle"])
def test_whoever_waits_for_a_device_lets_other_threads_run(way, stream):
    """Queued work may be a host function that needs the GIL: waiting while holding the GIL would deadlock."""
    probe = native.load("threads")
    # Allocating memory waits for the default stream.
    stream = SIM.stream() if stream == "handle" and way != "new memory" else 1
    array = full("cuda" if way == "a copy for the host" else "pinned", (3, 3))
    HOSTED[:] = [array.relabel_as_host()] if array.__dlpack_device__()[0] == CUDA_HOST else []
    interop_demo.scale_(array, 2, stream=stream)
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(stream), ctypes.c_void_p(probe.attachment()), None)
    assert WAYS[way](array) == 15.0
    assert probe.attachment(1) is False
    HOSTED.clear()


@in_c
@pytest.mark.parametrize(("kind", "wanted"), [("cuda", (1, 0)), ("pool", (1, 0))])
def test_a_copy_that_waits_lets_other_threads_run(kind, wanted):
    """The copy waits for the stream of the array, on which other work is pending. Copies on the device are queued, and
    copies of memory on which nothing is pending use a stream of their own.
    """
    probe, array = native.load("threads"), full(kind, (3, 3))
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)
    array.__dlpack__(copy=True, dl_device=wanted, max_version=(1, 0))
    assert probe.attachment(1) is False


@in_c
@pytest.mark.parametrize("kind", ["cuda", "pinned", "managed"])
@pytest.mark.parametrize("owner", ["an array", "a capsule", "a consumer"])
def test_memory_that_is_freed_lets_other_threads_run(kind, owner):
    """Before it frees the driver waits for all work of the device, also for work that was unrelated."""
    probe, array = native.load("threads"), full(kind)
    if owner == "a capsule":
        array = array.__dlpack__(max_version=(1, 0))
    elif owner == "a consumer":
        array = interop_demo.asarray(array)
    interop_demo.set_unordered(releases=True)
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)
    live = SIM.library.simulated_cuda_live(0)
    del array
    interop_demo.set_unordered()
    assert SIM.library.simulated_cuda_live(0) == live - 1
    assert probe.attachment(1) is False


@in_c
@pytest.mark.parametrize("way", [lambda: interop_demo._on_device(np.ones(3, "f4")), lambda: interop_demo.twice(full("cuda"))], ids=["argument", "result"])
def test_new_memory_of_a_device_lets_other_threads_run(way):
    """The driver waits for the default stream before it returns new memory, and before a copy from the host."""
    probe = native.load("threads")
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)
    way()
    assert probe.attachment(1) is False


@in_c
def test_new_memory_for_a_library_that_allocates_none_lets_other_threads_run():
    probe = native.load("threads")

    class Array:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        def __array_namespace__(self):
            """Asked after the argument has been waited for, and before the new memory is allocated."""
            SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)

    interop_demo._ones_like(Array(full("managed", (3, 3))))
    assert probe.attachment(1) is False


@in_c
@pytest.mark.parametrize("function", [interop_demo.edges, lambda image: interop_demo.blur_(image, 1)], ids=["edges", "blur_"])
def test_an_argument_that_the_host_works_on_lets_other_threads_run(function):
    probe, stream = native.load("threads"), SIM.stream()
    image = full("pinned", (2, 2, 3))
    interop_demo.scale_(image, 2, stream=stream)
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(stream), ctypes.c_void_p(probe.attachment()), None)
    function(image)
    assert probe.attachment(1) is False


@in_c
def test_work_for_a_library_that_names_no_stream_lets_other_threads_run():
    """Drivers before 12.5 cannot make a context wait. The host waits for the work on behalf of the library."""
    SIM.library.simulated_cuda_fail_next(b"cuCtxWaitEvent", 500)
    probe, array = native.load("threads"), Silent(None)
    SIM.call("cuLaunchHostFunc", ctypes.c_uint64(1), ctypes.c_void_p(probe.attachment()), None)
    interop_demo.scale_(array, 2)
    assert probe.attachment(1) is False


@pytest.mark.parametrize("kind", ["pinned", "managed"])
@pytest.mark.parametrize("stream", [1, "handle"])
def test_an_argument_that_the_host_works_on_is_waited_for(kind, stream):
    """The struct has no stream field, but its memory knows that a kernel still writes."""
    images = [full(kind, (1, 2, 3)) for _ in range(2)]
    for image in images:
        interop_demo.scale_(image[:, :1], 3, stream=SIM.stream() if stream == "handle" else stream)
    assert on_host(interop_demo.edges(images[0])).tolist() == [[[5.0] * 3] * 2]
    interop_demo.blur_(images[1], 1)
    assert on_host(images[1]).tolist() == [[[5.0] * 3] * 2]


def test_a_hold_that_waits_for_a_release_lets_other_threads_run():
    """Without an event for the whole context a release waits for the device, and a hold must not interrupt it."""
    said = run("""
        import ctypes
        import threading
        import time

        import interop_demo
        from test_cuda_arrays import SIM, full

        inside = threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def work(_):
            inside.set()
            time.sleep(0.2)  # the other thread asks for the hold

        array, stream = full("cuda"), SIM.stream()
        imported = interop_demo.asarray(array.__dlpack__(stream=stream, max_version=(1, 0)))
        SIM.call("cuLaunchHostFunc", ctypes.c_uint64(stream), work, None)
        SIM.library.simulated_cuda_fail_next(b"cuCtxRecordEvent", 500)
        del imported
        SIM.library.simulated_cuda_fail_next(b"cuCtxRecordEvent", 500)
        finish = threading.Thread(target=interop_demo.finish_releases)
        finish.start()
        inside.wait()
        with interop_demo.HoldReleases():
            pass
        finish.join()
        print(interop_demo.finish_releases())
    """)
    assert said == "0\n"


@pytest.mark.parametrize("then", ["interop_demo.poll_releases()", "del pooled", "imported(3)"])
def test_a_release_beside_a_hold_that_waits_does_not_wait_for_it(then):
    """One thread waits for a host function that needs the GIL, and a hold waits for that thread. The thread with the GIL
    must wait for neither.
    """
    said = run(f"""
        import ctypes
        import threading
        import time

        import interop_demo
        from test_cuda_arrays import SIM, full

        inside = threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def work(_):
            inside.set()
            time.sleep(0.5)

        def imported(count):
            return interop_demo.asarray(full("cuda", (count,)).__dlpack__(stream=stream, max_version=(1, 0)))

        def hold():
            with interop_demo.HoldReleases():
                pass

        stream = SIM.stream()
        first, second, pooled = imported(3), imported(3), full("pool", (1 << 19,))
        SIM.call("cuLaunchHostFunc", ctypes.c_uint64(stream), work, None)
        SIM.library.simulated_cuda_fail_next(b"cuCtxRecordEvent", 500)
        del first
        SIM.library.simulated_cuda_fail_next(b"cuCtxRecordEvent", 500)
        finish = threading.Thread(target=interop_demo.finish_releases)
        finish.start()
        inside.wait()
        holder = threading.Thread(target=hold)
        holder.start()
        time.sleep(0.2)
        del second
        {then}
        finish.join()
        holder.join()
        print(interop_demo.finish_releases())
    """)
    assert said == "0\n"
