"""Structs of each type and with random content: a description or a refusal, never anything else (bugs 98, 169)."""

import ctypes

import interop_demo
import pytest
from capsules import Tensor

ArrayError = interop_demo.ArrayError
BOTH = ("versioned", "legacy")
HUGE = 2**62
LOWEST = -(2**63)


@pytest.mark.parametrize("dtype", [(3, 248, 65535), (3, 128, 65535), (3, 16, 65535), (3, 8, 65535)], ids=str)
def test_the_biggest_opaque_elements(dtype):
    size = dtype[1] * dtype[2] // 8
    tensor = Tensor(dtype=dtype)
    found = interop_demo.describe(tensor.capsule())
    assert found["nbytes"] == 6 * size
    assert found["dtype"] in (f"|V{size}", f"opaque{8 * size}")


def test_every_type():
    """Bug 98: 24 codes, all bits, lanes 0 to 4: a description or a refusal, never anything else."""
    legal = {code: {4, 8, 16, 32, 64} for code in (0, 1)} | {2: {16, 32, 64}, 4: {16}, 5: {32, 64, 128}, 6: {8}}
    legal |= {code: {8} for code in range(7, 15)} | {15: {6}, 16: {6}, 17: {4}}  # the last is float4_e2m1fn
    whole_bytes = set(range(8, 256, 8))
    tensor = Tensor(sealed=False)
    for code in range(24):
        for bits in range(256):
            for lanes in (0, 1, 2, 4):
                tensor.struct.tensor.code, tensor.struct.tensor.bits, tensor.struct.tensor.lanes = code, bits, lanes
                fits = lanes > 0 and bits in legal.get(code, whole_bytes)
                capsule = tensor.capsule()
                try:
                    nbytes = interop_demo.describe(capsule)["nbytes"]
                except ArrayError:
                    assert not fits, (code, bits, lanes)
                else:
                    assert fits, (code, bits, lanes)
                    assert nbytes == (6 * bits * lanes + 7) // 8
    assert tensor.released == 24 * 256 * 4


@pytest.mark.parametrize("form", BOTH)
def test_random_bytes(form):
    """Structs with random content except the deleter are accepted or refused; shape and strides are null or valid
    pointers.
    """
    import random

    generator = random.Random(6)
    tensor = Tensor(form, sealed=False)
    inner = tensor.struct.tensor
    good = bytes(inner)
    numbers = (ctypes.c_int64 * 2).from_address(inner.shape), (ctypes.c_int64 * 2).from_address(inner.strides)
    rounds = 3000
    for _ in range(rounds):
        ctypes.memmove(ctypes.addressof(inner), good, len(good))
        for _ in range(generator.randrange(1, 6)):
            place = generator.choice([*range(24), *range(40, 48)])
            ctypes.c_uint8.from_address(ctypes.addressof(inner) + place).value = generator.randrange(256)
        inner.ndim = generator.choice([0, 1, 2, 2, 2, -1, 65])
        for array in numbers:
            array[:] = [generator.choice([0, 1, 2, 3, -1, HUGE, LOWEST, 2**63 - 1]) for _ in range(2)]
        capsule = tensor.capsule()
        try:
            facts = interop_demo.describe(capsule)
        except ArrayError:
            continue
        assert all(extent >= 0 for extent in facts["shape"])
        assert (facts["data"] == 0) == (0 in facts["shape"])
    assert tensor.released == rounds
