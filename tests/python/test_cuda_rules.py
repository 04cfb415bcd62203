"""Rules about streams, devices and owners that need a driver, on the simulated one."""

import ctypes
import gc
import weakref

import interop_demo
import native
import pytest
from capsules import CUDA
from test_cuda_sim import SIM, full, nothing_wrong, on_host, pytestmark  # noqa: F401


def pending(spin):
    return bool(SIM.library.interop_sim_is_pending(ctypes.c_uint64(spin)))


def current_device():
    ordinal = ctypes.c_int(-1)
    SIM.call("cuCtxGetDevice", ctypes.byref(ordinal))
    return ordinal.value


def test_every_stream_with_pending_work_is_waited_for():
    """R140: work on an array in two streams, which its export joins, and a dict that names no stream at all."""
    first, second, third, ours = (SIM.stream() for _ in range(4))
    array = full("cuda")
    spins = [SIM.library.interop_sim_spin(first)]
    interop_demo.scale_(array, 2, stream=first)
    spins.append(SIM.library.interop_sim_spin(second))
    interop_demo.scale_(array, 2, stream=second)
    array.__dlpack__(stream=third, max_version=(1, 0))
    later = SIM.library.interop_sim_spin(first)
    # The driver does what the third stream waits for, and no more.
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(third))
    assert [pending(spin) for spin in (*spins, later)] == [False, False, True]

    class SaysNothing:
        __cuda_array_interface__ = {**array.__cuda_array_interface__, "version": 2}

    SaysNothing.__cuda_array_interface__.pop("stream")
    spins = [later, SIM.library.interop_sim_spin(second)]
    interop_demo.describe(SaysNothing(), stream=ours)
    later = SIM.library.interop_sim_spin(second)
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(ours))
    assert [pending(spin) for spin in (*spins, later)] == [False, False, True]
    SIM.library.interop_sim_release_spin(ctypes.c_uint64(later))


class OnItsDevice:
    """An array of the second device, which looks at the device that is current when it is asked."""

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
def test_a_producer_is_asked_with_its_device_current(fails):
    """R143: and the caller finds the device that it had, also after an error."""
    producer = OnItsDevice(fails)
    assert current_device() == 0
    if fails:
        with pytest.raises(RuntimeError, match="the producer fails"):
            interop_demo.describe(producer)
    else:
        assert interop_demo.describe(producer)["device"] == (CUDA, 1)
    assert set(producer.seen) == {1}
    assert current_device() == 0


@pytest.mark.skipif(native.missing() is not None, reason=f"a module in C is compiled: {native.missing()}")
def test_the_exchange_table_waits_for_nothing():
    """R174: work that is pending stays so; that what comes next on the current stream comes after it is no wait."""
    c = native.load("handwritten")
    array, stream = full("cuda"), SIM.stream()
    spin = SIM.library.interop_sim_spin(stream)
    interop_demo.scale_(array, 2, stream=stream)
    waits = [f"cu{what}Synchronize" for what in ("Stream", "Event", "Ctx")]
    before = SIM.calls(*waits)
    c.table_import(array, array)
    c.table_borrow(array, array)
    assert SIM.calls(*waits) == before
    assert pending(spin)
    SIM.library.interop_sim_release_spin(ctypes.c_uint64(spin))


def test_a_dict_that_owns_the_memory_is_kept():
    """Bug 42: a property that makes a temporary array, which nothing but the dict keeps alive."""

    class Owning(dict):
        """A dict that takes weak references and can keep something."""

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
