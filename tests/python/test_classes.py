"""Array classes with further PyO3 options."""

import threading

import interop_demo
import numpy as np
import pytest


def test_a_mapping_is_an_array_too():
    named = interop_demo._Named()
    assert named["sum"] == "sum of 2"
    assert np.asarray(named).tolist() == [1, 2]


def test_an_array_of_a_class_for_one_thread_is_one_on_all():
    """The array methods need only `Sync`, whatever the class is. They panicked, which ends a program that aborts on
    panics.
    """
    named, answers = interop_demo._Named(), []

    def elsewhere():
        with pytest.raises(BaseException, match="unsendable"):
            named["sum"]
        answers.append(named.__dlpack_device__())
        answers.extend(np.asarray(made).tolist() for made in (np.from_dlpack(named), memoryview(named), named))
        answers.append(interop_demo.describe(named)["shape"])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers == [(1, 0), [1, 2], [1, 2], [1, 2], (2,)]


def test_a_class_around_an_array_struct_is_an_array():
    """It is filled by an import, its memory is in place, and its own attributes are its own."""
    array = np.arange(6, dtype="f4").reshape(2, 3)
    page = interop_demo._Page(array, None)
    assert (page.mode, page.rows, interop_demo._Page(page, "RGB").mode) == ("L", 2, "RGB")
    np.from_dlpack(page)[1, 2] = 9
    memoryview(page)[0, 0] = 7
    assert array.tolist() == [[7, 1, 2], [3, 4, 9]]
    assert np.asarray(page).__array_interface__["data"][0] == array.ctypes.data
    assert interop_demo.trace(page) == 11
    with pytest.raises(BufferError, match="found 1 axis.*allowed: 2 axes"):
        interop_demo._Page(array[0], None)


def test_a_class_by_hand_is_an_array():
    header = interop_demo._Header()
    views = [np.from_dlpack(header), np.asarray(header), np.frombuffer(header, "u1")]
    assert [(view.tolist(), view.flags.writeable) for view in views] == [([1, 2, 3], False)] * 3
    assert interop_demo.describe(header)["protocol"] == "exchange"


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


def test_an_array_method_of_the_class_comes_first():
    """`pyclass` adds one where the author has none. It is that of a handle of the same memory."""
    assert interop_demo._Named().__array__() == [2]
    lent = interop_demo._Lent()
    assert np.shares_memory(lent.__array__(), np.asarray(lent)) and lent.__array__("f8").dtype == "f8"
    derived = type("Derived", (interop_demo._Titled,), {"__array__": lambda self: "own"})("title")
    assert derived.__array__() == "own"
