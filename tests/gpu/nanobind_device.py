"""nanobind returned GPU arrays with a CPU tag (wjakob/nanobind#628).

A wrong tag is refused with the driver's answer before the address is read. Our own arrays have the right tag.
"""

import driver
import interop_demo
import native
import numpy as np
import pytest
from partners import BASE

if why := native.missing():
    pytest.skip(f"modules cannot be compiled: {why}", allow_module_level=True)
pytest.importorskip("nanobind", exc_type=ImportError)
arrays = native.load("gpu_arrays")

KINDS = {"device": 2, "pinned": 3, "managed": 13}
TAGS = {1: "CPU", 2: "CUDA", 3: "CUDAHost", 13: "CUDAManaged", 10: "ROCm"}


@pytest.fixture(scope="module")
def memory():
    addresses = {kind: driver.alloc(BASE.nbytes, kind) for kind in KINDS}
    for address in addresses.values():
        driver.write(address, bytearray(BASE.tobytes()))
    return addresses


def tagged(address, tag, ordinal=0):
    return arrays.make(address, [4, 6], [6, 1], tag, ordinal)


@pytest.mark.parametrize("kind", KINDS)
def test_right_tags_come_in(memory, kind):
    facts = interop_demo.describe(tagged(memory[kind], KINDS[kind]))
    assert (facts["device"], facts["data"]) == ((KINDS[kind], 0), memory[kind])
    assert interop_demo.checksum(tagged(memory[kind], KINDS[kind])) == BASE.sum()


# Combinations where a wrong tag is harmless: managed memory works as device memory, and the host can read pinned and
# managed memory.
HARMLESS = {("managed", 2), ("pinned", 1), ("managed", 1)}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_tags_are_refused(memory, kind, tag):
    if KINDS[kind] == tag or (kind, tag) in HARMLESS:
        assert interop_demo.describe(tagged(memory[kind], tag))["data"] == memory[kind]
        return
    with pytest.raises(interop_demo.ArrayError) as refused:
        interop_demo.describe(tagged(memory[kind], tag))
    if tag != 10:  # this driver knows nothing about memory of other vendors
        assert "driver" in str(refused.value)
        assert f"{memory[kind]:#x}" in str(refused.value)


def test_host_memory_with_a_gpu_tag():
    host = np.ones((4, 6), np.float32)
    for tag in (2, 3, 13):
        with pytest.raises(interop_demo.ArrayError, match="driver"):
            interop_demo.describe(tagged(host.ctypes.data, tag))


def test_wrong_ordinals_are_refused(memory):
    with pytest.raises(interop_demo.ArrayError, match="driver|device of this machine"):
        interop_demo.describe(tagged(memory["device"], 2, 1))


@pytest.mark.parametrize(("kind", "device"), [("cuda", (2, 0)), ("pinned", (3, 0)), ("managed", (13, 0))])
def test_ours_in_nanobind(kind, device):
    array = interop_demo.Array.full((4, 6), 2.0, device=kind)
    taken = arrays.Array(array)
    assert (taken.address(), taken.device()) == (interop_demo.describe(array)["data"], device)


def test_ours_in_torch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    array = interop_demo.Array.full((4, 6), 2.0, device="cuda")
    tensor = torch.from_dlpack(array)
    assert str(tensor.device) == "cuda:0"
    assert tensor.data_ptr() == interop_demo.describe(array)["data"]
    assert tensor.sum().item() == 48
