"""A class with a handwritten `__dlpack__`: the result of `interop_core::python::export`, and what it keeps alive."""

import inspect

import interop_demo
import numpy as np
import pytest
from capsules import IS_COPIED, form_of, look

Recording = interop_demo.Recording


def recording(count=4):
    return Recording(np.arange(count, dtype=np.float32), 44100)


def test_consumers_share_the_samples():
    """Each capsule refers to the same memory, which outlives the object and is not the constructor's argument."""
    source = np.arange(4, dtype=np.float32)
    ours = Recording(source, 44100)
    first, second = np.from_dlpack(ours), np.from_dlpack(ours)
    del ours
    assert first.flags.writeable and np.shares_memory(first, second)
    first[:] = 7
    assert second.tolist() == [7] * 4
    assert source.tolist() == [0, 1, 2, 3]
    assert interop_demo.live_exports() == 2


def test_what_a_recording_is_made_of():
    with pytest.raises(interop_demo.ArrayError, match=r"found 2 axes.*allowed: 1 ax.*numpy\.ndarray"):
        Recording(np.zeros((2, 2), np.float32), 1)
    with pytest.raises(interop_demo.ArrayError, match=r"`dtype`: found float64, allowed: float32"):
        Recording(np.zeros(2), 1)
    assert np.from_dlpack(Recording(recording(3), 1)).tolist() == [0, 1, 2]


def test_it_is_imported_as_any_object():
    facts = interop_demo.describe(recording())
    assert (facts["protocol"], facts["shape"], facts["dtype"]) == ("dlpack_versioned", (4,), "<f4")
    assert facts["readonly"] is False
    assert interop_demo.checksum(recording()) == 6


def test_a_loop_over_the_samples_ends():
    ours = recording(3)
    assert list(ours) == [0, 1, 2]
    with pytest.raises(IndexError, match=r"`index\[0\]`: found 3, allowed: less than the extent 3"):
        ours[3]


def test_the_keywords_are_those_of_the_standard():
    assert inspect.signature(Recording.__dlpack__) == inspect.signature(interop_demo.Array.__dlpack__)
    ours = recording()
    assert form_of(ours.__dlpack__()) == form_of(ours.__dlpack__(max_version=(0, 8))) == "legacy"
    copied = ours.__dlpack__(max_version=(2, 0), dl_device=ours.__dlpack_device__(), copy=True, stream=None)
    assert look(copied).flags == IS_COPIED
    assert not np.shares_memory(np.from_dlpack(interop_demo.asarray(copied)), np.from_dlpack(ours))


@pytest.mark.parametrize(
    ("wishes", "error"),
    [
        ({"max_version": 1}, TypeError),
        ({"copy": "yes"}, TypeError),
        ({"unknown": None}, TypeError),
        ({"dl_device": (2, 0)}, interop_demo.ArrayError),
        ({"stream": 1}, interop_demo.StreamError),
    ],
    ids=repr,
)
def test_what_it_is_asked_in_vain(wishes, error):
    with pytest.raises(error, match=next(iter(wishes))):
        recording().__dlpack__(**wishes)
    with pytest.raises(TypeError, match="positional"):
        recording().__dlpack__(None)
