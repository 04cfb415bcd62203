"""DLPack structs, valid and invalid, in raw capsules and from producers (R56 to R92, bugs 24, 25, 68, 85, 165 to
172).

Each test checks the number of deleter calls; test_capsule_life.py covers the paths without an import.
"""

import ctypes
import re

import interop_demo
import pytest
from capsules import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    FLOAT32,
    IS_COPIED,
    PADDED,
    READ_ONLY,
    Producer,
    Tensor,
)

ArrayError = interop_demo.ArrayError
BOTH = ("versioned", "legacy")
HUGE = 2**62
LOWEST = -(2**63)


def in_both_forms(rows):
    """Turns rows `(id, ...)` into parameters, once for each form of the struct."""
    return [pytest.param(form, *row, id=f"{name}-{form}") for name, *row in rows for form in BOTH]


def vector(count=3):
    """The fields of a contiguous array with one axis."""
    return {"shape": (count,), "strides": (1,)}


def facts_of(form, **changes):
    """The description of the tensor `Tensor(form)`."""
    return {
        "protocol": {"versioned": "dlpack_versioned", "legacy": "dlpack"}[form],
        "device": (CPU, 0),
        "dtype": "<f4",
        "shape": (2, 3),
        "strides": (3, 1),
        # The legacy form cannot state that an array may be written.
        "readonly": form == "legacy",
        "nbytes": 24,
        "stream": None,
        **changes,
    }


def described(tensor, way):
    """The description of a tensor in a raw capsule or from a producer."""
    return interop_demo.describe(tensor.capsule() if way == "capsule" else Producer(tensor))


EMPTY = {"nbytes": 0}

# The fields and the parts of the description that differ, and the offset of the first element from `Tensor.memory`;
# None: address 0.
LEGAL = [
    ("plain", {}, {}, 0),
    # shape and strides (R82, R83, bugs 68, 69, 80)
    ("null-strides", {"strides": None}, {}, 0),
    ("null-strides-1d", {"shape": (5,), "strides": None}, {"shape": (5,), "strides": (1,), "nbytes": 20}, 0),
    (
        "null-strides-4d",
        {"shape": (2, 3, 4, 5), "strides": None},
        {"shape": (2, 3, 4, 5), "strides": (60, 20, 5, 1), "nbytes": 480},
        0,
    ),
    ("0d-null", {"shape": None, "strides": None, "ndim": 0}, {"shape": (), "strides": (), "nbytes": 4}, 0),
    ("0d-unreadable", {"shape": (), "strides": ()}, {"shape": (), "strides": (), "nbytes": 4}, 0),
    ("fewer-axes-than-numbers", {"ndim": 1}, {"shape": (2,), "strides": (3,), "nbytes": 8}, 0),
    ("64-axes", {"shape": (1,) * 64, "strides": (1,) * 64}, {"shape": (1,) * 64, "strides": (1,) * 64, "nbytes": 4}, 0),
    (
        "64-axes-null-strides",
        {"shape": (1,) * 63 + (2,), "strides": None},
        {"shape": (1,) * 63 + (2,), "strides": (2,) * 63 + (1,), "nbytes": 8},
        0,
    ),
    ("fortran", {"strides": (1, 2)}, {"strides": (1, 2)}, 0),
    ("gaps", {"strides": (16, 4)}, {"strides": (16, 4)}, 0),
    ("backwards", {"strides": (-3, -1), "byte_offset": 20}, {"strides": (-3, -1)}, 20),
    ("broadcast", {"strides": (0, 0)}, {"strides": (0, 0)}, 0),
    (
        "broadcast-huge",
        {"shape": (HUGE, 1), "strides": (0, 0)},
        {"shape": (HUGE, 1), "strides": (0, 0), "nbytes": 2**64 - 1},
        0,
    ),
    ("overlapping", {"strides": (1, 1)}, {"strides": (1, 1)}, 0),
    ("one-odd-stride", {"shape": (1, 3), "strides": (77, 1)}, {"shape": (1, 3), "strides": (77, 1), "nbytes": 12}, 0),
    ("one-lowest-stride", {"shape": (1, 3), "strides": (LOWEST, 1)}, {"shape": (1, 3), "nbytes": 12}, 0),
    (
        "one-highest-stride",
        {"shape": (3, 1), "strides": (1, 2**63 - 1)},
        {"shape": (3, 1), "strides": (1, 2**63 - 1), "nbytes": 12},
        0,
    ),
    # empty (R79, bugs 25, 76, 79)
    ("empty", {"shape": (0,), "strides": (1,)}, {"shape": (0,), "strides": (1,), **EMPTY}, None),
    (
        "empty-null",
        {"shape": (3, 0, 2), "strides": (0, 2, 1), "data": 0},
        {"shape": (3, 0, 2), "strides": (0, 2, 1), **EMPTY},
        None,
    ),
    (
        "empty-dangling",
        {"shape": (0, 3), "strides": None, "data": 0xDEADBEEF},
        {"shape": (0, 3), "strides": (3, 1), **EMPTY},
        None,
    ),
    (
        "empty-offset-overflows",
        {"shape": (0,), "strides": (1,), "byte_offset": 2**64 - 1},
        {"shape": (0,), "strides": (1,), **EMPTY},
        None,
    ),
    (
        "empty-huge",
        {"shape": (HUGE, HUGE, 0), "strides": (1, 1, 1)},
        {"shape": (HUGE, HUGE, 0), "strides": (1, 1, 1), **EMPTY},
        None,
    ),
    (
        "empty-any-strides",
        {"shape": (0, 2), "strides": (2**63 - 1, LOWEST)},
        {"shape": (0, 2), "strides": (2**63 - 1, 1), **EMPTY},
        None,
    ),
    # data and byte_offset (R74, R76, bugs 85, 87)
    ("byte-offset", {"byte_offset": 8}, {}, 8),
    ("byte-offset-no-multiple", {"byte_offset": 3}, {}, 3),
    # devices (R56, R90, bugs 117, 127)
    ("cpu-ordinal", {"device": (CPU, 5)}, {}, 0),
    ("cpu-ordinal-negative", {"device": (CPU, -1)}, {}, 0),
    ("cuda", {"device": (CUDA, 0)}, {"device": (CUDA, 0)}, 0),
    ("cuda-7", {"device": (CUDA, 7)}, {"device": (CUDA, 7)}, 0),
    ("pinned", {"device": (CUDA_HOST, 0)}, {"device": (CUDA_HOST, 0)}, 0),
    ("pinned-ordinal", {"device": (CUDA_HOST, 3)}, {"device": (CUDA_HOST, 0)}, 0),
    ("managed-ordinal", {"device": (CUDA_MANAGED, 1)}, {"device": (CUDA_MANAGED, 0)}, 0),
    # the deleter (R92, bug 24)
    ("no-deleter", {"deleter": False}, {}, 0),
]

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

LEGAL += [(f"dtype-{dtype}", {"dtype": dtype}, {"dtype": name, "nbytes": nbytes}, 0) for dtype, name, nbytes in DTYPES]


@pytest.mark.parametrize(("form", "fields", "facts", "at"), in_both_forms(LEGAL))
@pytest.mark.parametrize("way", ["capsule", "producer"])
def test_legal(form, fields, facts, at, way):
    tensor = Tensor(form, **fields)
    found = described(tensor, way)
    expected = facts_of(form, data=0 if at is None else tensor.memory + at, **facts)
    # A producer of memory that CUDA can access is passed the legacy default stream, which is also the meaning of no
    # stream.
    if expected["device"][0] != CPU:
        expected["stream"] = 1
    assert found == expected
    assert tensor.released == (1 if fields.get("deleter", True) else 0)


VERSIONS_AND_FLAGS = [
    ("1.0", {"version": (1, 0)}, {}),
    ("1.1", {"version": (1, 1)}, {}),
    ("1.2-null-strides", {"version": (1, 2), "strides": None}, {}),
    ("1.3", {"version": (1, 3)}, {}),
    ("1.99", {"version": (1, 99)}, {}),
    ("1.4294967295", {"version": (1, 2**32 - 1)}, {}),
    ("read-only", {"flags": READ_ONLY}, {"readonly": True}),
    ("copied", {"flags": IS_COPIED}, {}),
    ("read-only-copied", {"flags": READ_ONLY | IS_COPIED}, {"readonly": True}),
    ("padded-means-nothing", {"flags": PADDED}, {}),
    ("unknown-flags", {"flags": 2**63 | 8}, {}),
    ("all-flags", {"flags": 2**64 - 1}, {"readonly": True}),
    # sub-byte elements in whole bytes (R66)
    ("padded-4-bits", {"flags": PADDED, "dtype": (17, 4, 1)}, {"dtype": "float4_e2m1fn", "nbytes": 6}),
    (
        "padded-6-bits",
        {"flags": PADDED | READ_ONLY, "dtype": (15, 6, 1)},
        {"dtype": "float6_e2m3fn", "nbytes": 6, "readonly": True},
    ),
    ("padded-lanes", {"flags": PADDED, "dtype": (17, 4, 2)}, {"dtype": "float4_e2m1fnx2", "nbytes": 12}),
]


@pytest.mark.parametrize(("fields", "facts"), [pytest.param(*row, id=name) for name, *row in VERSIONS_AND_FLAGS])
def test_versions_and_flags(fields, facts):
    """R60, R71, bug 69."""
    tensor = Tensor(**fields)
    assert described(tensor, "capsule") == facts_of("versioned", data=tensor.memory, **facts)
    assert tensor.released == 1


ILLEGAL = [
    # shape (R84, bugs 165, 169, 172)
    ("ndim-negative", {"ndim": -1}, "ndim"),
    ("ndim-lowest", {"ndim": -(2**31)}, "ndim"),
    ("ndim-65", {"ndim": 65}, "ndim"),
    ("ndim-highest", {"ndim": 2**31 - 1}, "ndim"),
    ("null-shape", {"shape": None, "ndim": 2}, "shape"),
    ("null-shape-and-strides", {"shape": None, "strides": None, "ndim": 1}, "shape"),
    ("extent-negative", {"shape": (2, -3)}, "shape[1]"),
    ("extent-lowest", {"shape": (LOWEST, 3)}, "shape[0]"),
    ("extent-negative-beside-zero", {"shape": (0, -3)}, "shape[1]"),
    ("extents-negative-twice", {"shape": (-2, -3)}, "shape[0]"),
    ("product-wraps-to-0", {"shape": (2**32, 2**32)}, "shape"),
    ("product-2**63", {"shape": (HUGE, 2)}, "shape"),
    ("product-wraps-with-null-strides", {"shape": (2**32, 2**31, 2**33), "strides": None}, "shape"),
    ("bytes-2**64", {"shape": (HUGE,), "strides": None}, "shape"),
    # strides and reach (R77, R89, bug 89)
    ("stride-highest", {"strides": (2**63 - 1, 1)}, "strides"),
    ("stride-lowest", {"strides": (LOWEST, 1)}, "strides"),
    ("strides-sum-up", {"strides": (2**61, 2**61)}, "strides"),
    ("reach-below-address-0", {"strides": (-HUGE // 16, 1), "data": 4096}, "strides"),
    ("reach-above-last-address", {"strides": (2, 1), "data": 2**64 - 16}, "strides"),
    ("reach-wraps-to-address-0", {**vector(4), "data": 2**64 - 16}, "shape"),
    # data (R77, R80, bug 170)
    ("null", {"data": 0}, "data"),
    ("null-0d", {"data": 0, "shape": (), "strides": ()}, "data"),
    ("null-with-offset", {"data": 0, "byte_offset": 4096}, "data"),
    ("offset-overflows", {"byte_offset": 2**64 - 1}, "byte_offset"),
    ("offset-above-2**63", {"data": 2**63, "byte_offset": 2**63}, "byte_offset"),
    # devices (R56, R57)
    *(
        (f"device-{kind}", {"device": (kind, 0)}, "device_type")
        for kind in (0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 77, -1, 2**31 - 1, -(2**31))
    ),
    ("cuda-negative", {"device": (CUDA, -1)}, "device_id"),
    # types (R63 to R65, bugs 98, 102, 110)
    *(
        (f"dtype-{dtype}", {"dtype": dtype}, "dtype")
        for dtype in [
            (2, 32, 0),
            (200, 32, 0),
            (3, 8, 0),
            (17, 4, 0),
            (0, 0, 1),
            (2, 0, 1),
            (3, 0, 1),
            (200, 0, 1),
            (255, 0, 65535),
            (0, 1, 1),
            (0, 2, 1),
            (0, 24, 1),
            (0, 128, 1),
            (1, 1, 1),
            (1, 2, 1),
            (1, 128, 1),
            (2, 8, 1),
            (2, 80, 1),
            (2, 128, 1),
            (3, 4, 1),
            (3, 12, 1),
            (4, 8, 1),
            (4, 32, 1),
            (5, 16, 1),
            (5, 256 - 8, 1),
            (6, 1, 1),
            (6, 16, 1),
            (6, 32, 1),
            *((code, bits, 1) for code in range(7, 15) for bits in (4, 16)),
            (15, 4, 1),
            (15, 8, 1),
            (16, 8, 1),
            (17, 8, 1),
            (17, 6, 1),
            (200, 12, 1),
            (200, 1, 8),
            (200, 4, 2),
        ]
    ),
]


@pytest.mark.parametrize(("form", "fields", "place"), in_both_forms(ILLEGAL))
@pytest.mark.parametrize("way", ["capsule", "producer"])
def test_illegal(form, fields, place, way):
    """Refused with the location in the message, and released once (R94, bug 22)."""
    tensor = Tensor(form, **fields)
    with pytest.raises(ArrayError, match=re.escape(f"`{place}`")) as caught:
        described(tensor, way)
    # A producer on an unsupported device is not asked for a capsule.
    asked = way == "capsule" or not place.startswith("device_")
    assert tensor.released == (1 if asked else 0)
    assert ("Producer" in str(caught.value)) == (way == "producer"), "a producer is named, a capsule cannot be"


def test_unknown_flags_with_packed_elements():
    """A flag of a later version may change the packing of such elements, as the padding flag did (spec 2.4)."""
    tensor = Tensor(dtype=(17, 4, 1), flags=8)
    with pytest.raises(ArrayError, match="`flags`"):
        described(tensor, "capsule")
    assert tensor.released == 1


def test_a_refused_type_is_named_by_its_numbers():
    for dtype in [(2, 32, 0), (4, 32, 1), (200, 12, 1)]:
        with pytest.raises(ArrayError, match="code {}, {} bits, lanes {}".format(*dtype)):
            described(Tensor(dtype=dtype), "capsule")
    with pytest.raises(ArrayError, match=re.escape("TPUHost (20)")):
        described(Tensor(device=(20, 0)), "capsule")
    with pytest.raises(ArrayError, match=re.escape("unknown (77)")):
        described(Tensor(device=(77, 0)), "capsule")


def test_elements_are_read_where_they_are():
    """R74: `checksum` reads at the described addresses; a reversed array of every second element."""
    tensor = Tensor(shape=(4,), strides=(-2,), byte_offset=28)
    tensor.floats(8)[:] = [1, 2, 4, 8, 16, 32, 64, 128]
    assert interop_demo.checksum(tensor.capsule()) == 128 + 32 + 8 + 2
    tensor = Tensor(shape=(3,), strides=(1,), byte_offset=1, dtype=FLOAT32)
    ctypes.memmove(tensor.memory + 1, bytes((ctypes.c_float * 3)(1, 2, 3)), 12)
    assert interop_demo.checksum(tensor.capsule()) == 6  # no alignment is needed
