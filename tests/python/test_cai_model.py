"""`parse_cai` compared with a Python model of the interface, whose integers cannot overflow (bugs 89, 92, 165)."""

import math
import random

import interop_demo
import pytest
from interfaces import ArrayError, dict_with, types_of

EXTENTS = [0, 1, 1, 2, 3, 4, 7, 1000, 2**20, 2**31, 2**62, 2**63 - 1, -1]
STEPS = [-3, -2, -1, 0, 1, 2, 3, 4, 12, 1000, 2**20, 2**31]
EDGES = [0, 1, -1, 3, 2**62, 2**63 - 1, -(2**63)]
TYPES = {"|u1": 1, "|b1": 1, "<i2": 2, "|V3": 3, "<f4": 4, "<f8": 8, "<c16": 16}
ADDRESSES = [0, 1, 8, 4095, 4096, 2**20, 0x7F00_0000_0000, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 25, 2**64 - 1]


def model(shape, strides, item, address):
    """The description of an array, or `None` if there is no such array."""
    if any(extent < 0 for extent in shape) or (strides is not None and len(strides) != len(shape)):
        return None
    if 0 in shape:
        return {"data": 0, "nbytes": 0, "steps": None}
    count = math.prod(shape)
    if strides is None:
        strides = [item * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    reaches = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    low, high = sum(reach for reach in reaches if reach < 0), sum(reach for reach in reaches if reach > 0) + item
    # No memory lies in the first page: such an address is an offset from null.
    fits = address >= 4096 and address + low >= 0 and address + high < 2**64 and count < 2**63
    # No memory spans more than 2^60 bytes, because bits are counted in signed 64-bit integers.
    fits = fits and -(2**60) <= low and high < 2**60
    if not fits or any(extent > 1 and stride % item for extent, stride in zip(shape, strides, strict=True)):
        return None
    # The stride of an axis of extent 1 has no meaning.
    steps = [None if extent == 1 else stride // item for extent, stride in zip(shape, strides, strict=True)]
    return {"data": address, "nbytes": min(count * item, 2**64 - 1), "steps": steps}


def random_array(generator):
    """Extents, strides in bytes or `None`, a type, an address; some valid, some not."""
    small = generator.random() < 0.6
    shape = tuple(generator.choice(EXTENTS[:8] if small else EXTENTS) for _ in range(generator.randint(0, 4)))
    typestr = generator.choice(list(TYPES))
    strides = None
    if generator.random() < 0.7:
        item = TYPES[typestr] if generator.random() < 0.9 else 1
        strides = tuple(
            generator.choice(EDGES) if generator.random() < 0.1 else item * generator.choice(STEPS) for _ in shape
        )
        if generator.random() < 0.03:
            strides += (item,)
    return shape, strides, typestr, generator.choice(ADDRESSES)


@pytest.mark.parametrize("seed", range(10))
def test_random_dicts(seed):
    generator = random.Random(seed)
    outcomes = {True: 0, False: 0}
    for _ in range(2000):
        shape, strides, typestr, address = random_array(generator)
        given = dict_with(shape=shape, strides=strides, typestr=typestr, data=(address, False))
        expected = model(shape, strides, TYPES[typestr], address)
        try:
            facts = interop_demo.parse_cai(given)
        except ArrayError:
            assert expected is None, given
        else:
            assert expected is not None, given
            assert (facts["shape"], facts["data"], facts["nbytes"]) == (shape, expected["data"], expected["nbytes"]), (
                given
            )
            assert types_of(facts["strides"]) == (tuple, *[int] * len(shape))
            for found, step in zip(facts["strides"], expected["steps"] or [], strict=bool(expected["steps"])):
                assert found == step if step is not None else found >= 0, given
        outcomes[expected is not None] += 1
    assert min(outcomes.values()) > 200, "the dicts are all alike"
