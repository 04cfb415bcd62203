"""Each resource is released once: the counters return to zero, and the memory use of the GPU and of the process does
not grow.
"""

import contextlib
import gc
import os
import threading

import driver
import interop_demo
import pytest

Array = interop_demo.Array
TRIPS = int(os.environ.get("TRIPS", "100000"))
KINDS = ("cuda", "pool", "pinned", "managed")


def resident():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled():
    gc.collect()
    return interop_demo.finish_releases()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["drop", "capsule", "import", "view", "thread"])
def test_every_way_to_an_end(kind, end):
    array = Array.full((64, 64), 1.0, device=kind)
    interop_demo.scale_(array, 2.0, stream=driver.stream())
    if end == "capsule":
        array.__dlpack__(max_version=(1, 0)), array.__dlpack__(max_version=(1, 0), stream=1)
    elif end == "import":
        held = interop_demo.asarray(array)
        del array, held
    elif end == "view":
        held = array[::2, ::3]
        del array
        assert interop_demo.checksum(held) == 2 * 32 * 22
        del held
    elif end == "thread":
        capsules = [array.__dlpack__(max_version=(1, 0)) for _ in range(8)]
        threads = [threading.Thread(target=capsules.pop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    array = None
    assert settled() == 0
    assert (interop_demo.live_exports(), interop_demo.live_allocations()) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", [False, True], ids=["primary current", "green current"])
def test_a_release_comes_after_work_in_a_green_context(kind, inside):
    """The memory belongs to the primary context, whichever context is current. Its event covers the work of the green
    context.
    """
    try:
        green, stream = driver.green_context()
    except (AttributeError, driver.DriverError) as error:
        pytest.skip(f"the driver or the device has no green contexts: {error}")
    with driver.current(green) if inside else contextlib.nullcontext():
        array = Array.full((64, 64), 1.0, device=kind)
        held = interop_demo.asarray(array)
        driver.sleep(stream, 200)
        del held
        assert interop_demo.poll_releases() == 1, "the stream of the green context is at work"
    driver.synchronize(stream)
    assert interop_demo.poll_releases() == 0
    del array
    assert settled() == 0
    assert (interop_demo.live_exports(), interop_demo.live_allocations()) == (0, 0)


def flat(work, rounds, device_slack=8 << 20, host_slack=24 << 20):
    """Runs `work` many times; the memory of the process and of the device may not grow."""
    for _ in range(rounds // 10):
        work()
    settled()
    before = driver.free_memory(), resident()
    for _ in range(rounds):
        work()
    assert settled() == 0
    after = driver.free_memory(), resident()
    assert before[0] - after[0] < device_slack, "memory of the device"
    assert after[1] - before[1] < host_slack, "memory of the process"


def test_many_trips_of_ours():
    array = Array.full((16,), 1.0, device="cuda")
    flat(lambda: interop_demo.asarray(array), TRIPS)


def test_many_trips_of_torch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    tensor = torch.ones(16, device="cuda")
    flat(lambda: torch.from_dlpack(interop_demo.asarray(tensor)), TRIPS)
    before = torch.cuda.memory_allocated()
    del tensor
    assert settled() == 0
    assert torch.cuda.memory_allocated() < before


def test_many_trips_of_cupy():
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    array = cupy.ones(16, dtype="float32")
    flat(lambda: cupy.from_dlpack(interop_demo.asarray(array)), TRIPS)


def test_many_trips_of_jax():
    jax = pytest.importorskip("jax", exc_type=ImportError)
    array = jax.numpy.ones(16, dtype="float32").block_until_ready()
    flat(lambda: interop_demo.asarray(array), TRIPS // 5)


def test_many_dicts():
    class Interface:
        pass

    array, interface = Array.full((16,), 1.0, device="cuda"), Interface()

    def work():
        interface.__cuda_array_interface__ = array.__cuda_array_interface__
        interop_demo.asarray(interface)

    flat(work, TRIPS // 2)


@pytest.mark.parametrize("kind", KINDS)
def test_many_allocations(kind):
    """Of 256 KiB each; each release costs a wait."""
    # The driver keeps managed memory that was freed, and returns about 120 MiB of it at once.
    rounds, slack = (TRIPS // 50, 192 << 20) if kind == "managed" else (TRIPS // 200, 8 << 20)

    def work():
        Array.full((1 << 16,), 1.0, device=kind)
        driver.synchronize()  # pool memory is filled and freed in stream order

    flat(work, rounds, slack)
