"""What a direct call does with tensors of PyTorch that are not what they seem: without memory, or with a lazy sign."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hello_functions
import hello_functions.for_torch  # noqa: F401


def test_a_new_tensor_without_memory(f):
    """The allocator of these modes returns a tensor whose address is null."""
    x = torch.ones(3)
    with FakeTensorMode(), pytest.raises(ValueError, match="has allocated no memory.*null.*register_fake"):
        f.scaled(x, 2.0)
    with pytest.raises(ValueError, match="has allocated no memory"):
        torch.func.functionalize(lambda y: (f.scaled(x, 2.0), y)[1])(torch.ones(2))
    assert f.scaled(x, 2.0).tolist() == [2.0] * 3


def test_new_memory_is_filled_with_zeros(f):
    """PyTorch reuses the memory that it has freed, and a kernel that adds to its result must find zeros."""
    for _ in range(20):
        torch.full((1000,), 7.0)
        assert f.zeros_like(torch.ones(1000)).tolist() == [0.0] * 1000


def test_a_lazy_sign():
    """The ABI does not tell it: a direct call sees the memory. The dispatcher of an operator resolves it before the call."""
    numbers = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert numbers.is_neg() and numbers.tolist() == [-2.0, -4.0]
    assert hello_functions.scaled(numbers, 1.0).tolist() == [2.0, 4.0]
    assert hello_functions.scaled(numbers.resolve_neg(), 1.0).tolist() == [-2.0, -4.0]
    assert torch.ops.hello_functions.scaled(numbers, 1.0).tolist() == [-2.0, -4.0]
    # To an operator that writes and returns nothing the dispatcher would pass a copy, and read beyond its stack.
    with torch.no_grad():
        for lazy in (numbers, torch._neg_view(torch.ones(2)), torch.ones(2, dtype=torch.complex64).conj()):
            with pytest.raises(RuntimeError, match=r"lazy sign or conjugate \(`x.resolve_neg\(\)`"):
                torch.ops.hello_functions.scale_(lazy, 2.0)
    assert numbers.tolist() == [-2.0, -4.0]
