import hello_cuda
import numpy as np
import pytest


def libraries():
    """Yields, for each installed library that finds a GPU, a function that makes an array and one that reads it."""
    try:
        import torch

        if torch.cuda.is_available():
            yield pytest.param(lambda numbers: torch.tensor(numbers).cuda(), lambda array: torch.from_dlpack(array).tolist(), id="torch")
    except ImportError:
        pass
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        yield pytest.param(cupy.asarray, lambda array: cupy.from_dlpack(array).tolist(), id="cupy")
    except Exception:
        pass
    try:
        import simulated

        yield pytest.param(simulated.Tensor, simulated.numbers, id="simulated")
    except ImportError:
        pass


@pytest.mark.parametrize(("make", "read"), list(libraries()))
def test_on_a_device(make, read):
    row = make(np.arange(6, dtype=np.float32))
    hello_cuda.double_(row)
    assert read(row) == [0, 2, 4, 6, 8, 10]
    doubled = hello_cuda.double(row)
    assert type(doubled) is type(row) and doubled.shape == (6,)
    assert read(doubled) == [0, 4, 8, 12, 16, 20]
    assert read(hello_cuda.double(doubled)) == [0, 8, 16, 24, 32, 40]
    assert read(row) == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("wrong", ["nonsense", np.zeros(3, np.float32)])
def test_anything_else_is_refused(wrong):
    with pytest.raises((TypeError, BufferError), match="found"):
        hello_cuda.double_(wrong)
