"""`parse_cai`: what the corpus (test_conformance.py) leaves out of typestr and descr (R15 to R17, R40 to R42, bugs 101, 104,
105, 109).
"""

import interop_demo
import numpy as np
import pytest
from interfaces import ArrayError, assert_facts, assert_refused, dict_with, table
from scripts import run


@pytest.mark.parametrize("typestr", [np.str_("<f4"), type("Text", (str,), {})("<f4")], ids=["numpy", "subclass"])
def test_texts_of_other_classes(typestr):
    assert_facts(interop_demo.parse_cai(dict_with(typestr=typestr)))


NONSENSE = """4f< <f4<f4 <f4e0 <fN ~f4 -f4 <I4 <B1 ＜f4 😀 f32 int <2f4""".split() + ["< f4", "\t<f4", "\0"]
# NumPy writes these on other machines.
FOREIGN = "=V8 >i8 >u2 |i4 |u8 |f2 |f8".split()
SIZES = ["<b4", "<u0", "<u16", "<f12", "<f32", "<c0", "<f260", "<f" + "9" * 400]
KINDS = "<O8 |S0 <S4 |U4 <m8[us] |g8 <e2 |a4".split()
OPAQUE = [">V8", "|V65536", "|V131070", "|V" + "9" * 30, "|V", "|V-1"]


@pytest.mark.parametrize("typestr", [*NONSENSE, *FOREIGN, *SIZES, *KINDS, *OPAQUE], ids=ascii)
def test_illegal(typestr):
    assert_refused(dict_with(typestr=typestr), ArrayError, "typestr")


@pytest.mark.parametrize("typestr", [bytearray(b"<f4"), 4.0, np.dtype("<f4"), np.float32, float, {}], ids=repr)
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
    kinds = {"i": "248", "u": "248", "f": "248", "c": "8", "V": ""}
    expected = {f"<{kind}{size}" for kind, sizes in kinds.items() for size in sizes}
    expected |= {f"{order}{kind}1" for order in "|<>" for kind in "biu"} | {f"|V{size}" for size in range(1, 10)}
    assert accepted == expected


def accepts(typestr):
    try:
        interop_demo.parse_cai(dict_with(typestr=typestr))
    except ArrayError:
        return False
    return True


# descr: the size of the element in bytes, and the list.
RECORDS = table(
    ("one-unnamed-field", 4, [("", "<f4")]),
    ("padding-behind", 8, [("x", "<f4"), ("", "|V4")]),
    ("array-field-numpy-int", 12, [("position", "<f4", (np.int64(3),))]),
    ("array-field-0d", 4, [("x", "<f4", ())]),
    ("array-of-padding", 8, [("x", "<f4"), ("", "|V1", (4,))]),
    ("one-byte-orders", 3, [("a", "<u1"), ("b", ">i1"), ("c", "|b1")]),
)


@pytest.mark.parametrize(("size", "descr"), RECORDS)
def test_records(size, descr):
    found = interop_demo.parse_cai(dict_with(typestr=f"|V{size}", descr=descr))
    assert_facts(found, dtype=f"|V{size}", nbytes=6 * size)


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
    ("array-too-big", 8, [("x", "<f4", (3,))], ArrayError),
    ("nested-too-small", 8, [("p", [("x", "<f4")])], ArrayError),
    ("size-wraps", 8, [("x", "<f8", (2**62, 8))], ArrayError),
    ("extent-2**63", 8, [("x", "<f8", (2**63,))], ArrayError),
    ("extent-2**100", 8, [("x", "<f8", 2**100)], ArrayError),
    ("extent-2**200", 8, [("x", "<f8", 2**200)], ArrayError),
    ("extents-65", 4, [("x", "<f4", (1,) * 100_000)], ArrayError),
    ("equals", 8, [("x", "=f4"), ("y", "<f4")], ArrayError),
    ("text", 8, [("x", "<U2")], ArrayError),
    ("type-dtype", 8, [("x", np.dtype("<f8"))], TypeError),
    ("type-tuple", 8, [("x", (("y", "<f8"),))], TypeError),
    ("name-bytes", 8, [(b"x", "<f8")], TypeError),
    ("title-three", 8, [(("a", "b", "c"), "<f8")], TypeError),
    ("false", 8, False, TypeError),
    ("entry-str", 8, ["<f8"], TypeError),
    ("shape-list", 8, [("x", "<f4", [2])], TypeError),
    ("shape-str", 8, [("x", "<f4", "2")], TypeError),
    ("surrogate-type", 8, [("x", "<f\ud800")], ArrayError),
)


@pytest.mark.parametrize(("size", "descr", "error"), BAD_RECORDS)
def test_bad_records(size, descr, error):
    with pytest.raises(error, match="`descr") as caught:
        interop_demo.parse_cai(dict_with(typestr=f"|V{size}", descr=descr))
    assert caught.type is error


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
