"""Warp raised an error on missing `strides` (NVIDIA/warp#523), and later used the wrong item size (#763).

A missing key, `None`, and explicit strides mean the same, in units of the source's item size.
"""

import driver
import interop_demo
import numpy as np
import pytest
from partners import BASE, OnlyCAI

Array = interop_demo.Array


class Interface:
    """Our array's dict with other strides; `absent` leaves the key out."""

    def __init__(self, array, strides):
        self.array = array
        self.__cuda_array_interface__ = dict(array.__cuda_array_interface__)
        if strides == "absent":
            del self.__cuda_array_interface__["strides"]
        else:
            self.__cuda_array_interface__["strides"] = strides

    def __len__(self):
        return self.__cuda_array_interface__["shape"][0]


@pytest.fixture
def wp():
    warp = pytest.importorskip("warp", exc_type=ImportError)
    warp.config.quiet = True
    warp.init()
    return warp


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i2", "|u1"])
@pytest.mark.parametrize("strides", ["absent", None, "explicit"])
def test_strides_come_in(dtype, strides):
    array = Array.full((4, 6), 2, dtype, device="cuda")
    item = np.dtype(dtype).itemsize
    facts = interop_demo.describe(Interface(array, (6 * item, item) if strides == "explicit" else strides))
    assert (facts["strides"], facts["dtype"], facts["nbytes"]) == ((6, 1), dtype, 24 * item)


def test_ours_has_the_key():
    array = Array.full((4, 6), 2.0, device="cuda")
    assert array.__cuda_array_interface__["strides"] is None
    assert array[:, ::2].__cuda_array_interface__["strides"] == (24, 8)


@pytest.mark.parametrize("strides", ["absent", None, (24, 4)])
def test_warp_takes_ours(wp, strides):
    array = Array.full((4, 6), 2.0, device="cuda")
    interface = Interface(array, strides)
    taken = wp.array(interface, dtype=wp.float32, device="cuda:0", copy=False)
    assert taken.ptr == interop_demo.describe(array)["data"]
    assert (taken.shape, taken.numpy().sum()) == ((4, 6), 48)


@pytest.mark.parametrize("strides", ["absent", None, (12, 4)])
def test_warp_takes_ours_as_vectors(wp, strides):
    array = Array.full((5, 3), 2.0, device="cuda")
    taken = wp.array(Interface(array, strides), dtype=wp.vec3, device="cuda:0", copy=False)
    assert taken.ptr == interop_demo.describe(array)["data"]
    assert taken.shape == (5,)
    assert taken.numpy().tolist() == [[2.0, 2.0, 2.0]] * 5


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyCAI], ids=["array", "dict"])
def test_warp_takes_the_array_itself(wp, wrap):
    """Warp refuses an object without `len()` before it reads the dict."""
    array = Array.full((4, 6), 2.0, device="cuda")
    taken = wp.array(wrap(array), dtype=wp.float32, device="cuda:0", copy=False)
    assert taken.ptr == interop_demo.describe(array)["data"]


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyCAI], ids=["dlpack", "dict"])
def test_warps_scalars_come_in(wp, wrap):
    array = wp.array(BASE, dtype=wp.float32, device="cuda:0")
    wp.synchronize()
    facts = interop_demo.describe(wrap(array))
    assert (facts["data"], facts["shape"], facts["strides"]) == (array.ptr, (4, 6), (6, 1))
    assert interop_demo.checksum(wrap(array)) == BASE.sum()


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyCAI], ids=["dlpack", "dict"])
def test_warps_vectors_come_in(wp, wrap):
    array = wp.array(np.ones((5, 3), np.float32), dtype=wp.vec3, device="cuda:0")
    wp.synchronize()
    facts = interop_demo.describe(wrap(array))
    assert (facts["data"], facts["shape"], facts["strides"]) == (array.ptr, (5, 3), (3, 1))
    driver.synchronize()
    assert interop_demo.checksum(wrap(array)) == 15
