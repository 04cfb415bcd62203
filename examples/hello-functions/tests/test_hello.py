"""The functions from each library that is installed, on the host and, where one is found, on a GPU."""

import shutil
import subprocess
from pathlib import Path

import hello_functions
import numpy as np
import pytest


def test_numpy():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    hello_functions.scale_(array[:, ::2], 3.0)
    assert array.tolist() == [[0, 1, 6], [9, 4, 15]]
    assert np.from_dlpack(hello_functions.scaled(array.T, 2.0)).tolist() == (2 * array.T).tolist()
    with pytest.raises(TypeError, match="`dtype`: found float64, allowed: float32"):
        hello_functions.scale_(array.astype("f8"), 2.0)


@pytest.fixture(params=["cpu", "cuda"])
def torch_device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param


def test_torch(torch_device):
    import hello_functions.for_torch
    import torch

    operators, x = torch.ops.hello_functions, torch.arange(6.0, device=torch_device)
    operators.scale_(x, 2.0)
    assert x.tolist() == [0, 2, 4, 6, 8, 10] and hello_functions.scaled(x, 0.5).tolist() == [0, 1, 2, 3, 4, 5]
    x.requires_grad_()
    operators.scaled(operators.scaled(x, 2.0), 3.0).sum().backward()
    assert x.grad.tolist() == [6.0] * 6
    with pytest.raises(RuntimeError, match="requires a gradient"):
        operators.scale_(x, 2.0)
    for operator, arguments in ((operators.scaled, (x, 2.5)), (operators.scale_, (x.detach().clone(), 2.5))):
        assert set(torch.library.opcheck(operator.default, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_torch_compile(torch_device, backend):
    if backend == "inductor" and torch_device == "cpu" and not shutil.which("c++"):
        pytest.skip("the default backend of torch.compile needs a C++ compiler, and finds no `c++`")
    import hello_functions.for_torch  # noqa: F401
    import torch

    def function(x):
        y = torch.ops.hello_functions.scaled(x + 1, 2.0)
        z = y.detach().clone()
        torch.ops.hello_functions.scale_(z, 3.0)
        return y.sum() + z.sum()

    x = torch.arange(3.0, device=torch_device, requires_grad=True)
    result = torch.compile(function, fullgraph=True, backend=backend)(x)
    result.backward()
    assert result.item() == 12 + 36 and x.grad.tolist() == [2.0] * 3


def test_torch_graph():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    x, graph = torch.ones(6, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hello_functions.scale_(x, 2.0)
        y = hello_functions.scaled(x, 3.0)
    for value in (1, 2):
        x.fill_(value)
        graph.replay()
        assert x.tolist() == [2 * value] * 6 and y.tolist() == [6 * value] * 6


def test_jax():
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax_tvm_ffi")
    from hello_functions.for_jax import scale, scaled

    x = jax.numpy.arange(6, dtype=np.float32).reshape(2, 3)
    assert (jax.jit(lambda x: scaled(x, 2.0) + 1)(x) == 2 * x + 1).all()
    assert (jax.vmap(lambda x: scaled(x, 2.0))(x) == 2 * x).all()
    assert (jax.jit(lambda x: scale(x, 2.0) + x)(x) == 3 * x).all()
    assert (jax.grad(lambda x: scaled(x, 2.0).sum())(x) == 2).all()


def test_cupy():
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(6, dtype=cupy.float32)
    with cupy.cuda.Stream(non_blocking=True):
        x += 1
        hello_functions.scale_(x, 2.0)
        assert (x * 2).tolist() == [4, 8, 12, 16, 20, 24]
        assert cupy.from_dlpack(hello_functions.scaled(x, 2.0)).tolist() == [4, 8, 12, 16, 20, 24]


@pytest.mark.parametrize("compiler", [["cc"], ["c++", "-x", "c++", "-std=c++20"]], ids=["C", "C++"])
def test_c(tmp_path, compiler):
    if not shutil.which(compiler[0]):
        pytest.skip("no compiler")
    here, program = Path(__file__).parent, tmp_path / "hello"
    subprocess.run([*compiler, "-Wall", "-Werror", "-o", program, here / "hello.c", "-ldl"], check=True)
    done = subprocess.run([program, hello_functions.LIBRARY], capture_output=True, text=True, check=True)
    assert done.stdout == "2.5 5 7.5 10\nTypeError: `scale_`: the argument `factor` is missing\n"
