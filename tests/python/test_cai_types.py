"""`parse_cai`: the keys typestr and descr (R15 to R17, R40 to R42, bugs 101, 104, 105, 109)."""

import interop_demo
import numpy as np
import pytest
from interfaces import ArrayError, assert_facts, assert_refused, dict_with, table
from scripts import run

# The spellings, the normalized one, and the size in bytes.
LEGAL = [
    (("|b1", "<b1", ">b1"), "|b1", 1),
    (("|i1", "<i1", ">i1"), "|i1", 1),
    (("|u1", "<u1", ">u1"), "|u1", 1),
    *(((f"<{kind}{size}",), f"<{kind}{size}", size) for kind in "iu" for size in (2, 4, 8)),
    *(((f"<f{size}",), f"<f{size}", size) for size in (2, 4, 8)),
    *(((f"<c{size}",), f"<c{size}", size) for size in (8, 16)),
    *(((f"|V{size}",), f"|V{size}", size) for size in (1, 2, 3, 8, 12, 65535)),
    ((np.str_("<f4"), type("Text", (str,), {})("<f4")), "<f4", 4),
]


@pytest.mark.parametrize(
    ("typestr", "dtype", "size"),
    [
        pytest.param(text, dtype, size, id=f"{type(text).__name__} {text}")
        for texts, dtype, size in LEGAL
        for text in texts
    ],
)
def test_legal(typestr, dtype, size):
    assert_facts(interop_demo.parse_cai(dict_with(typestr=typestr)), dtype=dtype, nbytes=6 * size)


NONSENSE = [
    "",
    "<",
    "<f",
    "f4",
    "4",
    "4f<",
    "<<f4",
    "<ff4",
    "<f4<f4",
    "<f4 ",
    " <f4",
    "< f4",
    "<f 4",
    "<f4\n",
    "\t<f4",
    "<f4\0",
    "\0",
    "<f-4",
    "<f+4",
    "<f4.0",
    "<f4e0",
    "<f0x4",
    "<f1_6",
    "<fN",
    "!f4",
    "@f4",
    "~f4",
    "-f4",
    "<F4",
    "<I4",
    "<B1",
    "|B1",
    "<f٤",
    "<ｆ4",
    "<f４",
    "＜f4",
    "é",
    "\U0001f600",
    "<\U0001f6004",
    "float32",
    "bfloat16",
    "f32",
    "int",
    "<f4,<f4",
    "(2,)<f4",
    "<2f4",
]
# `=` is outside the grammar of the interface; the others are written by NumPy on other machines.
FOREIGN = ["=f4", "=u1", "=b1", "=V8", ">i2", ">i4", ">i8", ">u2", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16"]
NO_ORDER = ["|i2", "|i4", "|u8", "|f2", "|f4", "|f8", "|c8"]
SIZES = [
    "<b0",
    "|b2",
    "<b4",
    "<i0",
    "<i3",
    "<i16",
    "<u0",
    "<u5",
    "<u16",
    "<f0",
    "<f1",
    "<f3",
    "<f10",
    "<f12",
    "<f16",
    "<f32",
    "<c0",
    "<c2",
    "<c4",
    "<c24",
    "<c32",
    "<f256",
    "<i264",
    "<f260",
    "<f8589934592",
    "<f18446744073709551620",
    "<f" + "9" * 400,
]
KINDS = [
    "|O8",
    "<O8",
    "|S4",
    "|S0",
    "<S4",
    "<U4",
    "|U4",
    "<M8",
    "<M8[ns]",
    "<m8",
    "<m8[us]",
    "|t1",
    "|t8",
    "|?1",
    "|g8",
    "<e2",
    "|a4",
]
OPAQUE = ["<V1", "<V2", "<V8", ">V8", "|V0", "|V65536", "|V131070", "|V" + "9" * 30, "|V", "|V-1"]


@pytest.mark.parametrize("typestr", [*NONSENSE, *FOREIGN, *NO_ORDER, *SIZES, *KINDS, *OPAQUE], ids=ascii)
def test_illegal(typestr):
    assert_refused(dict_with(typestr=typestr), ArrayError, "typestr")


@pytest.mark.parametrize("typestr", ["\ud800", "<f\udfff", "\udc80f4"], ids=ascii)
def test_text_that_is_no_unicode(typestr):
    assert_refused(dict_with(typestr=typestr), ArrayError, "typestr")


@pytest.mark.parametrize(
    "typestr",
    [None, b"<f4", bytearray(b"<f4"), 4, 4.0, True, ("<f4",), ["<f4"], np.dtype("<f4"), np.float32, float, {}],
    ids=repr,
)
def test_no_text(typestr):
    assert_refused(dict_with(typestr=typestr), TypeError, "typestr")


def test_messages_help():
    """R17, bug 101: for `<V2`, PyTorch's bfloat16, the message suggests DLPack; for `>f4` the native spelling; long
    strings are cut.
    """
    with pytest.raises(ArrayError, match="use DLPack for a bfloat16 array"):
        interop_demo.parse_cai(dict_with(typestr="<V2"))
    with pytest.raises(ArrayError, match='found ">f4", allowed: the native byte order, "<f4"'):
        interop_demo.parse_cai(dict_with(typestr=">f4"))
    with pytest.raises(ArrayError) as caught:
        interop_demo.parse_cai(dict_with(typestr="x" * 10_000_000))
    assert len(str(caught.value)) < 300


def test_every_text_of_two_and_three_characters():
    """R40: exactly the strings of the table are accepted, and nothing else happens (bug 109)."""
    characters = "<>|= bBiufcVOSUMmt0123456789"
    accepted = {
        order + kind + size
        for order in characters
        for kind in characters
        for size in ["", *characters]
        if accepts(order + kind + size)
    }
    expected = {text for texts, *_ in LEGAL for text in texts if len(text) == 3}
    expected |= {f"|V{size}" for size in range(1, 10)}
    assert accepted == expected


def accepts(typestr):
    try:
        interop_demo.parse_cai(dict_with(typestr=typestr))
    except ArrayError:
        return False
    return True


# descr: the size of the element in bytes, and the list.
RECORDS = table(
    ("two-floats", 8, [("x", "<f4"), ("y", "<f4")]),
    ("mixed", 7, [("id", "<u2"), ("tag", "|i1"), ("value", "<f4")]),
    ("one-field", 4, [("x", "<f4")]),
    ("one-unnamed-field", 4, [("", "<f4")]),
    ("opaque-itself", 12, [("", "|V12")]),
    ("opaque-named", 12, [("blob", "|V12")]),
    ("padding-between", 8, [("flag", "|u1"), ("", "|V3"), ("x", "<f4")]),
    ("padding-behind", 8, [("x", "<f4"), ("", "|V4")]),
    ("padding-twice", 12, [("", "|V4"), ("x", "<f4"), ("", "|V4")]),
    ("title", 8, [(("the x", "x"), "<f4"), (("the y", "y"), "<f4")]),
    ("array-field", 12, [("position", "<f4", (3,))]),
    ("array-field-2d", 24, [("matrix", "<f4", (2, 3))]),
    ("array-field-int", 12, [("position", "<f4", 3)]),
    ("array-field-numpy-int", 12, [("position", "<f4", (np.int64(3),))]),
    ("array-field-0d", 4, [("x", "<f4", ())]),
    ("array-field-empty", 4, [("x", "<f4"), ("none", "<f4", (0,))]),
    ("array-of-padding", 8, [("x", "<f4"), ("", "|V1", (4,))]),
    ("nested", 12, [("position", [("x", "<f4"), ("y", "<f4")]), ("weight", "<f4")]),
    ("nested-array", 20, [("corners", [("x", "<f4"), ("y", "<f4")], (2,)), ("weight", "<f4")]),
    ("nested-deep", 1, [("a", [("b", [("c", [("d", [("e", "|u1")])])])])]),
    ("same-name-on-two-levels", 8, [("x", [("x", "<f4")]), ("y", "<f4")]),
    ("bool-and-complex", 17, [("valid", "|b1"), ("z", "<c16")]),
    ("one-byte-orders", 3, [("a", "<u1"), ("b", ">i1"), ("c", "|b1")]),
    ("names-of-all-kinds", 12, [("größe", "<f4"), ("a b", "<f4"), ("\U0001f600", "<f4")]),
    ("biggest", 65535, [("bytes", "|u1", (65535,))]),
)


@pytest.mark.parametrize(("size", "descr"), RECORDS)
def test_records(size, descr):
    found = interop_demo.parse_cai(dict_with(typestr=f"|V{size}", descr=descr))
    assert_facts(found, dtype=f"|V{size}", nbytes=6 * size)


@pytest.mark.parametrize("descr", [None, [("", "<f4")], [("x", "<f4")], [("", "<f4", ())]], ids=repr)
def test_descr_that_says_no_more_than_the_typestr(descr):
    """R42: CuPy always sends one unnamed field."""
    assert_facts(interop_demo.parse_cai(dict_with(descr=descr)))


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "u1"), ("b", "<f4")], align=True),
        np.dtype([("a", "<f4", (2, 2)), ("b", [("c", "<i8"), ("d", "u1", 3)])]),
        np.dtype({"names": ["x", "y"], "formats": ["<f4", "<f8"], "offsets": [4, 16], "itemsize": 32}),
        np.dtype([(("title", "name"), "<i4"), ("other", "?")]),
    ],
    ids=str,
)
def test_descr_of_numpy(dtype):
    """The descr that NumPy writes for its own records."""
    found = interop_demo.parse_cai(dict_with(typestr=dtype.str, descr=dtype.descr))
    assert_facts(found, dtype=f"|V{dtype.itemsize}", nbytes=6 * dtype.itemsize)


BAD_RECORDS = table(
    # the size (R23)
    ("too-small", 8, [("x", "<f4")], ArrayError),
    ("too-big", 8, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")], ArrayError),
    ("nothing", 8, [], ArrayError),
    ("array-too-big", 8, [("x", "<f4", (3,))], ArrayError),
    ("nested-too-small", 8, [("p", [("x", "<f4")])], ArrayError),
    ("nested-nothing", 8, [("p", []), ("x", "<f8")], ArrayError),
    ("size-wraps", 8, [("x", "<f8", (2**62, 8))], ArrayError),
    ("size-wraps-to-itself", 8, [("a", "|u1", (2**32, 2**32)), ("x", "<f8")], ArrayError),
    ("extent-2**63", 8, [("x", "<f8", (2**63,))], ArrayError),
    ("extent-2**100", 8, [("x", "<f8", 2**100)], ArrayError),
    ("extent-2**200", 8, [("x", "<f8", 2**200)], ArrayError),
    ("extent-negative", 8, [("x", "<f4", (-2,))], ArrayError),
    ("extents-negative-twice", 8, [("x", "<f4", (-1, -2))], ArrayError),
    ("extents-65", 4, [("x", "<f4", (1,) * 100_000)], ArrayError),
    # the types of fields
    ("foreign-order", 8, [("x", ">f4"), ("y", "<f4")], ArrayError),
    ("equals", 8, [("x", "=f4"), ("y", "<f4")], ArrayError),
    ("object", 8, [("x", "|O8")], ArrayError),
    ("text", 8, [("x", "<U2")], ArrayError),
    ("bfloat16", 4, [("x", "<V2"), ("y", "<V2")], ArrayError),
    ("nonsense", 8, [("x", "eight bytes")], ArrayError),
    ("type-none", 8, [("x", None)], TypeError),
    ("type-bytes", 8, [("x", b"<f8")], TypeError),
    ("type-dtype", 8, [("x", np.dtype("<f8"))], TypeError),
    ("type-tuple", 8, [("x", (("y", "<f8"),))], TypeError),
    # names
    ("same-name", 8, [("x", "<f4"), ("x", "<f4")], ArrayError),
    ("same-name-nested", 8, [("p", [("x", "<f4"), ("x", "<f4")])], ArrayError),
    ("name-none", 8, [(None, "<f8")], TypeError),
    ("name-bytes", 8, [(b"x", "<f8")], TypeError),
    ("name-int", 8, [(1, "<f8")], TypeError),
    ("title-alone", 8, [(("x",), "<f8")], TypeError),
    ("title-three", 8, [(("a", "b", "c"), "<f8")], TypeError),
    # the form
    ("dict", 8, {"x": "<f8"}, TypeError),
    ("tuple", 8, (("x", "<f8"),), TypeError),
    ("str", 8, "x", TypeError),
    ("int", 8, 8, TypeError),
    ("false", 8, False, TypeError),
    ("entry-list", 8, [["x", "<f8"]], TypeError),
    ("entry-str", 8, ["<f8"], TypeError),
    ("entry-none", 8, [None], TypeError),
    ("entry-one", 8, [("x",)], TypeError),
    ("entry-four", 8, [("x", "<f8", (), None)], TypeError),
    ("shape-list", 8, [("x", "<f4", [2])], TypeError),
    ("shape-float", 8, [("x", "<f4", 2.0)], TypeError),
    ("shape-bool", 8, [("x", "<f8", True)], TypeError),
    ("shape-none", 8, [("x", "<f8", None)], TypeError),
    ("shape-str", 8, [("x", "<f4", "2")], TypeError),
    ("surrogate-type", 8, [("x", "<f\ud800")], ArrayError),
)


@pytest.mark.parametrize(("size", "descr", "error"), BAD_RECORDS)
def test_bad_records(size, descr, error):
    with pytest.raises(error, match="`descr") as caught:
        interop_demo.parse_cai(dict_with(typestr=f"|V{size}", descr=descr))
    assert caught.type is error


@pytest.mark.parametrize(
    ("typestr", "descr"),
    [
        ("<f4", [("", "<i4")]),
        ("<f4", [("x", "<f2"), ("y", "<f2")]),
        ("<f4", [("", "|V4")]),
        ("<c8", [("re", "<f4"), ("im", "<f4")]),
        ("|b1", [("", "|u1")]),
        ("<f8", [("x", "<f4", (2,))]),
        ("<f8", [("x", [("y", "<f8")])]),
    ],
    ids=repr,
)
def test_descr_that_contradicts_the_typestr(typestr, descr):
    assert_refused(dict_with(typestr=typestr, descr=descr), ArrayError, "descr")


def test_lists_that_contain_themselves():
    """A list that contains itself has no end; it is refused immediately."""
    alone = []
    alone.append(("x", alone))
    pair = []
    pair += [("x", "|u1"), ("y", pair), ("z", pair)]
    other = [("x", "|u1")]
    first = [("y", other)]
    other.append(("z", first))
    for descr in (alone, pair, first, other):
        with pytest.raises(ArrayError, match="`descr`: found a list nested deeper"):
            interop_demo.parse_cai(dict_with(typestr="|V8", descr=descr))


def test_deep_nesting():
    descr = [("x", "|u1")]
    for _ in range(100_000):
        descr = [("x", descr)]
    with pytest.raises((ArrayError, TypeError), match="descr"):
        interop_demo.parse_cai(dict_with(typestr="|V1", descr=descr))
    while isinstance(descr, list):  # level by level: Python cannot free so deep a list at once
        descr = descr[0][1]


def test_few_lists_that_say_much():
    """Ten nested lists of ten entries: 10^10 fields, which must not be expanded."""
    run(
        """
        import interop_demo
        descr = [("x", "|u1")]
        for _ in range(10):
            descr = [(f"f{number}", descr) for number in range(10)]
        try:
            interop_demo.parse_cai(dict(shape=(1,), typestr="|V8", data=(4096, False), version=3, descr=descr))
        except (ValueError, TypeError) as error:
            assert "descr" in str(error), error
        else:
            raise SystemExit("taken")
        """,
        limited=True,
        timeout=20,
    )


def test_one_name_that_is_said_often():
    """A name of a million letters in each of 65535 entries: 61 GiB, which must not be copied."""
    run(
        """
        import interop_demo
        name, many = "x" * 1_000_000, lambda *entry: [entry] * 65535
        shy = type("Shy", (str,), {"__len__": lambda self: 0})(name)
        for descr in (many(name, "|u1"), many(shy, "|u1"), many("x", "|u1" + name), [("", name), ("y", many(name, "|u1")[2:])]):
            try:
                interop_demo.parse_cai(dict(shape=(1,), typestr="|V65535", data=(4096, False), version=3, descr=descr))
            except ValueError as error:
                assert "names and types of 1048576 characters at most" in str(error), str(error)[:200]
            else:
                raise SystemExit("taken")
        """,
        limited=True,
        timeout=20,
    )


def test_as_many_fields_as_there_can_be():
    """Each name is different; comparing each with all others would take half a minute."""
    run(
        """
        import interop_demo
        descr = [(f"field{number:05}", "|u1") for number in range(65535)]
        found = interop_demo.parse_cai(dict(shape=(1,), typestr="|V65535", data=(4096, False), version=3, descr=descr))
        assert found["nbytes"] == 65535
        """,
        limited=True,
        timeout=10,
    )
