"""`parse_cai`: what the corpus (test_conformance.py) cannot say of shape, data, version, stream and mask, and the types of
dicts (R25 to R49, bugs 1, 2, 77, 154): values of Python, and canonical strides.

Element types are in test_cai_types.py, strides in test_cai_strides.py.
"""

import collections
import enum
import sys
import types

import interop_demo
import numpy as np
import pytest
from interfaces import ABSENT, DICT, ArrayError, assert_facts, assert_refused, dict_with, table
from scripts import run

Pair = collections.namedtuple("Pair", "rows columns")
Number = enum.IntEnum("Number", {"TWO": 2, "THREE": 3})
HUGE = 2**62


class Index:
    """An object that is an int through `__index__`."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Stubborn(int):
    """An int with unrelated operators."""

    __rshift__ = __and__ = __lt__ = __index__ = __int__ = lambda self, *other: 5


class Subclass(dict):
    """A subclass of dict."""


EMPTY = {"data": 0, "nbytes": 0}

LEGAL = table(
    ("plain", {}, {}),
    ("shape-numpy-ints", {"shape": (np.int32(2), np.uint64(3))}, {}),
    ("shape-index-objects", {"shape": (Index(2), np.array(3))}, {}),
    ("shape-enum", {"shape": (Number.TWO, Number.THREE)}, {}),
    ("shape-namedtuple", {"shape": Pair(2, 3)}, {}),
    ("empty-none", {"shape": (3, 0), "data": (None, False)}, {"shape": (3, 0), "strides": (1, 1), **EMPTY}),
    ("empty-huge", {"shape": (HUGE, 0, HUGE)}, {"shape": (HUGE, 0, HUGE), "strides": (HUGE, HUGE, 1), **EMPTY}),
    ("readonly-numpy-bool", {"data": (0x1000, np.True_)}, {"readonly": True}),
    ("address-numpy", {"data": (np.uint64(2**63 + 8), False)}, {"data": 2**63 + 8}),
    ("address-stubborn", {"data": (Stubborn(0x2000), False), "shape": (Stubborn(2), 3)}, {"data": 0x2000}),
    ("version-numpy", {"version": np.int64(2)}, {}),
    ("version-enum", {"version": Number.THREE}, {}),
    *((f"stream-{stream}-version-{old}", {"stream": stream, "version": old}, {"stream": stream}) for old in (0, 1, 2) for stream in (1, 2)),
    ("stream-numpy", {"stream": np.int64(2)}, {"stream": 2}),
)

MAPPINGS = table(
    ("dict", dict),
    ("proxy", types.MappingProxyType),
    ("ordered", collections.OrderedDict),
    ("subclass", Subclass),
    ("user-dict", collections.UserDict),
    ("chain-map", collections.ChainMap),
    (
        "defaultdict",
        lambda keys: collections.defaultdict(lambda: pytest.fail("asked for a key that is not there"), keys),
    ),
    ("backwards", lambda keys: dict(reversed(keys.items()))),
    ("keys-of-all-kinds", lambda keys: {1: 2, None: 3, **keys, ("shape",): 4}),
)


@pytest.mark.parametrize(("changes", "facts"), LEGAL)
def test_legal(changes, facts):
    assert_facts(interop_demo.parse_cai(dict_with(**changes)), **facts)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_any_mapping_will_do_and_stays_as_it_is(mapping):
    """Bug 154."""
    value = mapping(dict(DICT))
    before = dict(value)
    assert_facts(interop_demo.parse_cai(value))
    assert dict(value) == before


def test_reading_leaves_no_trace():
    """The dict and the reference counts of its values are unchanged, also after a refusal."""
    values = {
        "shape": (2000, 3000),
        "typestr": "<f4 or not"[:3],
        "data": (0x123456, False),
        "version": 3,
        "strides": None,
    }
    kept = [values[key] for key in ("shape", "typestr", "data")]
    counts = [sys.getrefcount(value) for value in kept]
    for _ in range(100):
        interop_demo.parse_cai(values)
        with pytest.raises(ArrayError):
            interop_demo.parse_cai({**values, "stream": 0})
    assert [sys.getrefcount(value) for value in kept] == counts
    assert list(values) == ["shape", "typestr", "data", "version", "strides"]


NOT_DICTS = table(
    ("none", None),
    ("list", []),
    ("pairs", [("shape", (2, 3))]),
    ("tuple", ((2, 3), "<f4")),
    ("str", "shape"),
    ("int", 4096),
    ("class", dict),
    ("getitem-only", type("GetItem", (), {"__getitem__": lambda self, key: DICT[key]})()),
    ("object-with-the-attribute", type("Producer", (), {"__cuda_array_interface__": DICT})()),
)


@pytest.mark.parametrize("value", NOT_DICTS)
def test_not_a_dict(value):
    assert_refused(value, TypeError, "__cuda_array_interface__")


@pytest.mark.parametrize("key", ["shape", "typestr", "data", "version"])
@pytest.mark.parametrize("mapping", [dict, types.MappingProxyType, collections.UserDict])
def test_missing_key(key, mapping):
    """R25, R26: not a KeyError, but an error that names the key."""
    assert_refused(mapping(dict_with(**{key: ABSENT})), ArrayError, key)


def test_nothing_in_the_dict():
    with pytest.raises(ArrayError, match="shape, typestr, data and version"):
        interop_demo.parse_cai({})


BAD_INTS = [
    ("bool", True, TypeError),
    ("float", 2.0, TypeError),
    ("numpy-float", np.float64(2), TypeError),
    ("numpy-bool", np.True_, TypeError),
    ("str", "3", TypeError),
    ("bytes", b"3", TypeError),
    ("nested", (3,), TypeError),
    ("int-class", int, TypeError),
    ("numpy-vector", np.array([2, 3]), TypeError),
    ("index-none", type("None_", (), {"__index__": None})(), TypeError),
    ("index-float", Index(2.5), TypeError),
    ("2**200", 2**200, ArrayError),
]

ILLEGAL = table(
    *((f"shape-{name}", {"shape": (2, value)}, error, "shape[1]") for name, value, error in BAD_INTS),
    ("shape-negative-2**64", {"shape": (-(2**64),)}, ArrayError, "shape[0]"),
    ("shape-set", {"shape": {2, 3}}, TypeError, "shape"),
    ("shape-array", {"shape": np.array([2, 3])}, TypeError, "shape"),
    ("shape-range", {"shape": range(2, 4)}, TypeError, "shape"),
    ("shape-generator", {"shape": (n for n in (2, 3))}, TypeError, "shape"),
    *((f"address-{name}", {"data": (value, False)}, error, "data[0]") for name, value, error in BAD_INTS),
    *((f"version-{name}", {"version": value}, error, "version") for name, value, error in BAD_INTS),
    *((f"stream-{name}", {"stream": value}, error, "stream") for name, value, error in BAD_INTS),
    ("stream-object", {"stream": object()}, TypeError, "stream"),
    ("mask-array", {"mask": np.ones((2, 3), bool)}, ArrayError, "mask"),
)


@pytest.mark.parametrize(("changes", "error", "place"), ILLEGAL)
def test_illegal(changes, error, place):
    assert_refused(dict_with(**changes), error, place)


@pytest.mark.parametrize("number", [4, -1, 2**63, 2**100, -(2**100)])
def test_a_refused_version_is_in_the_message(number):
    with pytest.raises(ArrayError, match=f"found {number},"):
        interop_demo.parse_cai(dict_with(version=number))


@pytest.mark.parametrize("key", ["shape", "typestr", "data", "version", "strides", "stream", "descr", "mask"])
@pytest.mark.parametrize("error", [RuntimeError, ZeroDivisionError, LookupError, KeyboardInterrupt])
def test_an_error_in_a_lookup_is_passed_on(key, error):
    """R52, bug 152: only a KeyError means that the key is missing."""

    class Raising(dict):
        def __getitem__(self, name):
            if name == key:
                raise error("from the lookup")
            return super().__getitem__(name)

        def __contains__(self, name):
            return name == key or super().__contains__(name)

        def get(self, name, default=None):
            return self[name] if name in self else default

    with pytest.raises(error, match="from the lookup"):
        interop_demo.parse_cai(Raising(DICT))


@pytest.mark.parametrize("key", ["shape", "data", "version", "stream"])
def test_an_error_in_an_index_is_passed_on(key):
    class Raising:
        def __index__(self):
            raise RuntimeError("from the index")

    value = {"shape": (Raising(),), "data": (Raising(), False)}.get(key, Raising())
    with pytest.raises(RuntimeError, match="from the index"):
        interop_demo.parse_cai(dict_with(**{key: value}))


def test_an_int_that_fails_to_be_one_says_why():
    """The message names the key, and the error of `__index__` is its cause."""

    class Raising:
        def __index__(self):
            raise TypeError("no number yet")

    with pytest.raises(TypeError, match=r"`shape\[0\]`: found .*Raising") as caught:
        interop_demo.parse_cai(dict_with(shape=(Raising(), 3)))
    assert str(caught.value.__cause__) == "no number yet"


def test_only_the_class_says_what_int_an_object_is():
    """As everywhere in Python, `__index__` is looked up on the class; a class that forwards all attributes does not
    become a number.
    """

    class Forwards:
        def __getattr__(self, name):
            return lambda: 2

    with pytest.raises(TypeError, match=r"`shape\[0\]`: found .*Forwards"):
        interop_demo.parse_cai(dict_with(shape=(Forwards(), 3)))


@pytest.mark.parametrize("key", ["shape", "strides"])
def test_a_list_that_grows_while_it_is_read(key):
    """Ends with an error, not when memory runs out."""
    run(
        f"""
        import interop_demo
        from interfaces import DICT

        class Grows:
            def __index__(self):
                numbers.append(self)
                return 4

        numbers = [Grows()]
        try:
            interop_demo.parse_cai({{**DICT, "{key}": numbers}})
        except interop_demo.ArrayError as error:
            assert "{key}" in str(error), error
        assert len(numbers) < 1000
        """,
        limited=True,
        timeout=10,
    )


def test_an_error_in_the_comparison_of_keys():
    class Key:
        def __hash__(self):
            return hash("mask")

        def __eq__(self, other):
            raise RuntimeError("from the comparison")

    with pytest.raises(RuntimeError, match="from the comparison"):
        interop_demo.parse_cai({**DICT, Key(): None})


def test_a_dict_that_computes_its_values():
    class Lazy(dict):
        def __missing__(self, key):
            return pytest.fail("asked for a key that is not there")

        def __contains__(self, key):
            return key in DICT

        def __getitem__(self, key):
            return DICT[key]

    assert_facts(interop_demo.parse_cai(Lazy()))


def test_the_class_of_refusals():
    """Bug 149: it can be caught as BufferError or ValueError; it states the value found and the allowed values."""
    assert issubclass(ArrayError, BufferError)
    assert issubclass(ArrayError, ValueError)
    assert not issubclass(ArrayError, TypeError)
    with pytest.raises(ArrayError) as caught:
        interop_demo.parse_cai(dict_with(shape=(2, -3)))
    assert str(caught.value) == "`shape[1]`: found -3, allowed: 0 or greater"
