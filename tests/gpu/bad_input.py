"""Arrays that state a wrong address or stream: the result is an error with the driver's answer.

Nothing is read, nothing leaks, and the process continues.
"""

import subprocess
import sys

import driver
import interop_demo
import numpy as np
import pytest
from capsules import Tensor
from driver import Interface

ArrayError = interop_demo.ArrayError
CUDA = (2, 0)


class Producer:
    """A capsule with any address, shape and device."""

    def __init__(self, address, shape=(4,), device=CUDA):
        self.tensor, self.device = Tensor(shape=shape, strides=(1,), data=address, device=device), device

    def __dlpack__(self, **wishes):
        return self.tensor.capsule()

    def __dlpack_device__(self):
        return self.device


SPEAKERS = {"cai": Interface, "dlpack": Producer}
each = pytest.mark.parametrize("protocol", SPEAKERS)


@pytest.fixture
def memory():
    """Two megabytes: the driver maps memory in this unit, so the memory ends where the mapping ends."""
    address = driver.alloc(2 << 20)
    yield address
    driver.free(address)


def refused(object, match, **options):
    with pytest.raises(ArrayError, match=match):
        interop_demo.describe(object, **options)
    # The context still works.
    assert interop_demo.checksum(interop_demo.Array.full((8,), 1.0, device="cuda")) == 8
    if isinstance(object, Producer):
        assert object.tensor.released == 1


@each
def test_a_host_pointer(protocol):
    host = np.ones(4, np.float32)
    refused(SPEAKERS[protocol](host.ctypes.data), "driver")


@each
def test_a_freed_pointer(protocol):
    address = driver.alloc(64 << 20)
    driver.free(address)
    refused(SPEAKERS[protocol](address), "driver")


@each
@pytest.mark.parametrize("address", [8, 0xDEAD0000, 0x7FFF_FFFF_0000])
def test_garbage(protocol, address):
    refused(SPEAKERS[protocol](address), "driver|an offset from null" if address < 4096 else "driver")


@each
def test_a_range_past_the_allocation(memory, protocol):
    refused(SPEAKERS[protocol](memory, ((2 << 20) // 4 + 1,)), "allocation")
    assert interop_demo.describe(SPEAKERS[protocol](memory, ((2 << 20) // 4,)))["data"] == memory


def test_a_range_before_the_allocation(memory):
    refused(Interface(memory, (4,), strides=(-4,)), "allocation")


@each
def test_a_pointer_of_another_device(protocol):
    if driver.devices() < 2:
        pytest.skip("there is one GPU; a pointer of another device needs two")
    array = interop_demo.Array.full((4,), 1.0, device="cuda", ordinal=1)
    address = interop_demo.describe(array)["data"]
    if protocol == "cai":
        # The interface states no device, so it cannot be wrong about it: the driver reports the device.
        assert interop_demo.describe(Interface(address))["device"] == (2, 1)
    else:
        refused(Producer(address), "driver")


DESTROYED = """
import ctypes, driver, interop_demo

array = interop_demo.Array.full((4,), 1.0, device="cuda")
address, dead = interop_demo.describe(array)["data"], driver.stream()
driver.call("cuStreamDestroy_v2", ctypes.c_uint64(dead))

def as_the_producers():
    interop_demo.describe(driver.Interface(address, stream=dead))

def as_the_consumers():
    interop_demo.describe(driver.Interface(address, stream=1), stream=dead)

def of_an_export():
    interop_demo.scale_(array, 2.0)
    array.__dlpack__(stream=dead, max_version=(1, 0))

try:
    globals()[NAME]()
except interop_demo.ArrayError as error:
    print("refused:", error, flush=True)
else:
    print("taken", flush=True)
"""


@pytest.mark.parametrize("name", ["as_the_producers", "as_the_consumers", "of_an_export"])
def test_a_destroyed_stream_is_never_taken(name):
    """An error if the driver notices. Driver 580 mostly ends the process on any call with such a handle."""
    program = DESTROYED.replace("NAME", repr(name))
    child = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    if child.returncode == 0:
        assert "refused:" in child.stdout and ("IS_DESTROYED" in child.stdout or "stream" in child.stdout), child.stdout
    else:
        # Not a Python exception, whose exit status would be 1.
        assert child.returncode < 0 and "taken" not in child.stdout, (child.returncode, child.stderr)


@each
def test_nothing_is_asked_of_empty_arrays(protocol):
    assert interop_demo.describe(SPEAKERS[protocol](0, (0,)))["nbytes"] == 0


def test_values_of_torch_that_are_not_those_in_memory():
    """In torch, conjugates and negatives can be lazy, and its exchange table does not mark them."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    lazy = torch.ones((2, 3), dtype=torch.complex64, device="cuda").mH
    for tensor, remedy in ((lazy, "resolve_conj"), (lazy.imag, "resolve_neg"), (lazy[0, 0].imag, "resolve_neg")):
        with pytest.raises(ArrayError, match=remedy):
            interop_demo.describe(tensor)
        resolved = getattr(tensor, remedy)()
        assert interop_demo.describe(resolved)["data"] == resolved.data_ptr()
    assert interop_demo.checksum(lazy.imag.resolve_neg() - 1) == -6


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_of_torch_that_require_a_gradient(device):
    """Its `__dlpack__` refuses them, and its exchange table does not."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    leaf = torch.ones(3, device=device, requires_grad=True)
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(torch.ones(3, device=device))):
        with pytest.raises(ArrayError, match=r"requires a gradient.*detach\(\)"):
            interop_demo.scale_(tensor, 2.0)
        interop_demo.scale_(tensor.detach(), 2.0)
        for without in (torch.no_grad, torch.inference_mode):
            with without():
                assert interop_demo.describe(tensor)["data"] == tensor.data_ptr()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mode", ["detach", "no_grad", "inference_mode"])
def test_torch_sees_a_write(device, mode):
    """`backward` needs the old values: an error, as after `mul_`, and no wrong gradient."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    leaf = torch.tensor([2.0, 3.0], device=device, requires_grad=True)
    loss = (leaf * leaf).sum()
    interop_demo.checksum(leaf.detach())
    loss.backward(retain_graph=True)
    assert leaf.grad.tolist() == [4, 6]
    if mode == "detach":
        interop_demo.scale_(leaf.detach(), 10.0)
    else:
        with getattr(torch, mode)():
            interop_demo.scale_(leaf, 10.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("cut", [np.s_[::-1], np.s_[::-1, ::-2], np.s_[1, ::-1]], ids=str)
def test_strides_of_cupy_that_have_lost_their_sign(cut):
    """Negative strides are wrong in CuPy's capsules, so such arrays come through the dict, with their pending work."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    expected = np.arange(24, dtype=np.float32).reshape(4, 6)
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.asarray(expected)[cut]
        facts = interop_demo.describe(array)
        assert (facts["protocol"], facts["data"]) == ("cai", array.data.ptr)
        assert facts["strides"] == tuple(step // 4 for step in array.strides)
        assert interop_demo.checksum(array) == expected[cut].sum()


def fake(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(4, device="cuda")


def wrapper(torch):
    class Wrapper(torch.Tensor):
        """Has a shape, and passes each operation to another tensor."""

        @staticmethod
        def __new__(cls, tensor):
            return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype, device=tensor.device)

        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
            raise NotImplementedError

    return Wrapper(torch.ones(4, device="cuda"))


def masked(torch):
    from torch.masked import masked_tensor

    return masked_tensor(torch.ones(4, device="cuda"), torch.arange(4, device="cuda") > 1)


def given_back(torch):
    tensor = torch.ones(4, device="cuda")
    tensor.untyped_storage().resize_(0)
    return tensor


def closed(torch):
    class Closed(torch.Tensor):
        def __dlpack__(self, **wishes):
            raise BufferError("closed")

    return torch.ones(4, device="cuda").as_subclass(Closed)


# The message of torch's `__dlpack__`, or of ours, for each.
WITHOUT_MEMORY = {
    "meta": (lambda torch: torch.ones(4, device="meta"), "meta"),
    "sparse": (lambda torch: torch.ones((4, 4), device="cuda").to_sparse(), "layout other than torch.strided"),
    "compressed": (lambda torch: torch.ones((4, 4), device="cuda").to_sparse_csr(), "layout other than torch.strided"),
    "zero": (lambda torch: torch._efficientzerotensor((4,), device="cuda"), "null pointer"),
    "fake": (fake, "null pointer"),
    "wrapper": (wrapper, "null pointer"),
    "masked": (masked, "null pointer"),
    "given back": (given_back, "null pointer"),
    # The exchange table would export this one, but the subclass refuses in its own method.
    "closed": (closed, "closed"),
}


@pytest.mark.filterwarnings("ignore")  # of prototypes
@pytest.mark.parametrize("name", WITHOUT_MEMORY)
def test_tensors_of_torch_that_have_no_memory_to_give(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    make, match = WITHOUT_MEMORY[name]
    tensor = make(torch)
    for use in (interop_demo.describe, interop_demo.asarray, interop_demo.checksum):
        with pytest.raises((BufferError, RuntimeError, ValueError), match=match) as caught:
            use(tensor)
        assert "Exception raised from" not in str(caught.value), "a backtrace of C++"
    assert interop_demo.checksum(torch.ones(8, device="cuda")) == 8


def test_tensors_of_torch_in_the_middle_of_a_transformation():
    """The argument of a function under `vmap` or `grad` has no elements of its own."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def refused_inside(match):
        def inside(tensor):
            with pytest.raises((BufferError, RuntimeError), match=match):
                interop_demo.describe(tensor)
            return tensor.sum()

        return inside

    torch.vmap(refused_inside("storage"))(torch.ones((3, 4), device="cuda"))
    torch.func.grad(refused_inside("require gradient"))(torch.ones(4, device="cuda"))
