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
