"""Dicts of the CUDA Array Interface, and what is expected of them."""

import re

import interop_demo
import pytest

ABSENT = object()

# A legal dict, and the facts in it. Tables state what they change in either.
DICT = {"shape": (2, 3), "typestr": "<f4", "data": (0x1000, False), "version": 3}
FACTS = {
    "protocol": "cai",
    "device": None,
    "dtype": "<f4",
    "shape": (2, 3),
    "strides": (3, 1),
    "readonly": False,
    "data": 0x1000,
    "nbytes": 24,
    "stream": None,
}

ArrayError = interop_demo.ArrayError


def dict_with(**changes):
    """The legal dict with other values; `ABSENT` takes a key out."""
    return {key: value for key, value in {**DICT, **changes}.items() if value is not ABSENT}


def types_of(value):
    """The type of a value, and of all in it: what `==` does not compare (1 == True == 1.0)."""
    return (tuple, *map(types_of, value)) if isinstance(value, tuple) else type(value)


def assert_facts(found, **changes):
    """The facts are exactly these, to the type of every number."""
    expected = {**FACTS, **changes}
    assert found == expected
    assert {key: types_of(value) for key, value in found.items()} == {
        key: types_of(value) for key, value in expected.items()
    }


def assert_refused(value, error, place):
    """The dict is refused with this class of error, whose message names the place."""
    with pytest.raises(error, match=re.escape(f"`{place}`")) as caught:
        interop_demo.parse_cai(value)
    # ArrayError is one class for all refusals; a TypeError is no ArrayError.
    assert caught.type is error


def table(*rows):
    """Rows `(id, ...)` as parameters of a test."""
    return [pytest.param(*row, id=name) for name, *row in rows]
