import hello_python
import numpy as np
import pytest


def test_in_place():
    row = np.arange(6, dtype=np.float32)
    hello_python.double_(row[3:])
    assert row.tolist() == [0, 1, 2, 6, 8, 10]


def test_a_new_array():
    doubled = hello_python.double(np.arange(3, dtype=np.float32))
    assert np.asarray(doubled).tolist() == [0, 2, 4]
    assert np.asarray(doubled[::-1]).tolist() == [4, 2, 0] and doubled.shape == (3,)


def test_an_array_of_the_callers_library():
    halved = hello_python.halved(np.arange(3, dtype=np.float32)[::-1].copy())
    assert type(halved) is np.ndarray and halved.tolist() == [1, 0.5, 0]


def test_a_class_of_arrays():
    samples = hello_python.Samples(3, rate=44_100)
    np.asarray(samples)[1:] = 5
    hello_python.double_(samples)
    assert np.asarray(samples).tolist() == [0, 10, 10]
    assert len(samples) == 3 and samples.rate == 44_100


@pytest.mark.parametrize("wrong", ["nonsense", [1.0, 2.0], np.zeros((2, 2), np.float32), np.zeros(2)])
def test_anything_else_is_refused(wrong):
    with pytest.raises((TypeError, BufferError), match="found"):
        hello_python.double_(wrong)
