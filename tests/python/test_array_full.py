"""`Array.full`: each argument, valid and invalid, and more memory than there is."""

import inspect
from decimal import Decimal
from fractions import Fraction

import interop_demo
import numpy as np
import pytest
from scripts import run

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
INTEGERS = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"]


class Index:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return "Index()"

    def __index__(self):
        return self.number


def test_the_signature_of_full():
    parameters = inspect.signature(Array.full).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "shape": inspect.Parameter.empty,
        "value": inspect.Parameter.empty,
        "dtype": "<f4",
        "device": "cpu",
        "ordinal": 0,
        "order": "C",
        "readonly": False,
    }
    assert [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY] == [
        "device", "ordinal", "order", "readonly"
    ]
    with pytest.raises(TypeError):
        Array.full((2,), 0, "<f4", "cpu")
    with pytest.raises(TypeError):
        Array()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (3, (3,)), (0, (0,)), ((2, 3), (2, 3)), ([2, 3], (2, 3)), ((), ()), ([], ()), (np.int64(3), (3,)),
        ((np.int8(2), np.uint64(3)), (2, 3)), (Index(3), (3,)), ((Index(2), 3), (2, 3)), ((0, 2**62), (0, 2**62)),
        ((0, 2**63 - 1), (0, 2**63 - 1)),
    ],
    ids=repr,
)
def test_shapes(shape, expected):
    assert interop_demo.describe(Array.full(shape, 0))["shape"] == expected


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        (-1, ValueError),
        ((2, -1), ValueError),
        ((0, -1), ValueError),
        (2.0, TypeError),
        ((2.0,), TypeError),
        (True, TypeError),
        ((2, True), TypeError),
        (None, TypeError),
        ("23", TypeError),
        (b"23", TypeError),
        ({2, 3}, TypeError),
        ((2, None), TypeError),
        (((2,), 3), TypeError),
        pytest.param(object(), TypeError, id="object"),
        (2**63, ValueError),
        ((0, 2**63), ValueError),
        (2**70, ValueError),
        (2**200, (ValueError, OverflowError)),
        ((2**32, 2**32), ValueError),
        ((1,) * 65, ValueError),
    ],
    ids=repr,
)
def test_bad_shapes(shape, error):
    with pytest.raises(error) as caught:
        Array.full(shape, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "error", "place"),
    [
        ({"dtype": ">f4"}, ArrayError, "dtype|typestr"),
        ({"dtype": "f4"}, ArrayError, "dtype|typestr"),
        ({"dtype": ""}, ArrayError, "dtype|typestr"),
        ({"dtype": "<V2"}, ArrayError, "dtype|typestr"),
        ({"dtype": "|V8"}, ArrayError, "dtype"),
        ({"order": "A"}, ArrayError, "order"),
        ({"order": "c"}, ArrayError, "order"),
        ({"order": ""}, ArrayError, "order"),
        ({"device": "tpu"}, ArrayError, "device"),
        ({"device": ""}, ArrayError, "device"),
        ({"ordinal": -1}, ArrayError, "ordinal"),
        ({"writable": True}, TypeError, "writable"),
    ],
    ids=repr,
)
def test_bad_keywords(keywords, error, place):
    with pytest.raises(error, match=place):
        Array.full((2,), 0, **keywords)


@pytest.mark.parametrize(
    "keywords",
    [
        {"dtype": None}, {"dtype": 4}, {"order": None}, {"device": None}, {"device": 1}, {"ordinal": "0"},
        {"readonly": "yes"},
    ],
    ids=repr,
)
def test_keywords_of_the_wrong_type(keywords):
    with pytest.raises(TypeError):
        Array.full((2,), 0, **keywords)


def test_a_refusal_names_every_type_that_is_taken():
    numbers = "integers of 8 to 64 bits, float16, bfloat16, float32"
    for refused, named in [
        (lambda: Array.full((2,), 0, "|V8"), f"bool, {numbers}, float64, complex64 and complex128"),
        (lambda: interop_demo.checksum(np.zeros(2, "c8")), f"bool, {numbers} and float64"),
        (lambda: interop_demo.scale_(np.zeros(2, "?"), 2.0), f"{numbers}, float64, complex64 and complex128"),
    ]:
        with pytest.raises(ArrayError, match=f"allowed: {named}( \\(from|$)"):
            refused()
    for name in ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]:
        assert Array.full((2,), 1, name).shape == (2,)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "uint64", "bool", "bfloat16"])
def test_names_of_types(name):
    array = Array.full((2,), 1, name)
    assert interop_demo.describe(array)["dtype"] == (name if name == "bfloat16" else np.dtype(name).str)
    assert interop_demo.checksum(array) == 2


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_whole_range_of_integers(dtype):
    limits = np.iinfo(dtype)
    for value in (limits.min, limits.max):
        assert np.from_dlpack(Array.full((2,), value, dtype)).tolist() == [int(value)] * 2
    for value in (int(limits.min) - 1, int(limits.max) + 1, 2**100, 2**127, -(2**200), 10**400):
        with pytest.raises((ArrayError, OverflowError), match="value|large|big|range"):
            Array.full((2,), value, dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_that_integers_cannot_be(dtype):
    """Refused like an integer of that size; a fraction is dropped, as in NumPy."""
    limits = np.iinfo(dtype)
    for value in (float("nan"), float("inf"), float("-inf"), 1e300, limits.max + 1.0, limits.min * 2.0 - 1):
        with pytest.raises(ArrayError, match=f"`value`.*within the range of {np.dtype(dtype).name}"):
            Array.full((2,), value, dtype)
    for value, expected in ((float(limits.min), int(limits.min)), (100.75, 100), (-0.5, 0)):
        assert np.from_dlpack(Array.full((2,), value, dtype)).tolist() == [expected] * 2


def test_integers_that_only_floats_can_be():
    assert np.from_dlpack(Array.full((1,), -(2**200), "<f8")).tolist() == [-(2.0**200)]
    for dtype, name in (("<f8", "float64"), ("<c8", "complex64"), ("<c16", "complex128")):
        with pytest.raises(ArrayError, match=f"`value`: found an integer of more than 128 bits, .*{name}"):
            Array.full((1,), 10**400, dtype)


@pytest.mark.parametrize("value", ["1", None, 1 + 2j, [1], b"1", pytest.param(object(), id="object")], ids=repr)
def test_bad_values(value):
    with pytest.raises(TypeError, match="value") as caught:
        Array.full((2,), value)
    assert "\n" not in str(caught.value)


def test_values_of_numpy():
    for value in (np.float32(1.5), np.float64(1.5), np.array(1.5)):
        assert interop_demo.checksum(Array.full((2,), value)) == 3
    assert interop_demo.checksum(Array.full((2,), np.int64(2), "<i8")) == 4
    assert np.isnan(interop_demo.checksum(Array.full((1,), float("nan"))))
    assert interop_demo.checksum(Array.full((1,), float("-inf"), "<f2")) == float("-inf")


@pytest.mark.parametrize("dtype", ["<c8", "<c16"])
def test_complex_elements(dtype):
    """All types of the array API standard can be created, without losing the imaginary part."""
    for value in (1 + 2j, np.complex64(2 - 3j), np.complex128(3 - 1j), True, 2, -(2**200), 0.5):
        array = Array.full((2, 3), value, dtype, order="F")
        with np.errstate(over="ignore"):
            expected = np.full((2, 3), value, dtype)
        found = np.from_dlpack(array)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize(
    "value",
    [1 + 2j, 1 + 0j, np.complex64(1 + 2j), np.complex64(1), np.complex128(1 + 2j), np.clongdouble(1 + 2j), np.array(1 + 2j, "c8")],
    ids=repr,
)
def test_a_complex_value_keeps_its_imaginary_part(value):
    """NumPy's complex numbers convert to a float with a warning only, so they are read as complex numbers first."""
    for real in ("<f4", "<f8", "<i4", "|b1"):
        with pytest.raises(TypeError, match="`value`: found a complex, allowed: a real number"):
            Array.full((2,), value, real)
    for dtype in ("<c8", "<c16"):
        assert np.from_dlpack(Array.full((2,), value, dtype)).tolist() == [complex(value)] * 2


@pytest.mark.parametrize("value", [Fraction(3, 2), Decimal("1.5"), np.longdouble(1.5), np.float16(1.5), np.array(1.5)], ids=repr)
def test_real_numbers_that_convert_to_complex_ones(value):
    for dtype in ("<f4", "<c8"):
        assert np.from_dlpack(Array.full((2,), value, dtype)).tolist() == [1.5] * 2


@pytest.mark.parametrize(
    "program",
    [
        "interop_demo.Array.full((2**45,), 0.0)",
        "interop_demo.Array.full((2**60,), 0, '|u1')",
        "interop_demo.asarray(np.broadcast_to(np.float32(1), (2**46,))).__dlpack__(copy=True)",
        "interop_demo.edges(interop_demo.asarray(Tensor(shape=(2**20, 2**22, 3), strides=None).capsule()))",
    ],
)
def test_memory_that_there_is_not(program):
    """The result is an exception and not the end of the process."""
    run(
        f"""
        import numpy as np, interop_demo
        from capsules import Tensor
        try:
            {program}
        except (MemoryError, BufferError) as error:
            print(error)
        else:
            raise SystemExit("done")
        """,
    )
