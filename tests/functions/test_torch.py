"""What the operators of `hello-functions` do with gradients, versions, layouts and threads."""

import threading

import pytest
import torch

import hello_functions
import hello_functions.for_torch  # noqa: F401

OPERATORS = torch.ops.hello_functions


def test_a_write_is_told():
    saved = torch.ones(3, requires_grad=True)
    y = saved * 1.0
    z = (y * y).sum()
    with torch.no_grad():
        OPERATORS.scale_(y, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_tensor_that_requires_a_gradient():
    parameter = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match="requires a gradient"):
        OPERATORS.scale_(parameter, 2.0)
    assert parameter.tolist() == [1.0] * 3
    with torch.no_grad():
        OPERATORS.scale_(parameter, 2.0)
    assert parameter.tolist() == [2.0] * 3 and parameter._version == 1
    # A direct call cannot see it. The page says so.
    hello_functions.scale_(parameter, 2.0)
    assert parameter.tolist() == [4.0] * 3 and parameter._version == 1


def test_gradients_of_any_layout():
    x = torch.arange(12.0).reshape(3, 4).t().requires_grad_()
    # The gradient of a sum is expanded, with strides of 0.
    OPERATORS.scaled(OPERATORS.scaled(x, 2.0), 3.0).sum().backward()
    assert x.grad.flatten().tolist() == [6.0] * 12
    double = torch.ones(3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: OPERATORS.scaled(x.float(), 2.0), double, eps=1e-2, atol=1e-2)


def test_layouts():
    x = torch.arange(24.0).reshape(4, 6)
    for view in (lambda a: a[:, ::2], lambda a: a.t(), lambda a: a[:0], lambda a: a[1, 2], lambda a: a[2]):
        ours, theirs = x.clone(), x.clone()
        OPERATORS.scale_(view(ours), 2.0)
        view(theirs).mul_(2.0)
        assert torch.equal(ours, theirs) and torch.equal(OPERATORS.scaled(view(x), 3.0), view(x) * 3)
    with pytest.raises(RuntimeError, match="no two indices share an element"):
        OPERATORS.scale_(torch.ones(1).expand(3), 2.0)
    with pytest.raises(RuntimeError, match="`dtype`: found float64, allowed: float32"):
        OPERATORS.scaled(torch.ones(3).double(), 2.0)


def test_dynamic_shapes_and_export():
    compiled = torch.compile(lambda x: OPERATORS.scaled(x, 2.0) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (3, 4, 7):
        x = torch.arange(float(count))
        assert torch.equal(compiled(x), 2 * x + 1)

    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.ops.hello_functions.scaled(x, 3.0)

    assert torch.export.export(Module(), (torch.ones(3),)).module()(torch.ones(3)).tolist() == [3.0] * 3


def test_inference_mode():
    with torch.inference_mode():
        assert OPERATORS.scaled(torch.ones(3), 2.0).tolist() == [2.0] * 3


def test_threads():
    wrong = []

    def run(number):
        x = torch.full((100,), float(number))
        for _ in range(200):
            OPERATORS.scale_(x, 2.0)
            x.copy_(OPERATORS.scaled(x, 0.5))
        if x.tolist() != [float(number)] * 100:
            wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
