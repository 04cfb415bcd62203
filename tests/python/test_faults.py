"""Each step fails once: an allocation of Python's, a call into the producer.

Nothing crashes, nothing leaks, and a consumed capsule is released once.
"""

import gc
import itertools

import interop_demo
import numpy as np
import pytest
from capsules import Tensor

Array = interop_demo.Array
SOURCE = np.ones((2, 2, 3), "f4")


class Producer:
    def __dlpack__(self, **wishes):
        return SOURCE.__dlpack__(**wishes)

    def __dlpack_device__(self):
        return (1, 0)


class Old:
    """A producer that does not know `max_version`, so it is called twice."""

    def __dlpack__(self, stream=None):
        return SOURCE.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


def refused(array):
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))


WORK = {
    "versioned": lambda array: array.__dlpack__(max_version=(1, 0)),
    "legacy": lambda array: array.__dlpack__(),
    "copied": lambda array: array.__dlpack__(copy=True, max_version=(1, 0)),
    "refused": refused,
    "no interface": lambda array: hasattr(array, "__cuda_array_interface__"),
    "to numpy": np.from_dlpack,
    "by the table": interop_demo.asarray,
    "from numpy": lambda _: interop_demo.asarray(SOURCE),
    "from a producer": lambda _: interop_demo.describe(Producer()),
    "from an old one": lambda _: interop_demo.describe(Old()),
    "an argument": lambda _: interop_demo.edges(SOURCE),
    "a buffer": lambda array: memoryview(array),
    "bytes": lambda array: bytes(array),
    "attributes": lambda array: (array.shape, array.strides, array.dtype, len(array), repr(array)),
    "a slice": lambda array: array[:, ::2],
    "a new array": lambda _: Array.full((2, 3), 1.5, "<f8"),
    "a dict": lambda _: interop_demo.parse_cai({"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3}),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_every_allocation_of_pythons_fails_once(work, capfd):
    """If PyO3 fails instead, the error is another one, but there is an error."""
    faults = pytest.importorskip("_testcapi", reason="this Python has no `_testcapi`, which makes allocations fail")
    array = interop_demo.asarray(SOURCE)
    work(array)
    gc.collect()
    before = interop_demo.live_exports(), interop_demo.live_allocations()
    failures, good = 0, 0
    for step in itertools.count():
        error = None
        gc.disable()
        try:
            faults.set_nomemory(step, step + 1)
            try:
                work(array)
            except BaseException as raised:  # PyO3's panic is no ordinary exception
                error = raised
            finally:
                faults.remove_mem_hooks()
        finally:
            gc.enable()
        failures, good = failures + (error is not None), 0 if error is not None else good + 1
        del error
        assert (interop_demo.live_exports(), interop_demo.live_allocations()) == before, step
        if good == 20:  # the work ended before the allocation that would fail
            break
    assert failures or work is WORK["attributes"]
    capfd.readouterr()  # discards the output of PyO3


class Step(Exception):
    """The injected failure."""


class Fragile:
    """A producer that counts its steps and fails at one of them."""

    def __init__(self, form, fails_at):
        self.tensor, self.left = Tensor(form=form), fails_at

    def step(self):
        object.__setattr__(self, "left", object.__getattribute__(self, "left") - 1)
        if object.__getattribute__(self, "left") == 0:
            raise Step

    def __getattribute__(self, name):
        if name.startswith("__dlpack"):
            object.__getattribute__(self, "step")()
        return object.__getattribute__(self, name)

    def __dlpack_device__(self):
        self.step()
        return (Number(self, 1), Number(self, 0))

    def __dlpack__(self, stream=None):
        self.step()
        capsule = self.tensor.capsule()
        self.step()
        return capsule


class Number:
    def __init__(self, producer, number):
        self.producer, self.number = producer, number

    def __index__(self):
        self.producer.step()
        return self.number


@pytest.mark.parametrize("form", ["legacy", "versioned"])
@pytest.mark.parametrize("function", [interop_demo.describe, interop_demo.asarray, interop_demo.checksum])
def test_every_call_into_the_producer_fails_once(function, form):
    for fails_at in itertools.count(1):
        producer = Fragile(form, fails_at)
        try:
            done = function(producer)
        except Step as error:
            # A capsule that was never returned belongs to its producer.
            assert error.__cause__ is None or isinstance(error.__cause__, TypeError)
            assert producer.tensor.released == 0
            continue
        del done
        gc.collect()
        assert producer.tensor.released == 1
        break
    assert fails_at > 5
