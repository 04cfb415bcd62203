"""The project `hello-functions` and the example `relu` in the folder layout of the `kernels` of Hugging Face."""

import gc
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

kernels = pytest.importorskip("kernels")


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layout of Linux")


def add_metadata(folder):
    metadata = {"id": "hello_functions", "name": "hello-functions", "version": 1, "license": "MIT", "python-depends": []}
    (folder / "metadata.json").write_text(json.dumps(metadata | {"backend": {"type": "cpu"}}))


@pytest.mark.filterwarnings("ignore:operators")
def test_a_local_folder(tmp_path):
    folder = tmp_path / "build" / f"tvm-ffi01-cpu-{platform.machine()}-linux"
    shutil.copytree(Path(os.environ["HELLO_FUNCTIONS"]) / "hello_functions", folder)
    add_metadata(folder)
    module = kernels.get_local_kernel(tmp_path, backend="cpu")
    array = np.arange(3, dtype=np.float32)
    module.scale_(array, 2.0)
    assert array.tolist() == [0, 2, 4]


# All of the Python of a kernel, for any thread.
GLUE = """
import ctypes
from pathlib import Path
import torch

ctypes.PyDLL(str(Path(__file__).with_name("libhello_functions.so"))).interop_load_operators()
scaled = torch.ops.hello_functions.scaled
"""


def test_operators_in_a_local_folder(tmp_path):
    folder = tmp_path / "build" / f"tvm-ffi01-cpu-{platform.machine()}-linux"
    folder.mkdir(parents=True)
    shutil.copy(Path(os.environ["HELLO_FUNCTIONS"]) / "hello_functions/libhello_functions.so", folder)
    (folder / "__init__.py").write_text(GLUE)
    add_metadata(folder)
    # The operators of another copy of the library are registered in this process.
    program = f"""
import kernels, torch
module, x = kernels.get_local_kernel(__import__("pathlib").Path({str(tmp_path)!r}), backend="cpu"), torch.ones(3, requires_grad=True)
torch.compile(lambda x: module.scaled(x, 2.0).sum(), fullgraph=True, backend="aot_eager")(x).backward()
print(x.grad.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[2.0, 2.0, 2.0]\n", done.stderr


@pytest.fixture(scope="module")
def relu(tmp_path_factory):
    folder, package = tmp_path_factory.mktemp("relu"), Path(__file__).parents[2] / "examples/relu/package.py"
    subprocess.run([sys.executable, package, os.environ["RELU"], folder], check=True)
    return kernels.get_local_kernel(folder, backend="cpu").relu


def test_relu_of_the_example(relu):
    x = torch.randn(100, 7).t()
    x[0, 0], out = float("nan"), torch.empty_like(x)
    assert relu(x, out) is None and torch.equal(out.nan_to_num(-1), torch.relu(x).nan_to_num(-1))
    text = "`dtype`: found float64, allowed: float32 \\(from argument `x` of `relu`\\)"
    for bad, text in (((x.double(), out), text), ((x, out[:3]), "`shape`: found "), ((x, x), "one writer"), ((x,), "missing value for argument 'out'")):
        with pytest.raises(RuntimeError, match=text):
            relu(*bad)
    assert set(torch.library.opcheck(relu.default, (x, out)).values()) == {"SUCCESS"}


def test_relu_of_the_example_under_torch_compile(relu):
    """A list without gradients: what only Python tells must outlive the run of its program."""

    def function(x):
        out = torch.empty_like(x)
        relu(x, out)
        return out + 1

    gc.collect()
    for dynamic in (False, True):
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for count in (3, 5):
            x = torch.randn(count, 4)
            assert torch.equal(compiled(x), torch.relu(x) + 1)


def test_the_glue_of_the_example():
    """What an author writes besides the kernel."""
    folder = Path(__file__).parents[2] / "examples/relu"
    lines = [line for file in ("src/lib.rs", "relu/__init__.py") for line in (folder / file).read_text().splitlines()]
    assert len([line for line in lines if line.strip() and not line.startswith(("//", "#!"))]) <= 20
