"""The cases of `dlpack.json`: how each changes a minimal tensor, the expected result, the reason, and the rules it covers.

A row applies to both forms of the struct, unless it is about a property that only one has. `reader.py` computes the facts
of legal rows. An illegal row contains the kind of error and its place. `data` is `"memory"` (a location with 256 readable
bytes before it and 512 after it), or the address itself, which must not be dereferenced.
"""

# One row per line is easier to read.
# fmt: off

PLAIN = {
    "version": (1, 0), "flags": 0, "device": (1, 0), "dtype": (2, 32, 1), "ndim": 2, "shape": (2, 3), "strides": (3, 1),
    "data": "memory", "byte_offset": 0, "deleter": True,
}
HUGE, LOWEST, HIGHEST = 2**62, -(2**63), 2**63 - 1
CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13
READ_ONLY, IS_COPIED, PADDED = 1, 2, 4
FP4, FP6, UINT8, INT16 = (17, 4, 1), (15, 6, 1), (1, 8, 1), (0, 16, 1)
FAR = 0x10000

LEGAL, ILLEGAL = [], []


def rows(name, form, changes):
    """Yields the row once for each form. `ndim` is the length of the shape unless it is given."""
    if "shape" in changes and "ndim" not in changes:
        changes["ndim"] = len(changes["shape"])
    for one in (form,) if form else ("versioned", "legacy"):
        fields = {"form": one, **PLAIN, **changes}
        if one == "legacy":
            del fields["version"], fields["flags"]
        yield (name if form else f"{name}-{one}"), fields


def legal(name, why, ids, choice=False, form=None, **changes):
    LEGAL.extend((*row, why, ids, choice) for row in rows(name, form, changes))


def illegal(name, error, why, ids, choice=False, form=None, **changes):
    ILLEGAL.extend((*row, error, why, ids, choice) for row in rows(name, form, changes))


def versioned(name, why, ids, choice=False, **changes):
    legal(name, why, ids, choice, "versioned", **changes)


# --- shape and strides --------------------------------------------------------------------------------------------
legal("plain", "a compact matrix of float32", "R54 R110")
legal("null-strides", "no strides are those of a compact array, whatever the version says", "R82 B68 B69", strides=None)
legal("null-strides-1d", "no strides, one axis", "R82 B68", shape=(5,), strides=None)
legal("null-strides-3d", "no strides, three axes", "R82 B68", shape=(2, 3, 4), strides=None)
legal("null-strides-64d", "no strides, 64 axes", "R82 B68", shape=(1,) * 63 + (2,), strides=None)
legal("0d-null", "a scalar has no numbers to point to", "R83 B80", shape=(), strides=None)
legal("0d-null-shape", "and both pointers may be null", "R83 B80", shape=None, strides=None, ndim=0)
legal("0d-pointers", "or point to numbers that are none of the array's", "R83 B80", shape=(7, 7), strides=(7, 7), ndim=0)
legal("fewer-axes-than-numbers", "`ndim` says how many numbers there are", "R84", ndim=1)
legal("1d", "one axis", "R54", shape=(7,), strides=(1,))
legal("5d", "five axes", "R54", shape=(2, 1, 3, 2, 2), strides=(12, 12, 4, 2, 1))
legal("64d", "the most axes that are promised to be read", "B169", shape=(1,) * 64, strides=(1,) * 64)
legal("fortran", "the first axis varies fastest", "R86 B93", strides=(1, 2))
legal("permuted", "neither order", "R86", shape=(2, 3, 4), strides=(1, 8, 2))
legal("gaps", "rows with room behind them", "R89 B95", strides=(16, 4))
legal("every-other", "a slice with a step", "R89 B95", strides=(6, 2))
legal("backwards", "element [0, 0] is where data and byte_offset say; the memory lies below it", "R87 R89 B81 B84",
      strides=(-3, -1), byte_offset=20)
legal("backwards-rows", "the last row lies first", "R87 B84", strides=(-3, 1), byte_offset=12)
legal("backwards-from-data", "without an offset the memory lies below `data`", "R87 B84", strides=(-3, 1))
legal("broadcast", "all rows are one", "R88 B91", strides=(0, 1))
legal("broadcast-all", "all elements are one", "R88 B91", strides=(0, 0))
legal("broadcast-huge", "many elements in little memory", "R89 B89", shape=(2**40, 2), strides=(0, 1))
legal("overlap", "elements share memory", "R89", strides=(1, 1))
legal("span", "the span is the sum over all axes, not the largest stride", "R89 B89", shape=(3, 3), strides=(4, 3))
legal("one-odd-stride", "an axis of one element is never stepped along", "R86 B72", shape=(1, 3), strides=(77, 1))
legal("one-single", "one element, any stride", "R86 B72", shape=(1,), strides=(2,))
legal("one-lowest-stride", "nothing is added, so nothing overflows", "R86 B83", shape=(1, 3), strides=(LOWEST, 1))
legal("one-highest-stride", "nothing is added, so nothing overflows", "R86 B72", shape=(3, 1), strides=(1, HIGHEST))
legal("one-negative", "left over from a flip", "B83", shape=(1, 2, 3), strides=(-6, 3, 1))
legal("one-channels", "an image as torch strides it", "B73", shape=(1, 1, 8, 8), strides=(64, 64, 8, 1))
legal("one-f", "both orders at once", "B73", shape=(16, 1), strides=(1, 16))
legal("many-elements", "more than 31 bits count", "B166", shape=(2**33,), strides=(1,), data=FAR, device=(CUDA, 0))
illegal("ndim-minus-1", ("rank", "ndim"), "there is no negative number of axes", "R84 B169", ndim=-1)
illegal("ndim-lowest", ("rank", "ndim"), "the lowest number", "R84 B169", ndim=-(2**31))
illegal("ndim-65", ("rank", "ndim"), "more axes than are promised to be read", "R84 B169 B172", choice=True, ndim=65)
illegal("ndim-highest", ("rank", "ndim"), "an array of this many numbers would not fit", "R84 B169 B172", ndim=2**31 - 1)
illegal("shape-null", ("null", "shape"), "axes, and no extents", "R84 B169", shape=None, ndim=2)
illegal("shape-null-1d", ("null", "shape"), "an axis, and no extent", "R84 B169", shape=None, strides=None, ndim=1)
illegal("shape-negative", ("shape", "shape[1]"), "an extent counts", "R84 B165", shape=(2, -3))
illegal("shape-lowest", ("shape", "shape[0]"), "the lowest number", "R84 B165", shape=(LOWEST, 1))
illegal("shape-negative-and-0", ("shape", "shape[1]"), "wrong although the array is empty", "R84 B165", shape=(0, -1))
illegal("shape-negative-twice", ("shape", "shape[0]"), "the product is positive", "R84 B165", shape=(-2, -3))
illegal("shape-product-wraps-to-0", ("overflow", "shape"), "in 64 bits the product is 0", "R84 B165",
        shape=(2**32, 2**32, 16), strides=(1, 1, 1))
illegal("shape-product-2**63", ("overflow", "shape"), "no signed number holds it", "R84 B165", shape=(HUGE, 2))
illegal("shape-bytes-wrap", ("overflow", "shape"), "the elements fit, their bytes do not", "B168", shape=(HUGE,),
        strides=None)
illegal("strides-reach-highest", ("overflow", "strides"), "beyond the last address", "R89 B89", strides=(HIGHEST, 1))
illegal("strides-reach-lowest", ("overflow", "strides"), "beyond the first address", "R89 B89", strides=(LOWEST, 1))
illegal("strides-reach-quarter", ("overflow", "strides"), "the elements fit, their bytes do not", "R89 B89",
        strides=(HUGE // 2, 1))
illegal("strides-reach-sum", ("overflow", "strides"), "each stride fits, the sum does not", "R89 B165",
        strides=(HUGE + 1, HUGE // 2), dtype=UINT8)
illegal("strides-reach-below-0", ("overflow", "strides"), "backwards beyond the first address", "R89", data=FAR,
        device=(CUDA, 0), strides=(-FAR, 1))

# --- arrays without elements --------------------------------------------------------------------------------------
legal("empty", "an extent of 0", "R79 B25", shape=(0,), strides=(1,))
legal("empty-null", "the address of an empty array is nobody's business", "R79 B40 B79", shape=(3, 0, 2),
      strides=(0, 2, 1), data=0)
legal("empty-null-strides", "no address and no strides", "R79 B79", shape=(0, 3), strides=None, data=0)
legal("empty-dangling", "an address that leads nowhere", "R79 B79", shape=(0, 3), data=0xDEADBEEF)
legal("empty-offset", "an offset that no address has", "R79", shape=(0,), strides=(1,), byte_offset=2**64 - 1)
legal("empty-null-offset", "an offset from nowhere", "R79", shape=(0,), strides=(1,), data=0, byte_offset=64)
legal("empty-huge", "products are of no interest", "B165", shape=(HUGE, HUGE, 0), strides=(1, 1, 1))
legal("empty-first", "in whatever order the factors come", "B165", shape=(0, HUGE), strides=(HUGE, 1))
for name, strides in {"zero": (0, 0, 0), "signs": (7, -3, 5), "compact": (20, 20, 1), "lowest": (LOWEST,) * 3,
                      "highest": (HIGHEST,) * 3}.items():
    legal(f"empty-strides-{name}", "strides of an empty array say nothing", "B76", shape=(100, 0, 20), strides=strides)
legal("empty-cuda", "memory of a device that may not be there", "R79 B78", shape=(0,), strides=(1,), data=0,
      device=(CUDA, 0))
illegal("empty-dtype", ("dtype", "dtype"), "no element, but a type", "R65", shape=(0,), strides=(1,), dtype=(17, 8, 1))

# --- data and byte_offset -----------------------------------------------------------------------------------------
legal("offset-8", "the first element lies behind `data`", "R74 B85", byte_offset=8)
legal("offset-256", "as a slice of an aligned block", "R74 R76 B85 B87", byte_offset=256)
legal("offset-odd", "alignment is asked for where elements are read, not here", "R76 B87", byte_offset=3)
legal("offset-of-half", "a multiple of the item size is torch's wish only", "R74", dtype=(2, 64, 1), byte_offset=4)
legal("address-odd", "no 256 bytes, and not even the element's own", "R76 B87", data=FAR + 1, device=(CUDA, 0))
legal("address-above-2**63", "addresses have no sign", "B166", data=2**63 + 64, device=(CUDA, 0))
legal("address-last", "up to the last byte that has an address", "B166", data=2**64 - 25, device=(CUDA, 0))
legal("offset-to-the-last", "up to the last byte that has an address", "R77", data=2**63 + 1, byte_offset=2**63 - 26,
      device=(CUDA, 0))
illegal("address-null", ("null", "data"), "elements at address 0", "R80 B170", data=0)
illegal("address-near-null", ("null", "data"), "a part of an array whose memory was freed", "R80 B170", data=4)
illegal("address-null-offset", ("null", "data"), "an offset makes no address of null", "R80 B170", data=0, byte_offset=64)
illegal("address-null-0d", ("null", "data"), "a scalar is an element", "R80", shape=(), strides=None, data=0)
illegal("address-null-cuda", ("null", "data"), "nor has a GPU an address 0", "R80", data=0, device=(CUDA, 0))
illegal("address-beyond", ("overflow", "shape"), "the last element lies beyond the last address", "R77",
        data=2**64 - 8, device=(CUDA, 0))
illegal("offset-wraps", ("overflow", "byte_offset"), "data plus offset is below data", "R77 B85", data=2**64 - 8,
        byte_offset=64, device=(CUDA, 0))
illegal("offset-negative", ("overflow", "byte_offset"), "a negative offset that was cut to an unsigned number", "R77 B90",
        byte_offset=2**64 - 16)
illegal("offset-minus-1", ("overflow", "byte_offset"), "a negative offset that was cut to an unsigned number", "R77 B90",
        byte_offset=2**64 - 1)
illegal("offset-2**63", ("overflow", "byte_offset"), "no signed number holds it", "R77 B90", byte_offset=2**63)

# --- types: the last code is that of float4_e2m1fn ------------------------------------------------------------------
for code, name, bits in (
    (0, "int", (8, 16, 32, 64)), (1, "uint", (8, 16, 32, 64)), (2, "float", (16, 32, 64)), (4, "bfloat", (16,)),
    (5, "complex", (64, 128)), (6, "bool", (8,)),
):
    for size in bits:
        legal(f"dtype-{name}{size}", "code, bits and lanes are one name", "R55 R61 R62 B99 B102", dtype=(code, size, 1))
for code in range(7, 15):
    versioned(f"dtype-code-{code}", "a float of 8 bits (DLPack 1.1)", "R55 R60 B103", version=(1, 1), dtype=(code, 8, 1))
versioned("dtype-fp6-e2m3", "24 bits for four elements", "R65 R66", version=(1, 1), dtype=(15, 6, 1), shape=(2, 4), strides=(4, 1))
versioned("dtype-fp6-e3m2", "24 bits for four elements", "R65 R66", version=(1, 1), dtype=(16, 6, 1), shape=(2, 4), strides=(4, 1))
versioned("dtype-fp4", "two elements in a byte; the bytes of the whole are rounded once", "R65 R66", choice=True,
          version=(1, 1), dtype=FP4, shape=(3,), strides=(1,))
for code, name in ((0, "int4"), (1, "uint4")):
    versioned(f"dtype-{name}", "two elements in a byte", "R65 R66", choice=True, version=(1, 1), dtype=(code, 4, 1), shape=(2, 4), strides=(4, 1))
    versioned(f"dtype-{name}-padded", "each element in a byte of its own, as in NumPy", "R66", choice=True, version=(1, 1),
              flags=PADDED, dtype=(code, 4, 1))
versioned("dtype-fp4-padded", "each element in a byte of its own", "R66", version=(1, 1), flags=PADDED, dtype=FP4)
versioned("dtype-fp6-padded", "each element in a byte of its own", "R66", version=(1, 1), flags=PADDED, dtype=FP6)
versioned("dtype-padded-bytes", "the flag says nothing about whole bytes", "R66", version=(1, 1), flags=PADDED)
versioned("dtype-fp4x2", "two lanes in a byte, as torch has them", "R67", version=(1, 1), dtype=(17, 4, 2))
versioned("dtype-opaque", "a handle of 64 bits", "R55", choice=True, dtype=(3, 64, 1))
legal("dtype-blob", "twelve bytes that nobody looks into", "R55", choice=True, dtype=(3, 8, 12))
legal("dtype-lanes-4", "a vector of four", "R64 B110", choice=True, dtype=(2, 32, 4))
legal("dtype-lanes-most", "a vector of 65535", "R64 B110", choice=True, dtype=(1, 8, 65535), data=FAR, device=(CUDA, 0))
versioned("dtype-code-18", "a pair of bfloat16 in a later header; a number with whole bytes", "R57 R60", choice=True,
          version=(1, 4), dtype=(18, 32, 1))
legal("dtype-code-200", "a number that nobody knows, with whole bytes, stays a number", "R56 R57 B108", choice=True,
      dtype=(200, 24, 1))
for name, dtype, why in (
    ("lanes-0", (2, 32, 0), "no lane"), ("lanes-0-unknown", (200, 32, 0), "no lane"), ("bits-0", (0, 0, 1), "no bits"),
    ("bits-0-opaque", (3, 0, 1), "no bits"), ("bool-1", (6, 1, 1), "a bool has 8 bits"),
    ("uint-1", (1, 1, 1), "bool as it was before there was a code for it"), ("bool-16", (6, 16, 1), "a bool has 8 bits"),
    ("int-24", (0, 24, 1), "no such int"), ("int-128", (0, 128, 1), "no such int"), ("int-2", (0, 2, 1), "no such int"),
    ("uint-7", (1, 7, 1), "no such uint"), ("float-8", (2, 8, 1), "which of the eight?"),
    ("float-80", (2, 80, 1), "no such float"), ("float-128", (2, 128, 1), "no such float"),
    ("bfloat-32", (4, 32, 1), "bits are part of the name"), ("bfloat-8", (4, 8, 1), "bits are part of the name"),
    ("complex-16", (5, 16, 1), "no such complex"), ("complex-256", (5, 255, 1), "no such complex"),
    ("float8-16", (10, 16, 1), "its bits are 8"), ("float8-4", (12, 4, 1), "its bits are 8"),
    ("fp6-8", (15, 8, 1), "its bits are 6, padded or not"), ("fp6-4", (16, 4, 1), "its bits are 6"),
    ("fp4-8", (17, 8, 1), "its bits are 4, padded or not"), ("fp4-6", (17, 6, 1), "its bits are 4"),
    ("unknown-4", (18, 4, 1), "where do its elements lie?"), ("unknown-255", (255, 255, 1), "where do its elements lie?"),
    ("opaque-4", (3, 4, 1), "less than a byte"), ("opaque-12", (3, 12, 1), "a byte and a half"),
    ("lanes-0-opaque", (3, 8, 0), "no lane"), ("lanes-0-fp4", (17, 4, 0), "no lane"), ("bits-0-float", (2, 0, 1), "no bits"),
    ("bits-0-unknown", (200, 0, 1), "no bits"), ("bits-0-lanes", (255, 0, 65535), "no bits"), ("int-1", (0, 1, 1), "no such int"),
    ("uint-2", (1, 2, 1), "no such uint"), ("uint-128", (1, 128, 1), "no such uint"), ("complex-248", (5, 248, 1), "no such complex"),
    ("bool-32", (6, 32, 1), "a bool has 8 bits"), ("fp6-e2m3-4", (15, 4, 1), "its bits are 6"), ("fp6-e3m2-8", (16, 8, 1), "its bits are 6"),
    ("unknown-12", (200, 12, 1), "a byte and a half"), ("unknown-lanes-1", (200, 1, 8), "a byte of lanes"),
    ("unknown-lanes-4", (200, 4, 2), "a byte of lanes"),
    *((f"code-{code}-bits-{bits}", (code, bits, 1), "its bits are 8") for code in range(7, 15) for bits in (4, 16)
      if (code, bits) not in {(10, 16), (12, 4)}),
):
    illegal(f"dtype-{name}", ("dtype", "dtype"), why, "R56 R63 R64 R65 B98 B99 B102 B110", dtype=dtype)

# --- devices ------------------------------------------------------------------------------------------------------
legal("device-cpu-5", "host memory is not numbered", "R90 B127", device=(CPU, 5))
legal("device-cpu-minus-1", "host memory is not numbered", "R90 B127", device=(CPU, -1))
legal("device-cuda", "an ordinal", "R55", data=FAR, device=(CUDA, 0))
legal("device-cuda-7", "an ordinal that is kept", "R55 B120", data=FAR, device=(CUDA, 7))
legal("device-pinned", "pinned memory", "R55 B117", data=FAR, device=(PINNED, 0))
legal("device-pinned-3", "pinned memory is not numbered", "R90 B117", data=FAR, device=(PINNED, 3))
legal("device-managed", "managed memory", "R55 B116", data=FAR, device=(MANAGED, 0))
legal("device-managed-1", "CuPy writes an ordinal there", "R90 R91", data=FAR, device=(MANAGED, 1))
for code, name in {4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm", 11: "rocm-host", 12: "extdev", 14: "oneapi",
                   15: "webgpu", 16: "hexagon", 17: "maia", 18: "trn"}.items():
    illegal(f"device-{name}", ("device", "device_type"), "no memory that a consumer for CUDA and the host reaches",
            "R56 B119", choice=True, data=FAR, device=(code, 0))
for code in (0, 5, 6, 19, 20, 21, 77, -1, 2**31 - 1, -(2**31)):
    illegal(f"device-number-{code}", ("device", "device_type"), "a number that DLPack 1.3 does not list", "R56 R57 B130",
            data=FAR, device=(code, 0))
illegal("device-cuda-minus-1", ("device", "device_id"), "no ordinal", "B120", data=FAR, device=(CUDA, -1))

# --- version and flags --------------------------------------------------------------------------------------------
for minor in (0, 1, 2, 3, 4, 99, 2**32 - 1):
    versioned(f"version-1.{minor}", "minor versions add values only", "R60 R69 B69", version=(1, minor))
    versioned(f"version-1.{minor}-null-strides", "forbidden to producers since 1.2, and found in them", "R82 B69",
              version=(1, minor), strides=None)
for major, minor in ((0, 0), (0, 8), (2, 0), (2, 3), (2**32 - 1, 0)):
    illegal(f"version-{major}.{minor}", ("version", "version"), "another struct, of which only the deleter may be used",
            "R59 B147", form="versioned", version=(major, minor))
illegal("version-2.0-garbage", ("version", "version"), "whoever reads on follows pointers into nothing", "R59 B147",
        form="versioned", version=(2, 0), flags=2**64 - 1, ndim=3, shape=None, strides=None, data=8, dtype=(255, 3, 0),
        device=(99, 99))
for name, flags, why in (
    ("readonly", READ_ONLY, "may not be written"), ("copied", IS_COPIED, "a private copy"),
    ("readonly-copied", READ_ONLY | IS_COPIED, "a private copy that may not be written"), ("padded", PADDED, "padding of nothing"),
    ("all", 7, "every flag that 1.3 has"),
):
    versioned(f"flags-{name}", why, "R55 R71 B131 B133", flags=flags)
for name, flags in {"8": 8, "highest": 2**63, "all": 2**64 - 1, "all-but-readonly": 2**64 - 2}.items():
    versioned(f"flags-unknown-{name}", "flags of a later minor version say nothing about whole bytes", "R60", choice=True,
              flags=flags)
    illegal(f"flags-unknown-{name}-fp4", ("version", "flags"), "but may say where small elements lie, as `padded` did",
            "R60 R66", choice=True, form="versioned", flags=flags, dtype=FP4)

# --- deleter ------------------------------------------------------------------------------------------------------
legal("deleter-null", "nothing is to be released", "R92 B24", deleter=False)
legal("deleter-null-empty", "nothing is to be released", "R92 B24", shape=(0,), strides=(1,), data=0, deleter=False)
illegal("deleter-null-refused", ("dtype", "dtype"), "nothing is to be released after a refusal either", "R92 B24",
        dtype=(17, 8, 1), deleter=False)
illegal("deleter-null-version-2", ("version", "version"), "nor after another major version", "R59 R92 B24",
        form="versioned", version=(2, 0), deleter=False)

# --- host arrays of every type that NumPy and others support, for tests of exports -----------------------------------
for name, dtype in {"int8": (0, 8, 1), "uint8": UINT8, "int16": INT16, "float16": (2, 16, 1), "float64": (2, 64, 1),
                    "complex64": (5, 64, 1), "bool": (6, 8, 1)}.items():
    legal(f"hand-on-{name}-offset", "every type with an offset and gaps", "R72 R74 B85 B86", dtype=dtype, strides=(8, 2),
          byte_offset=16)
    versioned(f"hand-on-{name}-readonly", "still read-only behind us", "R72 B140", dtype=dtype, flags=READ_ONLY)
