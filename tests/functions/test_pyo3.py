"""Functions of a PyO3 extension as operators of PyTorch: the same lines, without `increment_version`."""

import interop_demo
import pytest
import torch

library = torch.library.Library("interop_demo_pyo3", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", interop_demo.twice, "CPU")
torch.library.register_fake("interop_demo_pyo3::twice", lambda x: x.new_empty(x.shape), lib=library)
library.define("scale_(Tensor(a!) x, float factor) -> ()")
library.impl("scale_", lambda x, factor: interop_demo.scale_(x, factor) and None, "CPU")
torch.library.register_fake("interop_demo_pyo3::scale_", lambda x, factor: None, lib=library)
OPERATORS = torch.ops.interop_demo_pyo3


def test_eager():
    x = torch.arange(6.0)
    assert OPERATORS.twice(x).tolist() == [0, 2, 4, 6, 8, 10]
    before = x._version
    OPERATORS.scale_(x, 3.0)
    assert x.tolist() == [0, 3, 6, 9, 12, 15] and x._version == before + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(backend):
    def function(x):
        y = OPERATORS.twice(x + 1)
        OPERATORS.scale_(y, 3.0)
        return y - 1

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    assert compiled(torch.arange(3.0)).tolist() == [5, 11, 17]


@pytest.mark.parametrize(("operator", "arguments"), [("twice", ()), ("scale_", (2.5,))])
def test_opcheck(operator, arguments):
    outcome = torch.library.opcheck(getattr(OPERATORS, operator).default, (torch.arange(6.0), *arguments))
    assert set(outcome.values()) == {"SUCCESS"}
