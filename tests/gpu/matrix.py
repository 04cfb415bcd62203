"""Each library in both directions, with each protocol, case, kind of memory and stream.

The result is an array in place with the right values, or a refusal that `refusals.py` lists. pytest runs for one
library at a time: `matrix.py --partner torch`.
"""

import functools
import gc
import importlib.util
import re

import driver
import interop_demo
import numpy as np
import pytest
from partners import BASE, CASES, PARTNERS, OnlyCAI, OnlyDLPack
from refusals import LACKS, REFUSALS, find

KINDS = {"device": (2, 0), "pinned": (3, 0), "managed": (13, 0)}
WORDS = {"device": "cuda", "pinned": "pinned", "managed": "managed"}
STREAMS = {"none": lambda: None, "1": lambda: 1, "2": lambda: 2, "handle": lambda: handle(), "-1": lambda: -1}


@functools.cache
def handle():
    return driver.stream()


@functools.cache
def library(name):
    """Returns the library, or skips with the reason why it cannot be used."""
    try:
        partner = PARTNERS[name]()
        # Objects of the library stay alive; the garbage collections after each test need not visit them.
        gc.freeze()
        return partner
    except Exception as error:  # a library that is installed and does not start is treated like a missing one
        return f"{name}: {type(error).__name__}: {error}"


def pytest_generate_tests(metafunc):
    only = metafunc.config.getoption("--partner")
    names = [only] if only else list(PARTNERS)
    arguments = [name for name in ("name", "protocol") if name in metafunc.fixturenames]
    if arguments:
        attribute = "protocols" if metafunc.function is test_in else "takes"
        pairs = [(name, protocol) for name in names for protocol in getattr(PARTNERS[name], attribute)]
        metafunc.parametrize(arguments, pairs)


each_kind = pytest.mark.parametrize("kind", KINDS)
each_case = pytest.mark.parametrize("case", CASES)
each_stream = pytest.mark.parametrize("stream", STREAMS)


@pytest.fixture
def partner(name):
    found = library(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@each_kind
@each_case
@each_stream
def test_in(partner, name, protocol, kind, case, stream):
    """Imports an array of the library: same address, right description, and the right sum, computed in place."""
    lacks = find(LACKS, f"{name} in {protocol} {kind} {case} {stream}")
    if lacks:
        pytest.skip(lacks[1])
    base = partner.make(kind)
    if base is None:
        pytest.skip(f"this version of {name} has no {kind} memory")
    array = partner.cut(base, case)
    wrapped = {"dlpack": OnlyDLPack, "cai": OnlyCAI}.get(protocol, lambda array: array)(array)
    where, number = partner.address(array), STREAMS[stream]()
    if stream == "-1":
        driver.synchronize()
    refusal = find(REFUSALS, f"{name} in {protocol} {kind} {case} {stream}")
    if refusal:
        _, classes, text, _ = refusal
        with pytest.raises(Exception, match=text) as raised:
            interop_demo.describe(wrapped, stream=number)
        assert classes == "*" or set(classes.split("|")) & {base.__name__ for base in type(raised.value).__mro__}
        return
    facts = interop_demo.describe(wrapped, stream=number)
    assert facts["protocol"].startswith(protocol)
    # torch labels pinned memory as CPU memory in its capsules. The dict of an empty array refers to no memory.
    others = [(1, 0)] if kind == "pinned" else [(2, 0)] if (protocol, case) == ("cai", "empty") else []
    assert facts["device"] in [KINDS[kind], *others]
    expected = BASE if name in ("cuda_core", "dali") else CASES[case](BASE)
    if expected.size:
        assert facts["data"] == where
    if name == "cuda_core":
        assert facts["nbytes"] == BASE.nbytes
        return  # bytes, for which there is no sum to compare
    assert facts["shape"] == expected.shape
    if facts["protocol"] == "dlpack_versioned":  # the other forms cannot express it, or libraries do not
        assert facts["readonly"] == (case == "readonly")
    imported = interop_demo.asarray(wrapped, stream=number)
    driver.synchronize()
    assert interop_demo.checksum(imported) == expected.sum()


def ours(kind, case, stream):
    """Returns our array, last written on this stream, and its values."""
    written = stream not in (None, -1) and case != "readonly"
    array = interop_demo.Array.full(BASE.shape, 1.0, device=WORDS[kind], readonly=case == "readonly")
    values = np.ones_like(BASE)
    if written:
        for row in range(4):
            interop_demo.scale_(array[row], float(row + 1), stream=stream)
        values = BASE
    return CASES[case](array), CASES[case](values)


@each_kind
@each_case
@each_stream
def test_out(partner, name, protocol, kind, case, stream):
    """Exports our array: the library reads the same address and the right values, or refuses as documented."""
    lacks = find(LACKS, f"{name} out {protocol} {kind} {case} {stream}")
    if lacks:
        pytest.skip(lacks[1])
    number = STREAMS[stream]()
    array, expected = ours(kind, case, number)
    unordered = stream == "-1"
    if unordered or (protocol == "cai" and not partner.heeds_cai_stream):
        driver.synchronize()
    wrapped = {
        "dlpack": lambda: OnlyDLPack(array, unordered),
        "cai": lambda: OnlyCAI(array, unordered),
        "exchange": lambda: array,
    }[protocol]()
    where = interop_demo.describe(array)["data"]
    refusal = find(REFUSALS, f"{name} out {protocol} {kind} {case} {stream}")
    if refusal:
        _, classes, text, _ = refusal
        with pytest.raises(Exception) as raised:
            taken = partner.take(protocol, wrapped)
            partner.values(taken)
        names = {base.__name__ for base in type(raised.value).__mro__}
        assert classes == "*" or names & set(classes.split("|")), repr(raised.value)
        assert re.search(text, str(raised.value)), repr(raised.value)
        return
    taken = partner.take(protocol, wrapped)
    if expected.size:
        assert partner.address(taken) == where, "copied"
    values = partner.values(taken)
    if values is not None:
        assert np.asarray(values).tolist() == expected.tolist()
    del taken, wrapped, array
    driver.synchronize()


def test_every_line_of_the_tables_is_about_a_cell():
    """A table line that matches no cell would hide a mistake."""
    cells = [
        f"{name} {direction} {protocol} {kind} {case} {stream}"
        for name, partner in PARTNERS.items()
        for direction, protocols in (("in", partner.protocols), ("out", partner.takes))
        for protocol in protocols
        for kind in KINDS
        for case in CASES
        for stream in STREAMS
    ]
    for table in (LACKS, REFUSALS):
        for row in table:
            assert any(find((row,), cell) for cell in cells), row[0]
