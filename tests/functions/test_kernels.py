"""The project `hello-functions` in the folder layout of the `kernels` of Hugging Face."""

import json
import os
import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

kernels = pytest.importorskip("kernels")


@pytest.mark.skipif(sys.platform != "linux", reason="the layout of Linux")
def test_a_local_folder(tmp_path):
    folder = tmp_path / "build" / f"tvm-ffi01-cpu-{platform.machine()}-linux"
    shutil.copytree(Path(os.environ["HELLO_FUNCTIONS"]) / "hello_functions", folder)
    metadata = {"id": "hello_functions", "name": "hello-functions", "version": 1, "license": "MIT", "python-depends": []}
    (folder / "metadata.json").write_text(json.dumps(metadata | {"backend": {"type": "cpu"}}))
    module = kernels.get_local_kernel(tmp_path, backend="cpu")
    array = np.arange(3, dtype=np.float32)
    module.scale_(array, 2.0)
    assert array.tolist() == [0, 2, 4]
