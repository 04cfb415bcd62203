"""The cases of `cai.json`: how each changes a minimal dict, the expected result, the reason, and the rules it covers.

A legal row contains no facts, because `reader.py` computes them. An illegal row contains the kind of error and its place.
`choice=True` marks rows for which the specification allows several results; the reason states the choice of this corpus.
"""

# One row per line is easier to read.
# fmt: off

from reader import Index, Surrogates

ABSENT = object()
PLAIN = {"shape": (2, 3), "typestr": "<f4", "data": (0x10000, False), "version": 3}
HUGE, LOWEST, HIGHEST = 2**62, -(2**63), 2**63 - 1
NAN, INFINITE = float("nan"), float("inf")

LEGAL, ILLEGAL = [], []


def legal(name, why, ids, choice=False, **changes):
    LEGAL.append((name, changes, why, ids, choice))


def illegal(name, error, why, ids, choice=False, **changes):
    ILLEGAL.append((name, changes, error, why, ids, choice))


# --- keys ---------------------------------------------------------------------------------------------------------
legal("plain", "the four required keys and nothing else", "R25 R28 B64")
legal("every-key", "all keys of version 3, each with its plainest value", "R39 R42 R43", strides=None, stream=None,
      mask=None, descr=[("", "<f4")])
legal("unknown-key", "keys that the interface does not name mean nothing", "B156", owner="somebody", gpu=1)
legal("unknown-key-of-numpy", "`offset` belongs to NumPy's interface; the pointer is element [0, 0] already", "R8", offset=0)
for key in ("shape", "typestr", "data", "version"):
    illegal(f"no-{key}", ("missing", key), f"`{key}` is required, and the error names it", "R25 R26 B156",
            **{key: ABSENT})

# --- version ------------------------------------------------------------------------------------------------------
for version in range(4):
    legal(f"version-{version}", "every version from 0 to 3 is read; a version is no exact number to be met",
          "R26 B156 B161", version=version)
    legal(f"version-{version}-stream", "a stream is honoured whatever version states it", "R45 B1 B12", version=version,
          stream=0x7F0012345670)
    illegal(f"version-{version}-stream-0", ("stream", "stream"), "0 is ambiguous in every version", "R44 B2",
            version=version, stream=0)
legal("version-index", "a number in all but type, as NumPy's are", "B167", version=Index(2))
illegal("version-4", ("version", "version"), "a newer version may mean something else", "R27 B156", choice=True, version=4)
illegal("version-huge", ("version", "version"), "compared as a number of any size", "R27", version=2**100)
illegal("version-negative", ("version", "version"), "there was no such version", "R26", version=-1)
illegal("version-none", ("type", "version"), "None is no number", "R26", version=None)
illegal("version-float", ("type", "version"), "3.0 is no int", "R26 B173", version=3.0)
illegal("version-bool", ("type", "version"), "True is no version", "B173", version=True)
illegal("version-text", ("type", "version"), "a text is no int", "B173", version="3")
illegal("version-tuple", ("type", "version"), "DLPack's versions are pairs; this one is an int", "B173", version=(3, 0))

# --- shape --------------------------------------------------------------------------------------------------------
legal("shape-0d", "no axes, one element", "R2 B80", shape=())
legal("shape-1d", "one axis", "R2", shape=(5,))
legal("shape-5d", "compact strides are products of the inner extents", "R28", shape=(2, 3, 4, 5, 6))
legal("shape-list", "some producers write lists", "B65", choice=True, shape=[2, 3])
legal("shape-index", "anything with `__index__`: producers hand out NumPy's integers", "B167", shape=(Index(2), Index(3)))
legal("shape-ones", "axes of one element", "B72", shape=(1, 1, 1))
legal("shape-64-axes", "the most axes that NumPy has", "B169", shape=(1,) * 64)
legal("shape-above-2**31", "more elements than 31 bits count", "B166", shape=(2**31 + 5,))
legal("shape-above-2**32-bytes", "4 TiB", "B166 B168", shape=(2**20, 2**20))
legal("shape-most-bytes", "as many bytes as the widest processors address", "B166", shape=(2**57,), typestr="|u1")
illegal("shape-negative", ("shape", "shape[1]"), "an extent counts", "R84 B165", shape=(2, -1))
illegal("shape-negative-first", ("shape", "shape[0]"), "the lowest number", "R84", shape=(LOWEST, 2))
illegal("shape-negative-and-0", ("shape", "shape[1]"), "wrong although the array is empty", "R84 B165", shape=(0, -1))
illegal("shape-negative-twice", ("shape", "shape[0]"), "the product is positive, the shape is not", "B165", shape=(-2, -3))
illegal("shape-product-wraps-to-0", ("overflow", "shape"), "in 64 bits the product is 0", "B165",
        shape=(2**32, 2**32, 16))
illegal("shape-product-2**63", ("overflow", "shape"), "one more than a signed number holds", "B165", shape=(HUGE, 2))
illegal("shape-bytes-wrap", ("overflow", "shape"), "the elements fit, their bytes wrap to 0", "B168", shape=(HUGE,))
illegal("shape-bytes-2**63", ("overflow", "shape"), "half of all addresses", "B168", shape=(2**30, 2**31))
illegal("shape-bytes-2**61", ("overflow", "shape"), "they fit a number, and no processor; in bits they do not fit",
        "B166", choice=True, shape=(2**61,), typestr="|u1")
illegal("shape-2**63", ("overflow", "shape[0]"), "an extent that no signed number holds", "B165", shape=(2**63,))
illegal("shape-2**64", ("overflow", "shape[0]"), "cut to 64 bits it is 0", "B165", shape=(2**64,))
illegal("shape-2**64+2", ("overflow", "shape[0]"), "cut to 64 bits it is 2", "B165", shape=(2**64 + 2, 3))
illegal("shape-2**200", ("overflow", "shape[1]"), "no machine's number", "B165", shape=(2, 2**200))
illegal("shape-65-axes", ("rank", "shape"), "more axes than NumPy has", "B169", choice=True, shape=(1,) * 65)
illegal("shape-none", ("type", "shape"), "None is no tuple", "B173", shape=None)
illegal("shape-int", ("type", "shape"), "6 is no tuple", "B173", shape=6)
illegal("shape-text", ("type", "shape"), "a text is a sequence, of the wrong things", "B173", shape="23")
illegal("shape-bytes", ("type", "shape"), "bytes are a sequence of ints, and no tuple", "B173", shape=b"\2\3")
illegal("shape-dict", ("type", "shape"), "a dict is no tuple", "B173", shape={2: 3})
for name, value in {
    "float": 3.0, "nan": NAN, "infinite": INFINITE, "bool": True, "text": "3", "bytes": b"3", "none": None,
    "tuple": (3,), "list": [3],
}.items():
    illegal(f"shape-of-{name}", ("type", "shape[1]"), "an extent is an int, and nothing that could be taken for one",
            "B167 B173", shape=(2, value))

# --- data ---------------------------------------------------------------------------------------------------------
legal("readonly", "the flag is kept", "R37 B140", data=(0x10000, True))
legal("readonly-1", "C producers write 0 and 1", "B140", choice=True, data=(0x10000, 1))
legal("readonly-0", "C producers write 0 and 1", "B140", choice=True, data=(0x10000, 0))
legal("readonly-transposed", "the flag has nothing to do with the layout", "B140", data=(0x10000, True), strides=(4, 8))
legal("address-index", "a number in all but type", "B167", data=(Index(0x20000), False))
legal("address-odd", "alignment is asked for where elements are read, not here", "R76 B87", data=(0x10001, False))
legal("address-above-2**63", "addresses have 64 bits and no sign", "B166", data=(2**63 + 16, False))
legal("address-last", "the last byte of the array is the last that has an address", "B166", data=(2**64 - 25, False))
illegal("address-beyond", ("overflow", "shape"), "the last element lies beyond the last address", "B165",
        data=(2**64 - 8, False))
illegal("address-null", ("null", "data"), "elements at address 0", "R32 B170", data=(0, False))
illegal("address-near-null", ("null", "data"), "a part of an array whose memory was freed", "R32 B170", data=(4, False))
illegal("address-none", ("null", "data"), "None stands for 0, and there are elements", "R32 B77", data=(None, False))
illegal("address-null-0d", ("null", "data"), "a scalar is an element", "R32", shape=(), data=(0, False))
illegal("address-negative", ("overflow", "data[0]"), "no address", "B165", data=(-4096, False))
illegal("address-2**64", ("overflow", "data[0]"), "cut to 64 bits it is 0", "B165", data=(2**64, False))
illegal("address-2**200", ("overflow", "data[0]"), "no machine's number", "B165", data=(2**200, False))
for name, value in {"float": 65536.0, "nan": NAN, "bool": True, "text": "65536", "bytes": b"\0" * 8, "tuple": (1,)}.items():
    illegal(f"address-{name}", ("type", "data[0]"), "an address is an int", "B114 B173", data=(value, False))
for name, value in {"none": None, "text": "False", "two": 2, "float": 0.0, "list": []}.items():
    illegal(f"readonly-{name}", ("type", "data[1]"), "what is neither yes nor no is not guessed", "R37 B140",
            data=(0x10000, value))
illegal("data-one", ("type", "data"), "an address without the flag", "R3", data=(0x10000,))
illegal("data-three", ("type", "data"), "one value more than there are", "R3", data=(0x10000, False, None))
illegal("data-nothing", ("type", "data"), "an empty tuple", "R3", data=())
illegal("data-int", ("type", "data"), "an address alone", "R3", data=0x10000)
illegal("data-none", ("type", "data"), "NumPy's interface allows None, for a buffer; this one has none", "R3", data=None)
illegal("data-buffer", ("type", "data"), "NumPy's interface allows a buffer, on the host", "R3", data=b"\0" * 24)
illegal("data-list", ("type", "data"), "the interface says tuple", "R3", choice=True, data=[0x10000, False])

# --- arrays without elements --------------------------------------------------------------------------------------
for name, address in {"null": 0, "none": None, "dangling": 0xDEADBEEF, "last-address": 2**64 - 1}.items():
    legal(f"empty-{name}", "nobody may look at the address of an empty array, so any will do", "R32 R33 B77 B78",
          shape=(3, 0, 2), data=(address, False))
legal("empty-1d", "an extent of 0", "R32", shape=(0,))
legal("empty-first", "the first extent is 0", "R32", shape=(0, 3), data=(0, True))
legal("empty-last", "the last extent is 0", "R32", shape=(3, 0))
legal("empty-huge", "products are of no interest when there is no element", "B165", shape=(0, HUGE))
legal("empty-huge-around", "in whatever order the factors come", "B165", shape=(HUGE, HUGE, 0, HUGE))
for name, strides in {
    "compact": (80, 80, 4), "zero": (0, 0, 0), "no-multiples": (7, -3, 5), "negative": (-80, -80, -4),
    "huge": (HUGE, HUGE, HUGE), "lowest": (LOWEST, LOWEST, LOWEST), "highest": (HIGHEST, 1, LOWEST),
}.items():
    legal(f"empty-strides-{name}", "strides of an empty array say nothing", "B74 B76", shape=(100, 0, 20),
          strides=strides)
illegal("empty-strides-too-few", ("strides", "strides"), "there is still one for each axis", "R30", shape=(0, 3),
        strides=(4,))
illegal("empty-typestr", ("dtype", "typestr"), "no element, but a type", "R41", shape=(0,), typestr=">f4")

# --- strides ------------------------------------------------------------------------------------------------------
legal("strides-none", "None and no key are the same", "R28 B62 B64 B92", strides=None)
legal("strides-explicit-c", "compact strides may be written out", "R29 B62 B66", strides=(12, 4))
legal("strides-list", "some producers write lists", "B65", choice=True, strides=[12, 4])
legal("strides-index", "numbers in all but type", "B167", strides=(Index(12), Index(4)))
legal("strides-0d", "no axes, no strides", "B80", shape=(), strides=())
legal("strides-0d-none", "no axes, no strides", "B80", shape=(), strides=None)
legal("strides-of-16-bytes", "default strides count the items of the source", "R28 B62", typestr="<c16")
legal("strides-of-3-bytes", "items need not be a power of two", "R28", typestr="|V3", strides=(9, 3))
legal("strides-f", "the first axis varies fastest", "R31 B93", strides=(4, 8))
legal("strides-f-3d", "the first axis varies fastest", "B93", shape=(2, 3, 4), strides=(4, 8, 24))
legal("strides-permuted", "neither order", "R31", shape=(2, 3, 4), strides=(4, 32, 8))
legal("strides-gaps", "rows with room behind them", "R31 B95", strides=(64, 4))
legal("strides-every-other", "a slice with a step", "R31 B95", strides=(24, 8))
legal("strides-column", "one column of a matrix", "B93 B95", shape=(5,), strides=(64,))
legal("strides-backwards", "the address is that of element [0, 0]; the memory lies below it", "R31 R89 B81 B84",
      strides=(-12, 4))
legal("strides-backwards-both", "the lowest address is that of the last element", "R31 R89 B84", strides=(-12, -4))
legal("strides-backwards-to-the-start", "down to the lowest address that memory has", "R89", shape=(3,),
      data=(4104, False), typestr="|u1", strides=(-4,))
legal("strides-broadcast", "all rows are one", "R31 B91", strides=(0, 4))
legal("strides-broadcast-all", "all elements are one", "R31 B91", strides=(0, 0))
legal("strides-broadcast-huge", "many elements in little memory", "R89 B89", shape=(2**40, 3), strides=(0, 4))
legal("strides-overlap", "elements share bytes", "R89", strides=(4, 4))
legal("strides-span", "span of the warp fault: the sum over all axes, not the largest stride", "R89 B89", shape=(3, 3),
      strides=(16, 12))
legal("strides-of-bytes", "one byte divides everything", "R85", typestr="|u1", strides=(7, 2))
legal("strides-reach-widest", "as far as the widest processors address", "R89", shape=(2,), typestr="|u1",
      data=(4096, False), strides=(2**57,))
legal("strides-one-odd", "an axis of one element is never stepped along: no multiple is needed", "B75", typestr="<f8",
      shape=(1, 10), strides=(4, 8))
legal("strides-one-kept", "a column of a matrix is still contiguous", "B72 B73", shape=(3, 1), strides=(4, 400))
legal("strides-one-single", "NumPy's and torch's corner: one element with any stride", "B72", shape=(1,), strides=(8,))
legal("strides-one-negative", "left over from a flip", "B83", typestr="<f8", shape=(1, 10, 20), strides=(-1600, 160, 8))
legal("strides-one-zero", "left over from a broadcast", "B73", shape=(1, 3), strides=(0, 4))
legal("strides-one-highest", "cannot overflow, because nothing is added", "B89", shape=(1, 3), strides=(HUGE, 4))
legal("strides-one-lowest", "cannot overflow, because nothing is added", "B89", shape=(1, 3), strides=(LOWEST, 4))
legal("strides-one-f", "both orders at once", "B73", shape=(1024, 1), strides=(4, 4096))
legal("strides-one-channels", "an image as torch strides it", "B73", shape=(1, 1, 768, 768),
      strides=(2359296, 2359296, 3072, 4))
illegal("strides-too-few", ("strides", "strides"), "one stride for each axis", "R30", strides=(4,))
illegal("strides-too-many", ("strides", "strides"), "one stride for each axis", "R30", strides=(24, 12, 4))
illegal("strides-nothing", ("strides", "strides"), "an empty tuple is not None", "R30", strides=())
illegal("strides-0d-one", ("strides", "strides"), "a scalar has no axis", "R30", shape=(), strides=(4,))
for name, changes, place in (
    ("first", {"strides": (13, 4)}, 0), ("last", {"strides": (12, 2)}, 1), ("negative", {"strides": (-13, 4)}, 0),
    ("one", {"strides": (12, 1)}, 1), ("half-an-f8", {"typestr": "<f8", "shape": (2, 10), "strides": (4, 8)}, 0),
    ("complex", {"typestr": "<c8", "strides": (12, 8)}, 0), ("of-3", {"typestr": "|V3", "strides": (9, 4)}, 1),
):
    illegal(f"strides-no-multiple-{name}", ("strides", f"strides[{place}]"),
            "elements would begin inside of others; DLPack cannot say it", "R6 R85 B67 B75", **changes)
illegal("strides-reach-sum", ("overflow", "strides"), "each stride fits, the sum does not", "B89 B165", typestr="|u1",
        strides=(HUGE, HUGE // 2))
illegal("strides-reach-product", ("overflow", "strides"), "extent times stride does not fit", "B89 B165", typestr="|u1",
        shape=(2**31, 2**31), strides=(2**33, 1))
illegal("strides-reach-lowest", ("overflow", "strides"), "the lowest number", "B165", strides=(LOWEST, 4))
illegal("strides-reach-huge", ("overflow", "strides"), "beyond the last address", "B89", strides=(HUGE, 4), shape=(4, 3))
illegal("strides-reach-below-0", ("overflow", "strides"), "backwards beyond the first address", "R89",
        strides=(-131072, 4))
illegal("strides-reach-above-the-end", ("overflow", "strides"), "forwards beyond the last address", "R89",
        data=(2**64 - 16, False), strides=(16, 4))
illegal("strides-reach-2**61", ("overflow", "strides"), "it fits a number, and no processor; in bits it does not fit",
        "B89", choice=True, shape=(2,), typestr="|u1", strides=(2**61,))
illegal("strides-2**63", ("overflow", "strides[0]"), "no signed number holds it", "B165", strides=(2**63, 4))
illegal("strides-2**64", ("overflow", "strides[0]"), "cut to 64 bits it is 0", "B165", strides=(2**64, 4))
illegal("strides-2**200", ("overflow", "strides[1]"), "no machine's number", "B165", strides=(12, 2**200))
illegal("strides-below-lowest", ("overflow", "strides[0]"), "no signed number holds it", "B165", strides=(LOWEST - 1, 4))
for name, value in {"int": 4, "zero": 0, "false": False, "text": "C", "dict": {}, "float": 4.0}.items():
    illegal(f"strides-{name}", ("type", "strides"), "neither None nor a tuple", "B173", strides=value)
for name, value in {"float": 4.0, "nan": NAN, "bool": True, "text": "4", "none": None, "tuple": (4,)}.items():
    illegal(f"strides-of-{name}", ("type", "strides[1]"), "a stride is an int", "B167 B173", strides=(12, value))

# --- typestr ------------------------------------------------------------------------------------------------------
for kind, sizes in {"i": (2, 4, 8), "u": (2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}.items():
    for size in sizes:
        legal(f"typestr-{kind}{size}", "the native order, written out", "R40 B104 B105", typestr=f"<{kind}{size}")
for kind in "biu":
    for order, word in {"<": "little", ">": "big", "|": "none"}.items():
        legal(f"typestr-{kind}1-{word}", "one byte has no order, so every sign will do", "R40 B105",
              typestr=f"{order}{kind}1")
for size in (1, 3, 12, 65535):
    legal(f"typestr-V{size}", "bytes that nobody looks into", "R41", choice=True, typestr=f"|V{size}")
for text, why in {
    "": "nothing", "<": "an order", "<f": "no size", "f4": "no order", "4": "a size", "<<f4": "two orders",
    "<ff4": "two kinds", "<f4 ": "a blank behind", " <f4": "a blank before", "<f 4": "a blank between",
    "<f4\n": "a line break", "<f4\0": "a zero byte", "<f-4": "a sign", "<f+4": "a sign", "<f4.0": "a point",
    "<f0x4": "hexadecimal", "<f1_6": "an underscore", "!f4": "an order of Python's `struct`", "@f4": "likewise",
    "<F4": "a large letter", "|B1": "NumPy's letter for bytes", "<f²": "a raised digit",
    "<f٤": "an Arabic digit", "<ｆ4": "a wide letter", "<f４": "a wide digit", "é": "two bytes in UTF-8",
    "<😀4": "four bytes in UTF-8", "float32": "a name", "bfloat16": "a name", "(2,)<f4": "a sub-array",
    "<f4,<f4": "a record", "|?1": "Python's letter for bool",
}.items():
    illegal(f"typestr-grammar-{ascii(text)[1:-1] or 'empty'}".replace(" ", "_"), ("dtype", "typestr"),
            f"not in the grammar: {why}", "R40 B104 B109", typestr=text)
for text in (">i2", ">i4", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16"):
    illegal(f"typestr-{text}", ("dtype", "typestr"), "the other byte order (on a machine that is little-endian)", "R40 B104",
            typestr=text)
for text in ("|i2", "|f4", "|c8"):
    illegal(f"typestr-{text}", ("dtype", "typestr"), "more than one byte have an order", "R40 B104", typestr=text)
for text in ("=f4", "=u1", "=b1"):
    illegal(f"typestr-{text}", ("dtype", "typestr"), "`=` is NumPy's, and outside of the interface's grammar", "R40 B104",
            choice=True, typestr=text)
for text in ("<b0", "|b2", "<i0", "<i3", "<i16", "<u5", "<f0", "<f1", "<f3", "<f10", "<f16", "<c2", "<c4", "<c24",
             "<c32", "<f256", "<i264", "<f8589934592", "<f18446744073709551620", "<f" + "9" * 100):
    illegal(f"typestr-{text[:24]}", ("dtype", "typestr"), "a size that the kind does not have, or that wraps into one",
            "R40 R41 B102 B109", typestr=text)
for text, why in {
    "|O8": "Python objects", "|S4": "bytes of C", "<U4": "text", "<M8": "a point in time", "<m8": "a time",
    "<M8[ns]": "a point in time with its unit", "|t1": "bits", "|t8": "bits",
}.items():
    illegal(f"typestr-{text}", ("dtype", "typestr"), f"{why}: no numbers", "R41 B105", typestr=text)
for text, why in {
    "<V2": "torch writes this for bfloat16, and no reader can know", "<V1": "for some float8", "<V8": "bytes have no order",
    "|V0": "no bytes",
}.items():
    illegal(f"typestr-{text}", ("dtype", "typestr"), why, "R17 R41 B101", choice=text == "<V8", typestr=text)
illegal("typestr-surrogate", ("dtype", "typestr"), "half a character", "B109", typestr=Surrogates("\ud800"))
illegal("typestr-surrogate-behind", ("dtype", "typestr"), "half a character", "B109", typestr=Surrogates("<f4\udfff"))
for name, value in {"none": None, "bytes": b"<f4", "int": 4, "tuple": ("<f4",), "list": ["<f4"], "bool": True}.items():
    illegal(f"typestr-{name}", ("type", "typestr"), "a typestr is a text", "B173", typestr=value)

# --- descr --------------------------------------------------------------------------------------------------------
RECORDS = "R23 R42"
for name, descr in {"unnamed": [("", "<f4")], "named": [("x", "<f4")], "0d": [("", "<f4", ())], "none": None}.items():
    legal(f"descr-plain-{name}", "says no more than the typestr; CuPy always sends it", "R42", descr=descr)
for name, size, descr, why in (
    ("two", 8, [("x", "<f4"), ("y", "<f4")], "two fields"),
    ("mixed", 7, [("id", "<u2"), ("tag", "|i1"), ("value", "<f4")], "fields without gaps"),
    ("one", 4, [("x", "<f4")], "one field"),
    ("blob", 12, [("blob", "|V12")], "bytes with a name"),
    ("itself", 12, [("", "|V12")], "bytes without one"),
    ("padding", 8, [("flag", "|u1"), ("", "|V3"), ("x", "<f4")], "a gap is an entry without a name"),
    ("padding-twice", 12, [("", "|V4"), ("x", "<f4"), ("", "|V4")], "and gaps may be many"),
    ("title", 8, [(("the x", "x"), "<f4"), (("the y", "y"), "<f4")], "NumPy writes a title and a name"),
    ("array", 12, [("position", "<f4", (3,))], "a field of three"),
    ("matrix", 24, [("matrix", "<f4", (2, 3))], "a field of two axes"),
    ("array-int", 12, [("position", "<f4", 3)], "one extent without a tuple"),
    ("array-empty", 4, [("x", "<f4"), ("none", "<f4", (0,))], "a field of nothing"),
    ("nested", 12, [("position", [("x", "<f4"), ("y", "<f4")]), ("weight", "<f4")], "a record in the record"),
    ("nested-array", 20, [("corners", [("x", "<f4"), ("y", "<f4")], (2,)), ("weight", "<f4")], "two of them"),
    ("nested-deep", 1, [("a", [("b", [("c", [("d", [("e", "|u1")])])])])], "five deep"),
    ("names-by-level", 8, [("x", [("x", "<f4")]), ("y", "<f4")], "names differ within one level"),
    ("unicode", 12, [("größe", "<f4"), ("a b", "<f4"), ("😀", "<f4")], "any text is a name"),
    ("bool-complex", 17, [("valid", "|b1"), ("z", "<c16")], "no alignment is asked for"),
    ("biggest", 65535, [("bytes", "|u1", (65535,))], "the most bytes that have a typestr here"),
):
    legal(f"descr-{name}", why, RECORDS, typestr=f"|V{size}", descr=descr)
for name, size, descr, kind, why in (
    ("too-small", 8, [("x", "<f4")], "dtype", "fields of less than the typestr says"),
    ("too-big", 8, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")], "dtype", "fields of more"),
    ("nothing", 8, [], "dtype", "no fields"),
    ("nested-nothing", 8, [("p", []), ("x", "<f8")], "dtype", "a record of nothing"),
    ("size-wraps", 8, [("x", "<f8", (2**61, 8))], "dtype", "the product of a field wraps"),
    ("size-wraps-to-itself", 8, [("a", "|u1", (2**32, 2**32)), ("x", "<f8")], "dtype", "it wraps to 0"),
    ("extent-negative", 8, [("x", "<f4", (-2,))], "shape", "an extent counts"),
    ("extents-negative-twice", 8, [("x", "<f4", (-1, -2))], "shape", "their product is positive"),
    ("extents-65", 4, [("x", "<f4", (1,) * 65)], "rank", "more axes than there are"),
    ("foreign-order", 8, [("x", ">f4"), ("y", "<f4")], "dtype", "the rules of typestr hold inside"),
    ("object", 8, [("x", "|O8")], "dtype", "the rules of typestr hold inside"),
    ("bfloat16", 4, [("x", "<V2"), ("y", "<V2")], "dtype", "the rules of typestr hold inside"),
    ("nonsense", 8, [("x", "eight bytes")], "dtype", "the rules of typestr hold inside"),
    ("same-name", 8, [("x", "<f4"), ("x", "<f4")], "dtype", "two fields of one name"),
    ("same-name-nested", 8, [("p", [("x", "<f4"), ("x", "<f4")])], "dtype", "on a level below"),
    ("type-none", 8, [("x", None)], "type", "no type"),
    ("type-bytes", 8, [("x", b"<f8")], "type", "bytes are no text"),
    ("name-none", 8, [(None, "<f8")], "type", "no name"),
    ("name-int", 8, [(1, "<f8")], "type", "a number is no name"),
    ("title-alone", 8, [(("x",), "<f8")], "type", "a title without a name"),
    ("form-dict", 8, {"x": "<f8"}, "type", "a dict"),
    ("form-tuple", 8, (("x", "<f8"),), "type", "a tuple of entries"),
    ("form-text", 8, "x", "type", "a text"),
    ("form-int", 8, 8, "type", "a number"),
    ("entry-list", 8, [["x", "<f8"]], "type", "an entry is a tuple"),
    ("entry-one", 8, [("x",)], "type", "a name alone"),
    ("entry-four", 8, [("x", "<f8", (), None)], "type", "one value more than there are"),
    ("entry-none", 8, [None], "type", "no entry"),
    ("shape-float", 8, [("x", "<f4", 2.0)], "type", "2.0 is no extent"),
    ("shape-bool", 8, [("x", "<f8", True)], "type", "nor is True"),
    ("shape-none", 8, [("x", "<f8", None)], "type", "nor is None"),
):
    illegal(f"descr-{name}", (kind, "descr"), why, "R23 R41 R42", typestr=f"|V{size}", descr=descr)
for name, typestr, descr in (
    ("other-type", "<f4", [("", "<i4")]), ("two-halves", "<f4", [("x", "<f2"), ("y", "<f2")]),
    ("bytes", "<f4", [("", "|V4")]), ("parts-of-complex", "<c8", [("re", "<f4"), ("im", "<f4")]),
    ("bool-as-uint", "|b1", [("", "|u1")]), ("pair", "<f8", [("x", "<f4", (2,))]), ("nested", "<f8", [("x", [("y", "<f8")])]),
):
    illegal(f"descr-contradicts-{name}", ("dtype", "descr"), "a record whose typestr says that it is none", "R42 B99",
            typestr=typestr, descr=descr)

# --- stream -------------------------------------------------------------------------------------------------------
legal("stream-none", "nothing is pending; it crashed a consumer", "R43 B1 B13", stream=None)
legal("stream-legacy", "1 is the legacy default stream, and no handle", "R45 B2", stream=1)
legal("stream-per-thread", "2 is the default stream of the thread, and no handle", "R45 B2", stream=2)
legal("stream-handle", "any other number is a handle", "R45 B12", stream=0x55D0C0FFEE00)
legal("stream-highest", "a handle has 64 bits and no sign", "R45", stream=2**64 - 1)
legal("stream-index", "a number in all but type", "B167", stream=Index(2))
legal("stream-empty-array", "a stream beside an empty array", "R45", shape=(0,), stream=1)
illegal("stream-0", ("stream", "stream"), "legacy or per-thread? It depends on who reads it", "R44 B2", stream=0)
for name, value in {"minus-1": -1, "minus-2": -2, "lowest": LOWEST, "2**64": 2**64, "2**100": 2**100}.items():
    illegal(f"stream-{name}", ("stream", "stream"), "no handle; -1 is DLPack's", "R48 B8", stream=value)
for name, value in {"true": True, "false": False, "float": 1.0, "nan": NAN, "text": "1", "tuple": (1,), "bytes": b"1"}.items():
    illegal(f"stream-{name}", ("type", "stream"), "a stream is an int or None", "R48 B173", stream=value)

# --- mask ---------------------------------------------------------------------------------------------------------
legal("mask-none", "None and no key are the same", "R39 B155", mask=None)
illegal("mask-dict", ("mask", "mask"), "elements that are not valid are read as if they were", "R38 B155", mask=dict(PLAIN))
illegal("mask-false", ("mask", "mask"), "False is not None", "R38", choice=True, mask=False)
illegal("mask-0", ("mask", "mask"), "0 is not None", "R38", choice=True, mask=0)
illegal("mask-empty-dict", ("mask", "mask"), "an empty dict is not None", "R38", choice=True, mask={})
illegal("mask-version-1", ("mask", "mask"), "a mask exists since version 1", "R38 B155", version=1, mask=dict(PLAIN))
illegal("mask-empty-array", ("mask", "mask"), "also where nothing is masked", "R38", shape=(0,), mask=dict(PLAIN))
