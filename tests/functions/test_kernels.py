"""The project `hello-functions` in the folder layout of the `kernels` of Hugging Face."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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


# All of the Python of a kernel, as on the page.
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
