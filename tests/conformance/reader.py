"""Reads the conformance corpus, checks that it is well formed, and computes the facts of legal cases.

It needs only Python's standard library (3.8 or newer), so other projects can use this file or write their own:

    from reader import read, value

    for case in read("cai.json"):
        given = {key: value(item) for key, item in case["dict"].items()}
        try:
            found = your_parser(given)
        except YourError:
            assert "error" in case, case["why"]
        else:
            assert found.shape == value(case["facts"]["shape"])

`python3 reader.py` checks the two files and prints a summary. `cai.json` has dicts that `__cuda_array_interface__` could return,
`dlpack.json` the fields of `DLManagedTensorVersioned` and `DLManagedTensor`. All cases assume a little-endian machine of 64 bits and
a consumer of CUDA and host memory. Do not dereference any address except `"memory"`.

Each file is `{"format": 1, "cases": [...]}`, one case per line. JSON stands for these values:

    null, true, false, a string              None, True, False, a str
    an integer                               an int below 2**53
    {"$int": "18446744073709551616"}         any other int
    {"$float": "nan"}                        a float, which is always an error
    [...]                                    a tuple
    {"$list": [...]}, {"$dict": [[k, v]]}    a list, a dict
    {"$bytes": "00ff"}                       bytes
    {"$index": 2}                            an object with `__index__`, like NumPy's integers; in C and Rust just the number
    {"$utf16": [55296]}                      a str of these code units, which is not valid Unicode

A case has an `id`, the reason in one line (`why`), the rules and faults of `traceability.toml` that it covers (`ids`), and links to
reports of such faults (`seen`). With `"choice": true` the specifications allow several results, and `why` states the choice of this
corpus. A legal case has `facts`, an illegal one `error`.

Facts: `shape`; `strides` in elements, null for an axis whose stride has no meaning (extent 1, or an array without elements); `nbytes`,
the size of all elements without gaps, rounded up once; `c_contiguous`, `f_contiguous`; `reach`, from the lowest byte of an element
to one past the highest, null without elements; `readonly`, null for the legacy form of DLPack, which cannot express it.
Of a dict also `typestr` (with `|` if the byte order has no meaning), `itemsize`, `data` (the address, null if it must not be accessed)
and `stream` (null if no work is pending); its `reach` has addresses. Of a tensor also `dtype` (code, bits, lanes), `device` (type
and ordinal, null if such memory has none) and `offset` of element [0, ..., 0] from `data`, to which `reach` is relative.

In the input of a tensor, `data` is an address or `"memory"`: a place of your choice with 256 readable bytes before it and 512 after it.
`ndim` is authoritative, whatever the length of `shape`. A null is a null pointer. `deleter` says whether there is a deleter, which
is called exactly once in every case. If the major version differs, nothing else may be read.

`error` has a `place`, the key or field with the axis (`strides[1]`), and a `kind`:

    missing                     a required key is missing
    type                        a value has another type than the protocol requires; a TypeError in Python
    version                     a version, or flags, that are not understood
    dtype                       an element type that does not exist, or that contradicts itself
    rank, shape, strides        the number of axes; a negative extent; the number of strides, or one that splits elements
    overflow                    a number beyond 64 bits, or elements beyond the address space
    null                        address 0 for an array with elements, or no extents for an array with axes
    device, stream, mask        a device that the consumer lacks; a forbidden stream; a masked array

A consumer need not have these classes of errors. It must refuse the input, name the place, and read nothing that it must not read.
"""

import itertools
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {"cai.json": "dict", "dlpack.json": "tensor"}
KINDS = {
    "device",
    "dtype",
    "mask",
    "missing",
    "null",
    "overflow",
    "rank",
    "shape",
    "stream",
    "strides",
    "type",
    "version",
}
PLAIN_INT = 2**53 - 1  # every JSON reader represents integers up to this one exactly
BEFORE, BEHIND = 256, 512  # the readable bytes before and after `data` if it is `"memory"`
MOST_VISITED = 4096


class Index:
    """An object with `__index__` that is not an int."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Surrogates(str):
    """A str that is not valid Unicode."""


# --- Python values as JSON ----------------------------------------------------------------------------------------
def coded(item):
    """Encodes a Python value as JSON; `value` decodes it."""
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, int):
        return item if abs(item) <= PLAIN_INT else {"$int": str(item)}
    if isinstance(item, float):
        return {"$float": repr(item)}
    if isinstance(item, Surrogates):
        return {"$utf16": [ord(char) for char in item]}
    if isinstance(item, str):
        return item
    if isinstance(item, bytes):
        return {"$bytes": item.hex()}
    if isinstance(item, Index):
        return {"$index": item.number}
    if isinstance(item, tuple):
        return [coded(part) for part in item]
    if isinstance(item, list):
        return {"$list": [coded(part) for part in item]}
    if isinstance(item, dict):
        return {"$dict": [[coded(key), coded(part)] for key, part in item.items()]}
    raise TypeError(f"no code for {item!r}")


DECODERS = {
    "$int": int,
    "$float": float,
    "$utf16": lambda units: "".join(map(chr, units)),
    "$bytes": bytes.fromhex,
    "$index": Index,
    "$list": lambda items: [value(item) for item in items],
    "$dict": lambda pairs: {value(key): value(item) for key, item in pairs},
}


def value(code):
    """Decodes the Python value that a piece of JSON represents."""
    if isinstance(code, list):
        return tuple(value(item) for item in code)
    if isinstance(code, dict):
        ((tag, inner),) = code.items()
        return DECODERS[tag](inner)
    return code


# --- facts --------------------------------------------------------------------------------------------------------
def visited(shape, strides):
    """Returns the lowest and highest offset of all elements. Visits every corner instead of using a formula."""
    axes = [
        (0,) if extent == 1 or stride == 0 else (0, (extent - 1) * stride) for extent, stride in zip(shape, strides)
    ]
    far = [axis for axis in axes if len(axis) == 2]
    if math.prod(shape) <= MOST_VISITED:
        steps = [range(extent) for extent in shape if extent > 1]
        moved = [stride for extent, stride in zip(shape, strides) if extent > 1]
        sums = [sum(i * s for i, s in zip(index, moved)) for index in itertools.product(*steps)]
    else:
        sums = [sum(corner) for corner in itertools.product(*far)]
    return min(sums), max(sums)


def compact(shape):
    """Returns the strides of a contiguous array in C order."""
    return tuple(math.prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape)))


def layout_facts(shape, strides, bits):
    """Returns the facts of a layout with strides in elements and `bits` per element. Meaningless strides become None."""
    count = math.prod(shape)
    said = [None if count == 0 or extent == 1 else stride for extent, stride in zip(shape, strides)]
    facts = {"shape": shape, "strides": tuple(said), "nbytes": -(-count * bits // 8)}
    for name, axes in (("c_contiguous", range(len(shape))[::-1]), ("f_contiguous", range(len(shape)))):
        expected, fits = 1, True
        for axis in axes:
            fits = fits and (said[axis] is None or said[axis] == expected)
            expected *= shape[axis]
        facts[name] = fits
    low, high = visited(shape, strides) if count else (0, 0)
    facts["reach"] = (low * bits // 8, -(-(high + 1) * bits // 8)) if count else None
    return facts


def number(item):
    """Converts an int or an object with `__index__` to an int, and returns None unchanged."""
    return item if item is None else item.__index__()


def cai_facts(given):
    """Returns the facts of a legal dict of the CUDA Array Interface."""
    shape = tuple(map(number, given["shape"]))
    order, kind, size = given["typestr"][0], given["typestr"][1], int(given["typestr"][2:])
    strides = given.get("strides")
    steps = compact(shape) if strides is None else tuple(number(stride) // size for stride in strides)
    address, readonly = given["data"]
    facts = layout_facts(shape, steps, 8 * size)
    if facts["reach"]:
        facts["reach"] = tuple(number(address) + end for end in facts["reach"])
    stream = given.get("stream")
    return {
        "typestr": f"{'|' if size == 1 else order}{kind}{size}",
        "itemsize": size,
        "data": number(address) if facts["reach"] else None,
        "readonly": bool(readonly),
        "stream": number(stream),
        **facts,
    }


def dlpack_facts(tensor):
    """Returns the facts of a legal tensor. Positions are relative to `data`."""
    code, bits, lanes = tensor["dtype"]
    padded = tensor.get("flags", 0) & 4 and bits % 8
    item = (8 * -(-bits // 8) if padded else bits) * lanes
    shape = (tensor["shape"] or ())[: tensor["ndim"]]
    strides = tensor["strides"][: tensor["ndim"]] if tensor["strides"] is not None and shape else compact(shape)
    kind, ordinal = tensor["device"]
    facts = layout_facts(shape, strides, item)
    if facts["reach"]:
        facts["reach"] = tuple(tensor["byte_offset"] + end for end in facts["reach"])
    return {
        "dtype": (code, bits, lanes),
        "device": (kind, ordinal if kind == 2 else None),
        "offset": tensor["byte_offset"] if facts["reach"] else None,
        "readonly": bool(tensor["flags"] & 1) if "flags" in tensor else None,
        **facts,
    }


# --- the files ----------------------------------------------------------------------------------------------------
def no_duplicates(pairs):
    """Converts the pairs of a JSON object to a dict, and rejects duplicate keys."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key comes twice: {[key for key, _ in pairs]}")
    return found


def read(name):
    """Returns the cases of a file, still encoded."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file, object_pairs_hook=no_duplicates)["cases"]


def faults(case, kind):
    """Yields what is wrong with a case; nothing if it is well formed."""
    if not re.fullmatch(r"[\w.*+=<>|\\()\[\]{},!@?-]+", case["id"]):
        yield "an id of other characters"
    required = {"id", kind, "why", "ids"}
    if set(case) - {"choice", "seen", "facts", "error"} != required or ("facts" in case) == ("error" in case):
        yield f"keys {sorted(case)}"
        return
    if not case["why"] or not all(re.fullmatch(r"[RB][1-9][0-9]*", name) for name in case["ids"]):
        yield "no reason, or ids of another form"
    if "error" in case:
        error = case["error"]
        key = re.fullmatch(r"([a-z_]+)(\[\d+\])?", error["place"])
        if set(error) != {"kind", "place"} or error["kind"] not in KINDS or not key:
            yield f"an error of another form: {error}"
        return
    given = {key: value(item) for key, item in case[kind].items()}
    expected = {"dict": cai_facts, "tensor": dlpack_facts}[kind](given)
    if {key: value(item) for key, item in case["facts"].items()} != expected:
        yield f"facts {case['facts']}, worked out {expected}"
    low, high = expected["reach"] or (0, 0)
    if given.get("data") == "memory" and not -BEFORE <= low <= high <= BEHIND:
        yield f"elements from {low} to {high}, outside of the memory"


def check():
    """Returns all faults in both files, one per line."""
    lines = []
    for name, kind in FILES.items():
        seen = set()
        for case in read(name):
            lines += [f"{name}: {case['id']}: {fault}" for fault in faults(case, kind)]
            if case["id"] in seen:
                lines.append(f"{name}: {case['id']}: twice")
            seen.add(case["id"])
    return lines


def main():
    for name in FILES:
        cases = read(name)
        legal = sum("facts" in case for case in cases)
        choices = sum(case.get("choice", False) for case in cases)
        print(f"{name}: {len(cases)} cases, {legal} legal, {len(cases) - legal} illegal; {choices} are choices")
    lines = check()
    print("\n".join(lines) or "well formed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
