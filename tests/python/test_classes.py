"""Array classes with further PyO3 options, or with their own version of an array method."""

import copy
import threading

import interop_demo
import numpy as np
import pytest


def test_a_mapping_is_not_iterated():
    """Its items have names: an iteration by index raised a SystemError."""
    named = interop_demo._Named()
    assert named["sum"] == "sum of 2"
    for iterate in (iter, list, lambda array: 1.0 in array):
        with pytest.raises(TypeError, match="not (a container or )?iterable"):
            iterate(named)
    assert np.asarray(named).tolist() == [1, 2]


def test_an_array_of_a_class_for_one_thread_is_one_on_all():
    """The array methods need only `Sync`, whatever the class is. They panicked, which ends a program that aborts on
    panics.
    """
    named, answers = interop_demo._Named(), []

    def elsewhere():
        with pytest.raises(BaseException, match="unsendable"):
            named["sum"]
        answers.append((named.shape, len(named), repr(named), named.__dlpack_device__()))
        answers.extend(np.asarray(made).tolist() for made in (np.from_dlpack(named), memoryview(named), named))
        answers.append(interop_demo.describe(named)["shape"])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers == [((2,), 2, repr(named), (1, 0)), [1, 2], [1, 2], [1, 2], (2,)]


class Lacking:
    """Has no attributes, whatever a class inherits."""

    def __get__(self, *_):
        raise AttributeError


class Untold(interop_demo._Titled):
    __getnewargs__ = Lacking()


def test_each_way_to_say_how_an_array_is_pickled():
    """One is enough. Without any, pickling is refused, because an array without its elements would be sent."""
    with pytest.raises(TypeError, match="cannot pickle 'Untold', which shares memory"):
        copy.copy(Untold("song"))
    for name, way in [
        ("__getnewargs_ex__", lambda made: ((made.title,), {})),
        ("__reduce__", lambda made: (type(made), (made.title,))),
    ]:
        told = type("Told", (Untold,), {name: way})("song")
        assert copy.copy(told).title == "song"


def test_a_method_of_its_own_is_not_passed_over():
    """The exchange table would export what the class's own `__dlpack__` refuses."""
    kept = interop_demo._Kept()
    assert not hasattr(kept, "__dlpack_c_exchange_api__")
    for take in (interop_demo.describe, np.from_dlpack, pytest.importorskip("tvm_ffi").from_dlpack):
        with pytest.raises(BufferError, match="kept"):
            take(kept)


def test_nobody_writes_to_what_rust_may_have_lent():
    """Through none of the protocols."""
    lent = interop_demo._Lent()
    views = [np.from_dlpack(lent), np.asarray(lent), np.frombuffer(lent, "f4"), np.asarray(memoryview(lent))]
    assert [(view.tolist(), view.flags.writeable) for view in views] == [([1.0, 2.0], False)] * 4
    facts = [interop_demo.describe(by) for by in (lent, lent.__dlpack__(max_version=(1, 0)))]
    assert [(fact["protocol"], fact["readonly"]) for fact in facts] == [("exchange", True), ("dlpack_versioned", True)]
    with pytest.raises(BufferError, match="read-only"):
        lent.__dlpack__()
    assert np.from_dlpack(lent, copy=True).flags.writeable


def test_a_struct_that_contradicts_itself_is_refused_where_it_is_made():
    with pytest.raises(BufferError, match="bytes 0 to 8, allowed: bytes 0 to 4"):
        interop_demo._torn()
