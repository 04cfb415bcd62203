"""Dicts of the CUDA Array Interface, and the expected results."""

import re

import interop_demo
import pytest

ABSENT = object()

# A valid dict and its description. The tables state changes to either.
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
    """The valid dict with other values; `ABSENT` removes a key."""
    return {key: value for key, value in {**DICT, **changes}.items() if value is not ABSENT}


def types_of(value):
    """The type of a value and of its items, which `==` does not compare (1 == True == 1.0)."""
    return (tuple, *map(types_of, value)) if isinstance(value, tuple) else type(value)


def assert_facts(found, **changes):
    """Checks that the description is exactly this, including the type of each number."""
    expected = {**FACTS, **changes}
    assert found == expected
    assert {key: types_of(value) for key, value in found.items()} == {
        key: types_of(value) for key, value in expected.items()
    }


def assert_refused(value, error, place):
    """Checks that the dict is refused with this class of error and that the message names the location."""
    with pytest.raises(error, match=re.escape(f"`{place}`")) as caught:
        interop_demo.parse_cai(value)
    # ArrayError is one class for all refusals; a TypeError is not an ArrayError.
    assert caught.type is error


def table(*rows):
    """Turns rows `(id, ...)` into parameters of a test."""
    return [pytest.param(*row, id=name) for name, *row in rows]
