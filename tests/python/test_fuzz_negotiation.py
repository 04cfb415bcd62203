"""Random arguments of `__dlpack__`, and random producers (R100 to R120, bugs 140 to 164).

What the standard allows succeeds, everything else is refused with the class that it names, and each struct is
released once.
"""

import gc
import sys
from enum import IntEnum

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, CUDA_HOST, IS_COPIED, READ_ONLY, Producer, Tensor, form_of, look, raising
from seeds import generator

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
ROUNDS = 20_000


class Kind(IntEnum):
    CPU = 1
    CUDA = 2


class Index:
    """An int through `__index__`."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Foreign:
    """A value that is invalid everywhere."""


# The values of each argument: their meaning for host memory, or the exception classes that they may raise.
WRONG, REFUSED = (TypeError,), (BufferError, ValueError)
STREAMS = [(None, None), (-1, None), (0, REFUSED), (1, REFUSED), (2**70, REFUSED), ("1", WRONG), (1.0, WRONG)]
VERSIONS = [
    (None, "legacy"), ((0, 8), "legacy"), ((1, 0), "versioned"), ((1, 3), "versioned"), ((1, 99), "versioned"),
    ((2, 0), "versioned"), ((10**30, 0), "versioned"), ((np.int32(1), Index(0)), "versioned"), ((1,), WRONG),
    ((1, 0, 0), WRONG), ([1, 0], WRONG), (("1", 0), WRONG), (1, WRONG),
]
DEVICES = [
    (None, None), ((1, 0), None), ((Kind.CPU, 0), None), ((np.int64(1), Index(0)), None), ((Kind.CUDA, 0), REFUSED),
    ((77, 0), REFUSED), ((1,), WRONG), ("cpu", WRONG), ((1.0, 0), WRONG),
]
COPIES = [(None, False), (False, False), (True, True), (1, WRONG), ("yes", WRONG), (Foreign(), WRONG)]


def choose(random, values):
    """Chooses a value; in most rounds a valid one."""
    legal = [value for value in values if not isinstance(value[1], tuple)]
    return random.choice(legal if random.random() < 0.8 else values)


def test_arguments_of_an_export():
    random = generator()
    arrays = [Array.full((3, 4), 1.0), Array.full((3, 4), 1.0, readonly=True)]
    references = [sys.getrefcount(array) for array in arrays]
    for _ in range(ROUNDS):
        number = random.randrange(2)
        array, readonly = arrays[number], number == 1
        chosen = {
            "stream": choose(random, STREAMS),
            "max_version": choose(random, VERSIONS),
            "dl_device": choose(random, DEVICES),
            "copy": choose(random, COPIES),
        }
        given = {name: value for name, (value, _) in chosen.items() if random.random() < 0.7}
        meant = {name: chosen[name][1] if name in given else None for name in chosen}
        unknown = random.random() < 0.05
        if unknown:
            given[random.choice(["", "copied", "strëam", "max_version "])] = None
        expected = [kind for kind in meant.values() if isinstance(kind, tuple)] + [WRONG] * unknown
        form, copied = meant["max_version"] or "legacy", meant["copy"] is True
        if not expected and readonly and not copied and form == "legacy":
            expected = [REFUSED]
        names = list(given)
        random.shuffle(names)
        told = f"__dlpack__({', '.join(f'{name}={given[name]!r}' for name in names)}), readonly={readonly}"
        try:
            capsule = array.__dlpack__(**{name: given[name] for name in names})
        except (TypeError, BufferError, ValueError) as error:
            assert any(isinstance(error, kinds) for kinds in expected), f"{told}: {error!r}"
            assert str(error), told
            continue
        assert not expected, told
        assert form_of(capsule) == form, told
        struct = look(capsule)
        if form == "versioned":
            flags = READ_ONLY * (readonly and not copied) + IS_COPIED * copied
            assert (struct.major, struct.flags) == (1, flags), told
        own = interop_demo.describe(array)["data"]
        assert (struct.tensor.data == own) is not copied, told
    del array, capsule
    gc.collect()
    assert [sys.getrefcount(array) for array in arrays] == references


def producer(random):
    """Returns a producer, the expected protocol or exceptions, and its tensor."""
    form = random.choice(["legacy", "versioned"])
    wrong = random.choice([{}] * 6 + [{"shape": (2, -3)}, {"dtype": (2, 33, 1)}, {"ndim": -1}, {"device": (77, 0)}])
    tensor = Tensor(form, sealed=False, **wrong)
    called = []
    own = RuntimeError("the producer's own")
    takes = random.choice(["all", "version", "stream", "nothing", "anything"])

    def hand_out():
        called.append(True)
        return tensor.capsule()

    bodies = {
        "all": lambda self, *, stream=None, max_version=None, dl_device=None, copy=None: hand_out(),
        "version": lambda self, *, max_version=None: hand_out(),
        "stream": lambda self, stream=None: hand_out(),
        "nothing": lambda self: hand_out(),
        "anything": lambda self, **_: hand_out(),
    }
    members = {"__dlpack__": bodies[takes]}
    outcome = "dlpack" if form == "legacy" else "dlpack_versioned"
    if wrong:
        outcome = REFUSED
    device, meaning = random.choice(
        [((1, 0), None)] * 6
        + [((Kind.CPU, 0), None), ((Index(1), np.int8(0)), None), ((CUDA_HOST, 0), None), ((77, 0), REFUSED)]
        + [((1,), WRONG), (None, WRONG), ("cpu", WRONG)]
    )
    if isinstance(meaning, tuple):
        outcome = WRONG + REFUSED
    members["__dlpack_device__"] = lambda self: device
    fate = random.random()
    if fate < 0.05:
        members["__dlpack__"], outcome = raising(own), own
        if isinstance(meaning, tuple):
            outcome = (RuntimeError, *WRONG, *REFUSED)
    elif fate < 0.1:
        members["__dlpack_device__"], outcome = raising(own), own
    elif fate < 0.15:
        del members["__dlpack_device__"]
        outcome = (AttributeError, *WRONG, *REFUSED)
    elif fate < 0.2:
        result = random.choice([None, 3, "capsule", b"dltensor", object()])
        members["__dlpack__"], outcome = (lambda self, **_: result), WRONG + REFUSED
    elif fate < 0.25:
        members["__dlpack__"] = property(raising(own))
        outcome = (RuntimeError,)
    return type("Producer", (), members)(), outcome, tensor, called


def test_producers():
    random = generator()
    for number in range(ROUNDS):
        made, outcome, tensor, called = producer(random)
        told = f"round {number}: {outcome}"
        try:
            facts = interop_demo.describe(made)
        except Exception as error:  # noqa: BLE001
            if isinstance(outcome, tuple):
                assert isinstance(error, outcome), f"{told}: {error!r}"
            else:
                assert error is outcome, f"{told}: {error!r}"
            assert str(error), told
        else:
            assert facts["protocol"] == outcome, told
            assert (facts["shape"], facts["data"]) == ((2, 3), tensor.memory), told
        del made
        # Exported at most once, and each export was released once.
        assert tensor.released == len(called) <= 1, told
        Tensor.alive.pop(tensor.address)


DICT = {"shape": (2, 3), "typestr": "<f4", "data": (65536, False), "version": 3}
VALUES = [
    *(None, True, 0, 1, -1, 2**63, 2**64, -(2**70), 1.5, "", "<f4", "|V8", "é", "\ud800", b"<f4", (), [], {}, (1, 2)),
    *((2, 3), [2, 3], (2, -3), ("2",), (Index(2), np.int32(3)), (65536, False), (0, True), (None, False), [65536, 0]),
    *([("", "<f4")], [("x", "<f4", (2,))], [("x", [("y", "<i2")])], (2**62, 2**62), (1,) * 65, (12, 4), (4, 12), Foreign()),
]


def test_interface_dicts():
    """Any value for any key: a description, or an error about the interface's rules, and nothing else."""
    random = generator()
    taken = 0
    for _ in range(ROUNDS * 5):
        found = dict(DICT)
        for _ in range(random.randrange(4)):
            key = random.choice([*DICT, "strides", "stream", "mask", "descr", "typestr", "other"])
            if random.random() < 0.2:
                found.pop(key, None)
            else:
                found[key] = random.choice(VALUES)
        try:
            facts = interop_demo.parse_cai(found)
        except (TypeError, BufferError, ValueError, UnicodeError) as error:
            assert str(error), found
        else:
            taken += 1
            assert facts["protocol"] == "cai", found
            assert len(facts["shape"]) == len(facts["strides"]), found
            assert facts["readonly"] is bool(found["data"][1]), found
            assert interop_demo.parse_cai(found) == facts, found
    assert taken > ROUNDS / 2, "most dicts were refused: nothing was tested"


@pytest.mark.parametrize("form", ["legacy", "versioned"])
def test_a_capsule_that_is_consumed_in_between(form):
    """The producer returns the same capsule twice: one release, and a refusal for the second consumer."""
    tensor = Tensor(form)
    capsule = tensor.capsule()
    twice = Producer(tensor)
    twice.tensor = type("Same", (), {"capsule": lambda self: capsule})()
    interop_demo.describe(twice)
    with pytest.raises(ArrayError):
        interop_demo.describe(twice)
    assert tensor.released == 1
    assert CUDA == 2
