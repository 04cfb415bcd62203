"""Errors of the producer are passed on unchanged (R52, R114, R120, bugs 130, 144, 152)."""

import interop_demo
import pytest
from capsules import VERSION, Producer, Tensor, producer_with, raising

describe = interop_demo.describe

ERRORS = [
    TypeError("bad dtype"),
    TypeError(),
    TypeError(7),
    ValueError("no"),
    BufferError("not exportable"),
    RuntimeError("grad"),
    AttributeError("inner"),
    KeyError("key"),
    OverflowError("big"),
    MemoryError(),
    StopIteration(),
    KeyboardInterrupt(),
    SystemExit(3),
    NotImplementedError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_in_dlpack_is_passed_on(error):
    """Unchanged, after one call: `TypeError('bad dtype')` is not about the keywords (bug 144)."""
    calls = []
    producer = producer_with(__dlpack__=raising(error, calls))
    with pytest.raises(BaseException) as caught:
        describe(producer)
    assert caught.value is error
    assert len(calls) == 1


def unknown(keyword):
    return TypeError(f"helper() got an unexpected keyword argument {keyword!r}")


@pytest.mark.parametrize(
    "error",
    [
        unknown("dtype"),
        TypeError("'dtype' is an invalid keyword argument for helper()"),
        TypeError("helper() missing 1 required keyword-only argument: 'dtype'"),
    ],
    ids=str,
)
def test_a_mistake_within_the_producer_is_not_about_our_keywords(error):
    """Bug 144: a second call with fewer keywords might return a tensor with less information."""
    calls = []

    def method(self, **wishes):
        calls.append(wishes)
        if "max_version" in wishes:
            raise error
        return Tensor("legacy").capsule()

    with pytest.raises(TypeError) as caught:
        describe(producer_with(__dlpack__=method))
    assert caught.value is error
    assert calls == [{"max_version": VERSION}]


def test_an_error_that_is_no_type_error_is_not_asked_for_its_text():
    class Talks(ValueError):
        asked = 0

        def __str__(self):
            Talks.asked += 1
            return "keyword max_version"

    with pytest.raises(Talks):
        describe(producer_with(__dlpack__=raising(Talks())))
    assert Talks.asked == 0


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_in_dlpack_device_is_passed_on(error):
    producer = producer_with(__dlpack_device__=raising(error))
    with pytest.raises(BaseException) as caught:
        describe(producer)
    assert caught.value is error
    assert producer.asked == []


@pytest.mark.parametrize("error", [error for error in ERRORS if not isinstance(error, AttributeError)], ids=repr)
@pytest.mark.parametrize("name", ["__dlpack__", "__cuda_array_interface__"])
def test_an_error_in_a_property_is_passed_on(error, name):
    """R52, bug 152: only an AttributeError means that the attribute is missing."""
    producer = type("Odd", (), {name: property(raising(error))})()
    with pytest.raises(BaseException) as caught:
        describe(producer)
    assert caught.value is error


@pytest.mark.parametrize("name", ["__dlpack__", "__cuda_array_interface__"])
def test_an_attribute_error_in_a_property_is_no_attribute(name):
    """The AttributeError is the cause of the refusal."""
    reason = AttributeError("none")
    producer = type("Odd", (), {name: property(raising(reason))})()
    with pytest.raises(TypeError, match="__dlpack__") as caught:
        describe(producer)
    assert caught.value.__cause__ is reason
    with pytest.raises(TypeError, match="__dlpack__") as caught:
        describe(object())
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["__dlpack__", "__cuda_array_interface__"])
def test_an_interrupt_while_the_reason_is_asked_for(name):
    reasons = [KeyboardInterrupt(), AttributeError("none")]
    producer = type("Odd", (), {name: property(lambda self: raising(reasons.pop())())})()
    with pytest.raises(KeyboardInterrupt):
        describe(producer)
    assert reasons == []


def test_the_first_error_is_kept():
    """R114: if the second call fails too, the first error is its cause."""

    def method(self, stream=None):
        raise ValueError("in the old method")

    with pytest.raises(ValueError, match="in the old method") as caught:
        describe(producer_with(__dlpack__=method))
    assert isinstance(caught.value.__cause__, TypeError)
    assert "max_version" in str(caught.value.__cause__)


def test_a_cause_of_the_producer_is_kept():
    def method(self, stream=None):
        raise ValueError("outer") from RuntimeError("inner")

    with pytest.raises(ValueError, match="outer") as caught:
        describe(producer_with(__dlpack__=method))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_that_cannot_be_printed():
    class Mute(TypeError):
        def __str__(self):
            raise RuntimeError("no text")

    with pytest.raises(Mute):
        describe(producer_with(__dlpack__=raising(Mute())))


def test_an_exception_that_is_raised_again_is_not_its_own_cause():
    """R114: following the causes of such an exception would never end."""
    kept = TypeError("unexpected keyword argument 'max_version'")
    with pytest.raises(TypeError) as caught:
        describe(producer_with(__dlpack__=raising(kept, calls := [])))
    assert caught.value is kept and len(calls) == 2
    assert kept.__cause__ is None


@pytest.mark.parametrize("ring", [False, True], ids=["inner", "ring"])
def test_nor_the_cause_of_its_own_cause(ring):
    """R114: two exceptions that a producer keeps, one the cause of the other. A cycle of causes must not make us
    loop.
    """
    plain, inner = TypeError("no"), TypeError("inner")
    kept = TypeError("unexpected keyword argument 'max_version'")
    kept.__cause__, inner.__cause__ = inner, kept if ring else None
    answers = iter([kept, plain if ring else inner])

    def method(self, **wishes):
        raise next(answers)

    with pytest.raises(TypeError) as caught:
        describe(producer_with(__dlpack__=method))
    assert caught.value is (plain if ring else inner)
    assert (plain.__cause__, inner.__cause__) == ((kept, kept) if ring else (None, None))
