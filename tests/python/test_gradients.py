"""What autograd of PyTorch learns of an import: of every write, and of nothing else. A stand-in for PyTorch records it."""

import sys
import types

import interop_demo
import numpy as np
import pytest
from capsules import READ_ONLY, Producer, Tensor
from test_exchange import make

ArrayError = interop_demo.ArrayError
FLOAT = (2, 32, 1)

WRITES = {
    "scale_": lambda tensor: interop_demo.scale_(tensor, 2.0),
    "asarray": interop_demo.asarray,
    "asarray with a stream": lambda tensor: interop_demo.asarray(tensor, stream=-1),
    "a class": lambda tensor: interop_demo._Page(tensor, None),
    "a pointer": lambda tensor: interop_demo._by_address(tensor, True),
    "its parts": interop_demo._in_parts,
}
READS = {
    "describe": interop_demo.describe,
    "checksum": interop_demo.checksum,
    "twice": interop_demo.twice,
    "is_square": interop_demo.is_square,
    "is_square_trusted": interop_demo.is_square_trusted,
    "a pointer": lambda tensor: interop_demo._by_address(tensor, False),
    "an argument that is only read": interop_demo._like_f32,
    "a copy": interop_demo._in_a_vector,
    "its parts": lambda tensor: interop_demo._in_parts(tensor, is_written=False),
}
# The structs of these have one axis, or three.
SHAPES = {"a pointer": (6,), "an argument that is only read": (6,), "a copy": (1, 2, 3)}


class Torch(types.ModuleType):
    """Records the tensors whose version was incremented. `tangents` are the tensors that have one in forward mode."""

    def __init__(self, monkeypatch):
        super().__init__("torch")
        self.versions, self.tangents = [], []
        self.Tensor, self.from_dlpack = object, lambda array: array
        graph = types.SimpleNamespace(increment_version=lambda tensor: self.versions.append(tensor))
        self.autograd = types.SimpleNamespace(graph=graph)
        forward = types.ModuleType("torch.autograd.forward_ad")
        forward._current_level = -1
        forward.unpack_dual = lambda tensor: types.SimpleNamespace(tangent=1 if tensor in self.tangents else None)
        self.forward = forward
        for module in (self, forward):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def tensor(self, has_table, **fields):
        fields = {"dtype": FLOAT, "shape": (2, 3), "strides": None, **fields}
        tensor = make(Tensor(**fields)) if has_table else Producer(Tensor(**fields))
        no = lambda self: False  # noqa: E731
        members = {"is_conj": no, "is_neg": no, "requires_grad": False, "__module__": "torch"}
        tensor.__class__ = type("Tensor", (type(tensor),), members)
        return tensor


@pytest.fixture
def torch(monkeypatch):
    return Torch(monkeypatch)


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_told(torch, name, has_table):
    tensor = torch.tensor(has_table, shape=SHAPES.get(name, (2, 3)))
    WRITES[name](tensor)
    assert torch.versions == [tensor]


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("name", READS)
def test_reading_is_no_write(torch, name, has_table):
    """Otherwise `backward` would fail although no value has changed."""
    READS[name](torch.tensor(has_table, shape=SHAPES.get(name, (2, 3))))
    assert torch.versions == []


def test_memory_that_cannot_be_written(torch):
    interop_demo.asarray(torch.tensor(True, flags=READ_ONLY))
    with pytest.raises(ArrayError, match="read-only"):
        interop_demo.scale_(torch.tensor(True, flags=READ_ONLY), 2.0)
    assert torch.versions == []


def test_a_write_that_is_refused(torch):
    """The struct has another rank, so nothing is written."""
    with pytest.raises(ArrayError, match="axes"):
        interop_demo._Page(torch.tensor(True, shape=(6,)), None)
    with pytest.raises(ArrayError, match="axes"):
        interop_demo._by_address(torch.tensor(True), True)
    assert torch.versions == []


def test_a_write_that_cannot_be_told(torch):
    def refuse(tensor):
        raise RuntimeError("no version")

    torch.autograd.graph.increment_version = refuse
    tensor = torch.tensor(True)
    tensor.fast.floats(6)[:] = range(6)
    with pytest.raises(ArrayError, match=r"does not record the write.*no version.*increment_version.*Tensor"):
        interop_demo.scale_(tensor, 2.0)
    assert list(tensor.fast.floats(6)) == [0, 1, 2, 3, 4, 5]
    assert tensor.fast.released == 1
    interop_demo.checksum(torch.tensor(True))


def test_a_version_of_pytorch_that_cannot_be_told(torch):
    """Before 2.3 there is no such function."""
    tensor = torch.tensor(True)
    tensor.fast.floats(6)[:] = range(6)
    del torch.autograd
    interop_demo.scale_(tensor, 2.0)
    assert list(tensor.fast.floats(6)) == [0, 2, 4, 6, 8, 10]


def test_arrays_of_other_libraries(torch):
    interop_demo.scale_(make(Tensor(dtype=FLOAT)), 2.0)
    interop_demo.scale_(np.ones(3), 2.0)
    assert torch.versions == []


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_tensor_with_a_tangent(torch, name, has_table):
    """Forward mode: the tangent would not follow the values."""
    if name == "its parts":
        return  # whoever gets the parts is responsible
    tensor, other = (torch.tensor(has_table, shape=SHAPES.get(name, (2, 3))) for _ in range(2))
    torch.tangents.append(tensor)
    torch.forward._current_level = 0
    with pytest.raises(ArrayError, match=r"with a tangent.*pass a copy, `x\.detach\(\)\.clone\(\)`.*Tensor"):
        WRITES[name](tensor)
    WRITES[name](other)
    assert torch.versions == [other]
    interop_demo.describe(tensor)


@pytest.mark.needs("torch")
def test_pytorch_itself():
    """The values of `backward` were overwritten: an error, as after `mul_` of PyTorch, and no wrong gradient."""
    import torch
    import torch.autograd.forward_ad as forward

    def gradient(call):
        leaf = torch.tensor([2.0, 3.0], requires_grad=True)
        loss = (leaf * leaf).sum()
        call(leaf)
        loss.backward()
        return leaf.grad.tolist()

    def under(mode):
        def call(leaf):
            with mode():
                interop_demo.scale_(leaf, 10.0)

        return call

    writes = [
        lambda leaf: interop_demo.scale_(leaf.detach(), 10.0),
        lambda leaf: interop_demo.scale_(leaf.detach()[1:], 10.0),
        lambda leaf: interop_demo.asarray(leaf.detach()),
        under(torch.no_grad),
        under(torch.inference_mode),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradient(write)
    for read in (interop_demo.checksum, interop_demo.twice, interop_demo.describe):
        assert gradient(lambda leaf, read=read: read(leaf.detach())) == [4, 6]
    with torch.inference_mode():
        inferred = torch.ones(3)
    interop_demo.scale_(inferred, 2.0)
    assert inferred.tolist() == [2, 2, 2]
    imaginary = torch.tensor([1 + 2j, 3 + 4j, 5 + 6j]).conj().imag
    with pytest.raises(ArrayError, match="resolve_neg"):
        interop_demo.describe(imaginary.as_strided((3,), (1,)))
    with forward.dual_level():
        dual = forward.make_dual(torch.tensor([2.0]), torch.tensor([1.0]))
        with pytest.raises(ArrayError, match="a tangent"):
            interop_demo.scale_(dual, 10.0)
        assert (dual.item(), interop_demo.checksum(dual.detach())) == (2.0, 2.0)
