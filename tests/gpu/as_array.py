"""Objects of the extension over GPU memory: indexed in place, with NumPy's attributes; NumPy gets a message.

These tests need no other library and also run on the simulated driver.
"""

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
    return array, interop_demo._exported(array)


@pytest.mark.parametrize("kind", KINDS)
def test_views_are_in_place(kind):
    array, exported = made(kind)
    expected = np.full((4, 3), 2, np.float32)
    expected[1:3] = 6
    data = interop_demo.describe(array)["data"]
    for view, theirs in [
        (exported, expected),
        (exported[1:], expected[1:]),
        (exported[::-1, ::2], expected[::-1, ::2]),
        (exported[1:][:, 0], expected[1:][:, 0]),
    ]:
        assert (view.shape, view.strides, view.device) == (theirs.shape, theirs.strides, DEVICES[kind])
        assert data <= interop_demo.describe(view)["data"] < data + array.nbytes
        assert np.array_equal(on_host(view), theirs)
        assert interop_demo.checksum(view) == theirs.sum()
    interop_demo.scale_(exported[:, 1], 0.5)
    assert interop_demo.checksum(array) == 48 - 8


@pytest.mark.parametrize("kind", ["cuda", "pool"])
def test_what_computes_is_refused_in_words(kind):
    _, exported = made(kind)
    for compute in (np.asarray, np.sqrt, np.sum):
        with pytest.raises(interop_demo.ArrayError, match="memory that the host can reach"):
            compute(exported)
    assert "device=cuda:0" in repr(exported)


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_what_the_host_reaches_is_computed(kind):
    array, exported = made(kind)
    assert np.sum(exported) == 48 and (np.asarray(exported) == np.asarray(array)).all()
    np.asarray(exported)[...] += 1
    assert interop_demo.checksum(array) == 60
