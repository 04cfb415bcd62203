"""What the corpus (test_conformance.py) leaves out of DLPack structs: the names of element types, canonical strides, and
elements in their place. test_capsule_life.py covers the paths without an import.
"""

import ctypes
import re

import interop_demo
import pytest
from capsules import FLOAT32, Tensor

ArrayError = interop_demo.ArrayError
LOWEST = -(2**63)


# Shape and strides, and what differs in the description: canonical strides, and a size that no number holds.
LAYOUTS = [
    ((2**62, 1), (0, 0), {"nbytes": 2**64 - 1}),
    ((1, 3), (LOWEST, 1), {"strides": (3, 1), "nbytes": 12}),
    ((0, 2), (2**63 - 1, LOWEST), {"strides": (2**63 - 1, 1), "nbytes": 0}),
]


@pytest.mark.parametrize("form", ["versioned", "legacy"])
@pytest.mark.parametrize(("shape", "strides", "facts"), LAYOUTS)
def test_layouts(form, shape, strides, facts):
    tensor = Tensor(form, shape=shape, strides=strides)
    found = interop_demo.describe(tensor.capsule())
    assert found == {**found, "shape": shape, "strides": strides, **facts}
    assert tensor.released == 1


# Type code, bits, lanes; the name; the size of six elements in bytes (R55, R61 to R67, bugs 98 to 102, 110).
DTYPES = [
    *(
        ((code, bits, 1), ("|" if bits == 8 else "<") + f"{kind}{bits // 8}", 6 * bits // 8)
        for code, kind in [(0, "i"), (1, "u")]
        for bits in (8, 16, 32, 64)
    ),
    *(((2, bits, 1), f"<f{bits // 8}", 6 * bits // 8) for bits in (16, 32, 64)),
    ((4, 16, 1), "bfloat16", 12),
    ((5, 32, 1), "complex32", 24),
    ((5, 64, 1), "<c8", 48),
    ((5, 128, 1), "<c16", 96),
    ((6, 8, 1), "|b1", 6),
    *(
        ((code, 8, 1), f"float8_{name}", 6)
        for code, name in enumerate(
            ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"], start=7
        )
    ),
    # packed elements are summed in bits and rounded up once
    ((0, 4, 1), "int4", 3),
    ((1, 4, 1), "uint4", 3),
    ((15, 6, 1), "float6_e2m3fn", 5),
    ((16, 6, 1), "float6_e3m2fn", 5),
    ((17, 4, 1), "float4_e2m1fn", 3),
    ((17, 4, 2), "float4_e2m1fnx2", 6),
    ((3, 8, 1), "|V1", 6),
    ((3, 64, 1), "|V8", 48),
    ((3, 8, 16), "|V16", 96),
    ((3, 24, 1), "|V3", 18),
    # vectors
    ((2, 32, 4), "float32x4", 96),
    ((1, 8, 2), "uint8x2", 12),
    ((0, 64, 65535), "int64x65535", 6 * 8 * 65535),
    ((4, 16, 8), "bfloat16x8", 96),
    ((6, 8, 3), "boolx3", 18),
    # unknown codes are kept as numbers (R57)
    ((200, 32, 1), "dlpack_code200_bits32_lanes1", 24),
    ((99, 16, 2), "dlpack_code99_bits16_lanes2", 24),
    ((255, 248, 1), "dlpack_code255_bits248_lanes1", 186),
]


@pytest.mark.parametrize("form", ["versioned", "legacy"])
@pytest.mark.parametrize(("dtype", "name", "nbytes"), DTYPES, ids=str)
def test_names_of_types(form, dtype, name, nbytes):
    found = interop_demo.describe(Tensor(form, dtype=dtype).capsule())
    assert (found["dtype"], found["nbytes"]) == (name, nbytes)


def test_a_refused_type_is_named_by_its_numbers():
    for dtype in [(2, 32, 0), (4, 32, 1), (200, 12, 1)]:
        with pytest.raises(ArrayError, match="code {}, {} bits, lanes {}".format(*dtype)):
            interop_demo.describe(Tensor(dtype=dtype).capsule())
    with pytest.raises(ArrayError, match=re.escape("TPUHost (20)")):
        interop_demo.describe(Tensor(device=(20, 0)).capsule())
    with pytest.raises(ArrayError, match=re.escape("unknown (77)")):
        interop_demo.describe(Tensor(device=(77, 0)).capsule())


def test_elements_are_read_where_they_are():
    """R74: `checksum` reads at the described addresses; a reversed array of every second element."""
    tensor = Tensor(shape=(4,), strides=(-2,), byte_offset=28)
    tensor.floats(8)[:] = [1, 2, 4, 8, 16, 32, 64, 128]
    assert interop_demo.checksum(tensor.capsule()) == 128 + 32 + 8 + 2
    tensor = Tensor(shape=(3,), strides=(1,), byte_offset=1, dtype=FLOAT32)
    ctypes.memmove(tensor.memory + 1, bytes((ctypes.c_float * 3)(1, 2, 3)), 12)
    assert interop_demo.checksum(tensor.capsule()) == 6  # no alignment is needed
