"""PyTorch up to 2.11 ends the process on negative strides, and 2.15 raises an error (pytorch/pytorch#188023).

An export of ours with negative strides has the same outcome in PyTorch as one of NumPy's, and never wrong values. A
copy is accepted.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

# In its own process, which may crash.
PROGRAM = """
import sys, interop_demo, numpy as np, torch

SOURCE, COPY, DEVICE = sys.argv[1], sys.argv[2] == "copied", sys.argv[3]
values = np.arange(24, dtype=np.float32).reshape(4, 6)
if SOURCE == "numpy":
    array = values[::-1, ::-2]
else:
    array = interop_demo.Array.full((4, 6), 1.0, device=DEVICE)
    for number in range(4):
        interop_demo.scale_(array[number], float(number))
    array = array[::-1, ::-2]
print("asked", flush=True)
try:
    tensor = torch.from_dlpack(array, copy=True) if COPY else torch.from_dlpack(array)
except Exception as error:
    print("refused")
else:
    expected = values[::-1, ::-2].tolist() if SOURCE == "numpy" else [[float(row)] * 3 for row in (3, 2, 1, 0)]
    print("taken", tensor.tolist() == expected)
"""


def outcome(source, wish, device):
    """Returns the outcome of the exchange: `refused`, `taken True`, or `ended` by a signal. Anything else is printed.
    """
    command = [sys.executable, "-c", PROGRAM, source, wish, device]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    assert lines[:1] == ["asked"], ran.stdout + ran.stderr
    return "ended" if ran.returncode < 0 else lines[-1]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    return request.param


def test_a_reversed_array_ends_as_that_of_numpy(device):
    found = outcome("ours", "in place", device)
    assert found == outcome("numpy", "in place", device)
    assert found in ("refused", "ended")
    import torch

    if torch.torch_version.TorchVersion(torch.__version__) >= (2, 15):
        assert found == "refused"


def test_a_copy_of_it_comes_in(device):
    assert outcome("ours", "copied", device) == "taken True"
