"""What users expect of an array object besides the protocols: attributes, `len`, `repr`, weak references, errors.

`Array` has them from its author, `ExportedArray` from this project.
"""

import copy
import gc
import math
import pickle
import struct
import sys
import weakref

import interop_demo
import numpy as np
import pytest
from capsules import PADDED, Tensor
from interfaces import types_of

Array = interop_demo.Array

CASES = {
    "plain": lambda: np.ones((2, 3), "<f4"),
    "0d": lambda: np.array(3.0),
    "empty": lambda: np.ones((3, 0, 2), "<i2"),
    "fortran": lambda: np.ones((4, 5), "<c16", order="F"),
    "backwards": lambda: np.ones((4, 6), "|u1")[::-2, ::3],
    "broadcast": lambda: np.broadcast_to(np.int64(4), (5, 6)),
    "bool": lambda: np.ones(7, "?"),
}


@pytest.mark.parametrize("case", CASES)
def test_attributes_are_those_of_numpy(case):
    theirs = CASES[case]()
    array = interop_demo.asarray(theirs)
    for ours in (array, interop_demo._exported(array)):
        for name in ("shape", "ndim", "size", "nbytes"):
            assert getattr(ours, name) == getattr(theirs, name)
            assert types_of(getattr(ours, name)) == types_of(getattr(theirs, name))
        assert ours.dtype == theirs.dtype.str
        assert theirs.size == 0 or ours.strides == theirs.strides
        if theirs.ndim:
            assert len(ours) == len(theirs)
        else:
            with pytest.raises(TypeError, match="len"):
                len(ours)


@pytest.mark.parametrize("name", ["shape", "ndim", "size", "nbytes", "strides", "dtype", "__dlpack__", "new"])
def test_nothing_can_be_set(name):
    """The class is frozen, because consumers rely on the memory that was exported."""
    for made in (Array.full((2, 3), 0), interop_demo.edges(Array.full((2, 3, 3), 0))):
        with pytest.raises(AttributeError):
            setattr(made, name, None)
        with pytest.raises(AttributeError):
            delattr(made, name)


def test_a_class_has_the_methods_of_the_protocols_and_no_others():
    """Its equality, hash, truth, operators and copies are its author's. It is no number, unless its author says so."""
    new = set(dir(interop_demo._Lent())) - set(dir(object)) - {"__module__", "__buffer__", "__release_buffer__"}
    protocols = {"__cuda_array_interface__", "__dlpack__", "__dlpack_c_exchange_api__", "__dlpack_device__"}
    assert new == protocols | {"__array__", "__jax_array__", "__float__", "__int__"}
    lent = interop_demo._Lent()
    assert lent == lent and lent != interop_demo._Lent() and {lent: 1}[lent] == 1 and bool(lent)


def exported(**fields):
    return interop_demo._exported(interop_demo.asarray(Tensor(**fields).capsule()))


def test_devices_and_types_without_a_code_of_numpy():
    assert [exported(device=(kind, 1)).device for kind in (1, 2, 3, 13)] == ["cpu", "cuda:1", "cuda_host", "cuda_managed"]
    assert exported(dtype=(4, 16, 1)).dtype == "bfloat16"
    assert exported(dtype=(2, 32, 4)).dtype == "float32x4"
    assert exported(dtype=(17, 4, 1)).strides is None
    assert exported(dtype=(17, 4, 1), flags=PADDED).strides == (3, 1)


def test_repr():
    array = interop_demo._exported(Array.full((2, 2), 0))
    where = interop_demo.describe(array)["data"]
    assert repr(array) == str(array) == f"<ExportedArray shape=(2, 2) dtype=float32 device=cpu at {where:#x}>"
    assert "device=cuda:0" in repr(exported(device=(2, 0)))
    # NumPy has no types for these.
    assert "dtype=float32x4" in repr(exported(dtype=(2, 32, 4)))


def test_an_element_is_not_read_as_text():
    """Python parses the bytes of any buffer that is not a number as digits: "53" became the number 53."""
    digits = interop_demo.asarray(np.frombuffer(b"53", np.uint8))
    exported = interop_demo._exported(digits)
    for convert in (int, float, complex, math.sqrt, "%f".__mod__, "%d".__mod__):
        for array in (exported, exported[0], digits, digits[0]):
            with pytest.raises(TypeError, match="numpy.asarray|real number is required"):
                convert(array)
    with pytest.raises(TypeError, match="numpy.asarray"):
        digits.__float__()
    assert bytes(digits) == b"53" and struct.unpack("2s", digits) == (b"53",)


def test_a_class_that_is_a_number_stays_one():
    """The author's methods come first: `__float__` of the one class, `__index__` of the other, which both calls take."""
    page, header = interop_demo._Page(np.zeros((2, 3), "f4"), None), interop_demo._Header()
    assert (float(page), float(header), int(header)) == (2.5, 3.0, 3)
    assert not hasattr(header, "__float__") and not hasattr(header, "__int__")
    with pytest.raises(TypeError, match="numpy.asarray"):
        int(page)


def test_numpy_functions():
    """`__array__`: in place if possible, a copy if one is requested."""
    array = interop_demo._exported(Array.full((2, 3), 2.0))
    where = interop_demo.describe(array)["data"]
    assert np.asarray(array).__array_interface__["data"][0] == where
    assert np.asarray(array).flags.writeable
    assert np.array(array, copy=False).__array_interface__["data"][0] == where
    for copied in (
        np.array(array), np.array(array, copy=True), np.asarray(array, dtype="f8"), np.asarray(array, copy=True)
    ):
        assert copied.__array_interface__["data"][0] != where
        copied[...] = 7
    assert interop_demo.checksum(array) == 12
    assert np.asarray(array, "f8").dtype == np.dtype("f8")
    with pytest.raises(ValueError, match="copy"):
        np.asarray(array, dtype="f8", copy=False)
    assert np.sum(array) == 12
    assert np.add(array, 1).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert np.asarray(Array.full((2,), 1, readonly=True)).flags.writeable is False
    assert np.asarray(Array.full((), 4.0))[()] == 4
    assert np.asarray(Array.full((0, 3), 4.0)).shape == (0, 3)


def test_memory_that_numpy_does_not_reach():
    """Without `__array__`, NumPy would take the array for a sequence of sequences of objects."""
    with pytest.raises(interop_demo.ArrayError, match="`__array__`: found CUDA"):
        np.asarray(exported(device=(2, 0)))


def test_memory_for_which_there_is_no_room():
    """An array of many elements in few bytes, and a struct that copies: the copy would not fit the address space."""
    for needs in (lambda: Array.full((2**46,), 1), lambda: interop_demo.trace(np.broadcast_to(np.float32(1), (2**23, 2**23)))):
        with pytest.raises(MemoryError):
            needs()


@pytest.mark.parametrize(
    "make",
    [lambda: Array.full((2,), 0), lambda: interop_demo.edges(Array.full((2, 3, 3), 0))],
    ids=["Array", "returned"],
)
def test_weak_references(make):
    """Bug 164."""
    made = make()
    gone = []
    reference = weakref.ref(made, gone.append)
    assert reference() is made
    capsule = made.__dlpack__()
    del made
    assert reference() is not None, "the capsule keeps the object"
    del capsule
    assert reference() is None
    assert len(gone) == 1


@pytest.mark.parametrize("travel", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickles_are_refused(travel):
    """Bug 162: the elements would be lost. A class whose author wants pickles or copies defines them."""
    for array in (Array.full((2,), 1.0), interop_demo._Lent()):
        with pytest.raises(TypeError, match="cannot pickle '.*' object"):
            travel(array)


def test_no_subclass():
    with pytest.raises(TypeError):
        type("Mine", (Array,), {})


def test_names_and_texts():
    """The module states where its parts come from and what they do."""
    assert Array.__module__ == "interop_demo"
    assert interop_demo.ArrayError.__name__ == "ArrayError"
    for name in (
        "Array",
        "asarray",
        "describe",
        "parse_cai",
        "scale_",
        "checksum",
        "blur_",
        "edges",
        "live_allocations",
        "live_exports",
        "pending_releases",
    ):
        assert getattr(interop_demo, name).__doc__
    for name in ("__dlpack__", "__dlpack_device__", "full"):
        assert getattr(Array, name).__doc__


@pytest.mark.parametrize("refused", [Array.relabel_as_device, lambda array: array.__dlpack__(dl_device=(2, 0)), memoryview])
def test_a_refusal_keeps_nothing(refused):
    """The array is released without another call."""
    array = Array.full((2,), 0, "bfloat16")
    with pytest.raises(BufferError):
        refused(array)
    reference = weakref.ref(array)
    del array
    assert reference() is None


@pytest.mark.parametrize(
    "refused",
    [
        lambda array: hasattr(array, "__cuda_array_interface__"),
        lambda array: array.__dlpack__(dl_device=(2, 0)),
        lambda array: array.__dlpack__(dl_device=(1.5, 0)),
        lambda array: array.__dlpack__(copied=True),
        memoryview,
    ],
    ids=["hasattr", "device", "type", "keyword", "buffer"],
)
def test_refusals_leave_nothing_behind(refused):
    """Errors of methods are released without a call of a module function, even thousands of them."""
    array = Array.full((2,), 0, "bfloat16")

    def often():
        for _ in range(2000):
            try:
                refused(array)
            except (BufferError, TypeError):
                pass

    often()
    gc.collect()
    before = sys.getallocatedblocks()
    often()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


def test_a_class_that_was_imported_is_let_go():
    """The type cache must not keep every class alive, nor the objects that it refers to."""

    def once():
        class Local(np.ndarray):
            payload = bytearray(1 << 20)

        class Producer:
            def __init__(self):
                self.tensor = Tensor()

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **wishes):
                return self.tensor.capsule()

        interop_demo.describe(np.ones(3).view(Local))
        interop_demo.describe(Producer())
        return weakref.ref(Local), weakref.ref(Producer)

    references = once()
    interop_demo.describe(np.ones(3))
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_type_is_not_taken_for_another():
    """Classes are created and destroyed at the same address: the cache entry of one must not be used for the next."""
    for number in range(300):
        kind = {"__array_interface__": np.ones(2).__array_interface__} if number % 2 else {}
        tensor = Tensor("legacy", device=(1 if number % 2 else 2, 0))
        made = type(
            "Made",
            (),
            {
                "__dlpack_device__": lambda self, tensor=tensor: tensor.device,
                "__dlpack__": lambda self, tensor=tensor, **wishes: tensor.capsule(),
                **kind,
            },
        )
        facts = interop_demo.describe(made())
        assert facts["device"] == tensor.device
        assert facts["stream"] == (None if number % 2 else 1)
        del made
        gc.collect(0)


def refused(**wishes):
    """The error of a refused call, with a note."""
    with pytest.raises(interop_demo.ArrayError) as caught:
        Array.full((1,), 0).__dlpack__(**wishes)
    caught.value.note = "kept"
    return caught.value


@pytest.mark.parametrize(
    ("wishes", "class_of"),
    [({"dl_device": (2, 0)}, interop_demo.ArrayError), ({"stream": 7}, interop_demo.StreamError)],
    ids=repr,
)
@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
@pytest.mark.parametrize("offered", [True, False])
def test_errors_of_workers_arrive(wishes, class_of, travel, offered, monkeypatch):
    """A worker process of a pool sends errors as pickles, which needs a class that can be found; the message was lost
    without one.
    """
    for offering in (interop_demo.ArrayError, interop_demo.StreamError):
        assert offering.__module__ == "interop_demo"
        if not offered:
            monkeypatch.setattr(offering, "__module__", "nobody")
    error = refused(**wishes)
    assert type(error) is class_of
    arrived = travel(error)
    assert type(arrived) is (class_of if offered else BufferError)
    assert (str(arrived), arrived.note) == (str(error), "kept")
