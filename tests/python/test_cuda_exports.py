"""The exact exports of CUDA memory, and the waits before them, on the simulated driver."""

import ctypes

import interop_demo
import native
import pytest
from test_cuda_arrays import SIM, each_kind, full, nothing_wrong, pytestmark  # noqa: F401

NUMBERS = ["<f4", "<f8", "<i2", "|u1", "|b1", "<c8", "<f2"]


class ByInterface:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def pending(spin):
    return bool(SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin)))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", ["cuda", "pinned"])
def test_the_whole_dict(kind, dtype):
    """R4, R5, bug 66."""
    array = full(kind, (3, 4), 1, dtype)
    address, item = interop_demo.describe(array)["data"], int(dtype[2:])
    whole = {"shape": (3, 4), "typestr": dtype, "data": (address, False), "version": 3, "strides": None}
    if kind == "cuda":
        whole["stream"] = 1  # where it is filled
    assert array.__cuda_array_interface__ == whole
    cut = {**whole, "shape": (3, 2), "data": (address + item, False), "strides": (4 * item, 2 * item)}
    assert array[:, 1::2].__cuda_array_interface__ == cut


@pytest.mark.parametrize(
    "descr",
    [
        [("x", "<f4"), ("n", "<i4")],
        [("", "|V4"), ("n", "<i4")],
        [("pair", "<i2", (2,)), ("deep", [("a", "|u1"), ("b", "|u1")]), ("c", "<u2")],
    ],
    ids=["fields", "gap", "nested"],
)
def test_fields_go_out_as_they_came(descr):
    """R23."""
    memory = full("cuda", (6,))
    interface = {**memory.__cuda_array_interface__, "shape": (3,), "typestr": "|V8", "descr": descr}
    array = interop_demo.asarray(ByInterface(interface))
    found = array.__cuda_array_interface__
    # A stream of ours, which waits for all work: the object's library works on without a word.
    assert found.pop("stream") > 2
    assert found == {name: value for name, value in interface.items() if name != "stream"}


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_whoever_names_no_stream_finds_host_memory_ready(kind):
    """R137: the consumer may be the host, which reads immediately. If it passes a stream, that stream waits and the
    host does not.
    """
    array, stream, other = full(kind), SIM.stream(), SIM.stream()
    spin = SIM.library.simulated_cuda_spin(stream)
    interop_demo.scale_(array, 2, stream=stream)
    array.__dlpack__(stream=other, max_version=(1, 0))
    assert pending(spin)
    array.__dlpack__(max_version=(1, 0))
    assert not pending(spin)


@each_kind
def test_a_copy_is_ready_on_the_stream_that_is_named(kind):
    """The driver reports a read that comes too early."""
    array, first, second = full(kind), SIM.stream(), SIM.stream()
    interop_demo.scale_(array, 2, stream=first)
    capsule = array.__dlpack__(copy=True, stream=second, max_version=(1, 0))
    assert interop_demo.checksum(capsule, stream=second) == 60


@pytest.mark.skipif(native.missing() is not None, reason=f"a module in C cannot be compiled: {native.missing()}")
def test_fields_of_one_type_are_a_last_axis():
    """Through each way to export a tensor."""
    memory = full("cuda", (6,))
    fields = {"typestr": "|V8", "descr": [("x", "<f4"), ("y", "<f4")], "shape": (3,)}
    array = interop_demo.asarray(ByInterface({**memory.__cuda_array_interface__, **fields}))
    c = native.load("handwritten")
    facts = interop_demo.describe(memory)
    flat = {"shape": (3, 2), "strides": (2, 1), "data": facts["data"], "device": facts["device"]}
    assert c.table_import(array, array)[0] == {**flat, "dtype": (2, 32, 1), "byte_offset": 0}
    for out in (array, array.__dlpack__(), array.__dlpack__(max_version=(1, 0))):
        assert interop_demo.describe(out).items() >= {**flat, "dtype": "<f4"}.items()
