"""Arrays of the extension in GPU memory, used as arrays: views in place, copies on the device. Computations are
refused with a message.

These tests need no other library and also run on the simulated driver.
"""

import copy

import interop_demo
import numpy as np
import pytest

Array = interop_demo.Array
KINDS = ["cuda", "pool", "pinned", "managed"]
DEVICES = {"cuda": "cuda:0", "pool": "cuda:0", "pinned": "cuda_host", "managed": "cuda_managed"}


def on_host(array):
    return np.from_dlpack(array, device="cpu", copy=True)


def made(kind):
    """Returns an `Array` and an object of the class that functions return, over the same memory."""
    array = Array.full((4, 3), 2.0, device=kind)
    interop_demo.scale_(array[1:3], 3.0)
    return array, array.T.T


@pytest.mark.parametrize("kind", KINDS)
def test_views_are_in_place(kind):
    array, neutral = made(kind)
    expected = np.full((4, 3), 2, np.float32)
    expected[1:3] = 6
    data = interop_demo.describe(array)["data"]
    for view, theirs in [
        (neutral, expected),
        (neutral[1:], expected[1:]),
        (neutral[::-1, ::2], expected[::-1, ::2]),
        (neutral.T[0], expected.T[0]),
        (neutral.reshape(2, -1)[1], expected.reshape(2, -1)[1]),
    ]:
        assert (view.shape, view.strides, view.device) == (theirs.shape, theirs.strides, DEVICES[kind])
        assert data <= interop_demo.describe(view)["data"] < data + array.nbytes
        assert np.array_equal(on_host(view), theirs)
        assert interop_demo.checksum(view) == theirs.sum()
    interop_demo.scale_(neutral[:, 1], 0.5)
    assert interop_demo.checksum(array) == 48 - 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy])
def test_copies_are_in_other_memory(kind, function):
    array, neutral = made(kind)
    copied = function(neutral[1:])
    assert copied.shape == (3, 3)
    assert interop_demo.checksum(copied) == interop_demo.checksum(array[1:])
    interop_demo.scale_(copied, 0.0)
    assert interop_demo.checksum(array) == 48


@pytest.mark.parametrize("kind", ["cuda", "pool"])
def test_what_computes_is_refused_in_words(kind):
    _, neutral = made(kind)
    for compute in (lambda: neutral + 1, lambda: neutral == neutral, neutral.sum, neutral.tolist, lambda: np.sqrt(neutral)):
        with pytest.raises(interop_demo.ArrayError, match="memory that the host can reach"):
            compute()
    assert "device=cuda:0" in repr(neutral) and not hasattr(neutral, "__array_interface__")


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_what_the_host_reaches_is_computed(kind):
    array, neutral = made(kind)
    assert neutral.sum() == 48 and (neutral == np.asarray(array)).all()
    neutral += 1
    assert interop_demo.checksum(array) == 60
