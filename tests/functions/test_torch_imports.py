"""What a PyO3 extension does with tensors of PyTorch that have no memory, or whose class decides what is exported."""

import interop_demo
import numpy as np
import pytest
import torch


def freed():
    x = torch.ones(4)
    view = x[1:]
    x.untyped_storage().resize_(0)
    return x, view


def test_memory_that_was_freed():
    """The address of a part of it is a small number."""
    x, view = freed()
    with pytest.raises(interop_demo.ArrayError, match="`data`: found a null pointer"):
        interop_demo.checksum(x)
    with pytest.raises(interop_demo.ArrayError, match="`data`: found the address 0x4, an offset from null"):
        interop_demo.checksum(view)


def test_memory_that_was_freed_is_not_converted():
    """NumPy would read what was there."""
    for tensor in freed():
        with pytest.raises(interop_demo.ArrayError, match="`data`: found"):
            interop_demo._like_f32(tensor)

    def function(x):
        with pytest.raises(interop_demo.ArrayError, match="`data`: found a null pointer"):
            interop_demo._like_f32(x)
        return x

    torch.func.functionalize(function)(torch.ones(3))


def test_a_subclass_that_forbids_the_export():
    """Its `__torch_function__` is called in place of `__dlpack__`, so the exchange table is not used."""
    with pytest.raises(ValueError, match="uninitialized"):
        interop_demo.checksum(torch.nn.UninitializedBuffer())

    class Closed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise PermissionError(function.__name__)

    with pytest.raises(PermissionError, match="__dlpack"):
        interop_demo.describe(torch.ones(3).as_subclass(Closed))

    class Open(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs or {})

    assert interop_demo.checksum(torch.ones(3).as_subclass(Open)) == 3.0
    # Parameters say in this way that they override nothing.
    parameter = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert interop_demo.describe(parameter)["protocol"] == "exchange"


def test_more_bytes_than_an_address_space():
    numbers = interop_demo.describe(torch.ones(1).expand(2**31, 2**31))
    assert (numbers["shape"], numbers["strides"], numbers["nbytes"]) == ((2**31, 2**31), (0, 0), 2**64 - 1)
    lent = interop_demo.asarray(torch.ones(2).expand(2**31, 2**30, 2))
    assert interop_demo.describe(lent)["strides"] == (0, 0, 1)
    assert np.from_dlpack(lent[5, 7]).tolist() == [1.0, 1.0]
    with pytest.raises((MemoryError, BufferError)):
        lent.__dlpack__(copy=True)
