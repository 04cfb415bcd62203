"""The array API standard's DLPack, with each combination that it allows and a library that follows it strictly.

R100 to R136, bug 150. `test_cuda_rules.py` tests that a host request with `copy=False` is refused for device memory.
"""

import itertools

import interop_demo
import numpy as np
import pytest
from capsules import name_of

# All types of the standard.
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
SHAPES = [(), (3,), (2, 2), (2, 0, 1), (1, 2, 3)]
DEVICES = {1, 2, 3, 4, 7, 8, 9, 10, 13, 14}
# A keyword may be left out, too.
ABSENT = object()
KEYWORDS = {
    "copy": [ABSENT, None, True, False],
    "max_version": [ABSENT, None, (0, 0), (1, 0), (2, 0)],
    "dl_device": [ABSENT, None, (1, 0)],
    "stream": [ABSENT, None],
}
each_type = pytest.mark.parametrize("dtype", DTYPES)
strict = pytest.mark.needs("array_api_strict")


def values(dtype, shape):
    return (np.arange(np.prod(shape, dtype=int)) % 2 + 1).astype(dtype).reshape(shape)


def address(array):
    return interop_demo.describe(array)["data"]


@each_type
def test_the_device_is_one_of_the_standard(dtype):
    kind, number = interop_demo.asarray(values(dtype, (3,))).__dlpack_device__()
    assert kind in DEVICES and type(number) is int


@each_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_combination_of_keywords(dtype, shape):
    expected = values(dtype, shape)
    array = interop_demo.asarray(expected)
    for chosen in itertools.product(*KEYWORDS.values()):
        wishes = {name: value for name, value in zip(KEYWORDS, chosen, strict=True) if value is not ABSENT}
        capsule = array.__dlpack__(**wishes)
        versioned = (wishes.get("max_version") or (0, 0)) >= (1, 0)
        assert name_of(capsule) == ("dltensor_versioned" if versioned else "dltensor"), wishes
        taken = interop_demo.asarray(capsule)
        in_place = wishes.get("copy") is not True or not expected.size
        assert (address(taken) == address(array)) == in_place, wishes
        assert np.array_equal(np.from_dlpack(taken), expected), wishes


@strict
@each_type
@pytest.mark.parametrize("copy", [ABSENT, None, True, False], ids=["absent", "None", "True", "False"])
def test_into_a_library_by_the_letter(dtype, copy):
    import array_api_strict as xp

    known = xp.__array_namespace_info__()
    # Some devices of that library lack types on purpose.
    devices = [device for device in known.devices() if dtype in known.dtypes(device=device)]
    for shape, device in itertools.product(SHAPES, [ABSENT, None, *devices]):
        expected = values(dtype, shape)
        array = interop_demo.asarray(expected)
        wishes = {"copy": copy, "device": device}
        taken = xp.from_dlpack(array, **{name: value for name, value in wishes.items() if value is not ABSENT})
        assert taken.device == (xp.Device("CPU_DEVICE") if device in (ABSENT, None) else device)
        assert (address(taken) == address(array)) == (copy is not True or not expected.size)
        assert (taken.shape, str(taken.dtype).endswith(dtype)) == (shape, True)
        assert bool(xp.all(taken == xp.asarray(expected, device=taken.device)))


@strict
@each_type
def test_out_of_a_library_by_the_letter(dtype):
    import array_api_strict as xp

    for shape in SHAPES:
        theirs = xp.asarray(values(dtype, shape))
        array = interop_demo.asarray(theirs)
        facts = interop_demo.describe(theirs)
        assert (address(array), facts["shape"], facts["device"]) == (facts["data"], shape, (1, 0))
        assert np.array_equal(np.from_dlpack(array), values(dtype, shape))
