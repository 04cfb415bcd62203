"""The keywords of `__dlpack__`, as in the array API standard (R100 to R105, R121 to R136, bugs 145 to 150)."""

import enum
import inspect
import weakref

import interop_demo
import numpy as np
import pytest
from capsules import CPU, IS_COPIED, VERSION, look, name_of

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
Kind = enum.IntEnum("Kind", {"CPU": 1, "CUDA": 2})
Word = enum.Enum("Word", {"CPU": 1})
V1 = {"max_version": (1, 0)}


@pytest.fixture
def array():
    return Array.full((2, 3), 1.5)


def edge_image(height=4, width=5):
    """A struct returned by a function: an object of another class with the same behaviour."""
    return interop_demo.edges(Array.full((height, width, 3), 1.0))


# The signature (R100, R101, bug 145)


@pytest.mark.parametrize("make", [lambda: Array.full((2,), 0), edge_image], ids=["Array", "returned"])
def test_signature(make):
    parameters = inspect.signature(make().__dlpack__).parameters
    assert list(parameters) == ["stream", "max_version", "dl_device", "copy"]
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in parameters.values()} == {None}
    assert not inspect.signature(make().__dlpack_device__).parameters


WRONG_CALLS = [
    ((None,), {}),
    ((1,), {}),
    ((None, None), {"copy": None}),
    ((), {"device": (1, 0)}),
    ((), {"Stream": None}),
    ((), {"": None}),
    ((), {"stream ": None}),
    ((), {"max_versio": (1, 0)}),
    ((), {"größe": None}),
    ((), {"\U0001f600": None}),
    ((), {"\ud800": None}),
    ((), {"stream\0": None}),
    ((), {**V1, "copy": None, "dl_device": None, "stream": None, "allocator": None}),
]


@pytest.mark.parametrize(("arguments", "keywords"), WRONG_CALLS, ids=lambda value: ascii(value))
def test_wrong_calls(array, arguments, keywords):
    with pytest.raises(TypeError) as caught:
        array.__dlpack__(*arguments, **keywords)
    assert caught.type is TypeError


def test_unbound_calls(array):
    assert name_of(Array.__dlpack__(array, **V1)) == "dltensor_versioned"
    for wrong in ((), (5,), (None,), (edge_image(),)):
        with pytest.raises(TypeError):
            Array.__dlpack__(*wrong)
    with pytest.raises(TypeError):
        array.__dlpack_device__(1)


def test_keywords_are_compared_and_not_their_addresses(array):
    """Bug 146: a name created at run time, and an instance of a str subclass."""
    name = "".join(["max", "_", "version"])
    assert name_of(array.__dlpack__(**{name: (1, 0)})) == "dltensor_versioned"
    text = type("Text", (str,), {})("copy")
    assert look(array.__dlpack__(**V1, **{text: True})).flags == IS_COPIED


# max_version (R58, R102 to R105, bugs 147, 148)

VERSIONS = [
    (None, "dltensor"),
    ((0, 0), "dltensor"),
    ((0, 8), "dltensor"),
    ((0, 2**40), "dltensor"),
    ((-1, 0), "dltensor"),
    *((version, "dltensor_versioned") for version in [(1, 0), (1, 1), (1, 3), (1, 99), (2, 0), (2**70, 0)]),
    ((np.int64(1), np.int32(0)), "dltensor_versioned"),
    ((Kind.CPU, 0), "dltensor_versioned"),
]


@pytest.mark.parametrize(("version", "name"), VERSIONS, ids=repr)
def test_max_version(array, version, name):
    capsule = array.__dlpack__(max_version=version)
    assert name_of(capsule) == name
    if name == "dltensor_versioned":
        assert (look(capsule).major, look(capsule).minor) == VERSION


class Number:
    """An int that may differ at each call."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def test_a_version_that_changes_its_mind(array):
    version = (Number(1), 0)
    assert name_of(array.__dlpack__(max_version=version)) == "dltensor_versioned"
    version[0].number = 0
    assert name_of(array.__dlpack__(max_version=version)) == "dltensor"


@pytest.mark.parametrize("keyword", ["max_version", "dl_device"])
@pytest.mark.parametrize("make", [Number, lambda number: {number}], ids=["number", "none"])
def test_arguments_are_let_go_at_once(array, keyword, make):
    """Neither a cached version nor an error that was dropped keeps its argument alive."""
    number = make(1)
    reference = weakref.ref(number)
    try:
        array.__dlpack__(**{keyword: (number, 0)})
    except TypeError:
        assert make is not Number
    del number
    assert reference() is None


BAD_VERSIONS = [
    1, 1.0, "1.0", [1, 0], (1,), (), (1, 0, 0), ("a", 0), (1, "b"), (1.0, 0), (1, None), (True, 0), (None, None), {}
]


@pytest.mark.parametrize("version", BAD_VERSIONS, ids=repr)
def test_bad_max_version(array, version):
    with pytest.raises(TypeError, match="max_version"):
        array.__dlpack__(max_version=version)


# stream (R134, R136)


@pytest.mark.parametrize("stream", [None, -1], ids=repr)
def test_stream(array, stream):
    assert name_of(array.__dlpack__(stream=stream)) == "dltensor"


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (0, BufferError),
        (1, RuntimeError),  # as NumPy has it
        (2, ValueError),
        (-2, BufferError),
        (0x7F00_1234_5670, BufferError),
        (2**64, BufferError),
        (2**200, BufferError),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
        ((), TypeError),
    ],
    ids=repr,
)
def test_bad_stream(array, stream, error):
    for others in ({}, {"copy": True}, {"copy": True, "dl_device": (1, 0), **V1}):
        with pytest.raises(error, match="stream"):
            array.__dlpack__(stream=stream, **others)


# dl_device (R121, R125, R130)


@pytest.mark.parametrize(
    "device", [None, (1, 0), (1, 7), (1, None), (Kind.CPU, 0), (Word.CPU, 0), (np.int32(1), np.int64(0))], ids=repr
)
def test_dl_device(array, device):
    capsule = array.__dlpack__(dl_device=device, **V1)
    assert (look(capsule).tensor.device_type, look(capsule).tensor.device_id) == (CPU, 0)
    assert look(capsule).flags == 0


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ((2, 0), BufferError), ((3, 0), BufferError), ((0, 0), BufferError), ((13, 0), BufferError),
        ((77, 0), BufferError), ((-1, 0), BufferError), ((2**40, 0), BufferError), ((Kind.CUDA, 0), BufferError),
        ((2, -1), BufferError), ([1, 0], TypeError), ((1,), TypeError), ((1, 0, 0), TypeError), (1, TypeError),
        ("cpu", TypeError), ((1.0, 0), TypeError), ((True, 0), TypeError), ((2, None), TypeError), ((), TypeError),
    ],
    ids=repr,
)
def test_bad_dl_device(array, device, error):
    for copy in (None, True):
        with pytest.raises(error, match="dl_device"):
            array.__dlpack__(dl_device=device, copy=copy)
