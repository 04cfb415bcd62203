"""Memory from each source: mapped in pieces; from pools of device, host and managed memory; from a graph; from
another process.

The driver's answer determines what it is. It is used in place, up to its end and no further.
"""

import contextlib
import ctypes
import subprocess
import sys

import driver
import interop_demo
import numpy as np
import pytest
from driver import Interface
from scripts import run

ArrayError = interop_demo.ArrayError
CUDA, PINNED, MANAGED = (2, 0), (3, 0), (13, 0)
PIECE = 2 << 20
# CU_MEM_LOCATION_TYPE_...
DEVICE, HOST, NUMA = 1, 2, 3


class Properties(ctypes.Structure):
    """`CUmemAllocationProp`, and the first fields of `CUmemPoolProps`."""

    _fields_ = [(name, ctypes.c_int) for name in ("type", "handles", "location", "ordinal")]
    _fields_ += [("rest", ctypes.c_byte * 112)]


class Access(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = [(name, ctypes.c_int) for name in ("location", "ordinal", "flags")]


def size(bytes):
    return ctypes.c_size_t(bytes)


def word(number):
    return ctypes.c_uint64(number)


@contextlib.contextmanager
def reserved(*pieces):
    """Reserves addresses for these pieces, and maps memory of the given location and ordinal to some of them."""
    driver.library()
    whole = size(len(pieces) * PIECE)
    first = driver.answer("cuMemAddressReserve", whole, size(0), word(0), word(0))
    mapped = []
    try:
        for at, piece in enumerate(pieces):
            if piece is not None:
                address = word(first + at * PIECE)
                made = driver.answer("cuMemCreate", size(PIECE), ctypes.byref(Properties(1, 0, *piece)), word(0))
                driver.call("cuMemMap", address, size(PIECE), size(0), word(made), word(0))
                mapped.append(address)
                driver.call("cuMemRelease", word(made))
                wanted = {(DEVICE, 0), (piece if piece[0] == DEVICE else (piece[0], 0))}
                access = (Access * len(wanted))(*(Access(*place, 3) for place in sorted(wanted)))
                driver.call("cuMemSetAccess", address, size(PIECE), access, size(len(wanted)))
        yield first
    finally:
        driver.synchronize()
        for address in mapped:
            driver.call("cuMemUnmap", address, size(PIECE))
        driver.call("cuMemAddressFree", word(first), whole)


@contextlib.contextmanager
def pieces_of_the_device():
    with reserved((DEVICE, 0), (DEVICE, 0), (DEVICE, 0), None) as first:
        yield first, 3 * PIECE


@contextlib.contextmanager
def pieces_of_the_host():
    with reserved((NUMA, 0), (NUMA, 0), None) as first:
        yield first, 2 * PIECE


@contextlib.contextmanager
def pool(location, kind=1):
    """Allocates twice from a pool and yields the second allocation."""
    driver.library()
    properties = Properties(kind, 0, location, 0)
    made = driver.answer("cuMemPoolCreate", ctypes.byref(properties))
    if location != DEVICE:
        driver.call("cuMemPoolSetAccess", word(made), ctypes.byref(Access(DEVICE, 0, 3)), size(1))
    got = [driver.answer("cuMemAllocFromPoolAsync", size(bytes), word(made), word(0)) for bytes in (512, 100_000)]
    driver.synchronize()
    try:
        yield got[1], 100_000
    finally:
        for address in got:
            driver.call("cuMemFreeAsync", word(address), word(0))
        driver.synchronize()
        driver.call("cuMemPoolDestroy", word(made))


class Node(ctypes.Structure):
    """`CUDA_MEM_ALLOC_NODE_PARAMS`."""

    _fields_ = [(name, ctypes.c_int) for name in ("type", "handles", "location", "ordinal")]
    _fields_ += [("rest", ctypes.c_byte * 72), ("accesses", ctypes.c_void_p), ("count", ctypes.c_size_t)]
    _fields_ += [("bytes", ctypes.c_size_t), ("address", ctypes.c_uint64)]


@contextlib.contextmanager
def a_graph():
    """Memory that a graph allocates when it runs, and that stays allocated after the run."""
    graph = driver.answer("cuGraphCreate", 0)
    node = Node(type=1, location=DEVICE, bytes=100_000)
    driver.answer("cuGraphAddMemAllocNode", word(graph), None, size(0), ctypes.byref(node))
    runnable = driver.answer("cuGraphInstantiateWithFlags", word(graph), word(0))
    driver.call("cuGraphLaunch", word(runnable), word(0))
    driver.synchronize()
    try:
        yield node.address, 100_000
    finally:
        driver.call("cuMemFreeAsync", word(node.address), word(0))
        driver.synchronize()
        driver.call("cuGraphExecDestroy", word(runnable))
        driver.call("cuGraphDestroy", word(graph))


PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .global .align 4 .b8 table[4096];
"""


@contextlib.contextmanager
def a_variable():
    """A global variable of a module."""
    module = driver.answer("cuModuleLoadData", PTX + b"\0")
    address, bytes = ctypes.c_uint64(), ctypes.c_size_t()
    driver.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(bytes), word(module), b"table")
    try:
        yield address.value, bytes.value
    finally:
        driver.call("cuModuleUnload", word(module))


class Handle(ctypes.Structure):
    """`CUipcMemHandle`, which is passed by value."""

    _fields_ = [("bytes", ctypes.c_byte * 64)]


CHILD = """
import ctypes, driver
address, handle = driver.alloc(100_000), ctypes.create_string_buffer(64)
driver.call("cuIpcGetMemHandle", handle, ctypes.c_uint64(address))
print(handle.raw.hex(), flush=True)
input()
"""


@contextlib.contextmanager
def another_process():
    """Memory of another process."""
    driver.library()
    command, pipe = [sys.executable, "-B", "-c", CHILD], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            said = child.stdout.readline()
            if not said:
                raise driver.DriverError(child.stderr.read().splitlines()[-1])
            handle = Handle.from_buffer_copy(bytes.fromhex(said))
            address = driver.answer("cuIpcOpenMemHandle_v2", handle, 1)
            yield address, 100_000
            driver.synchronize()
            driver.call("cuIpcCloseMemHandle", word(address))
        finally:
            child.communicate("\n", timeout=60)


@contextlib.contextmanager
def registered():
    """Registered host memory."""
    driver.library()
    memory = np.zeros(100_000, np.uint8)
    driver.call("cuMemHostRegister_v2", word(memory.ctypes.data), size(memory.nbytes), 0)
    try:
        yield memory.ctypes.data, memory.nbytes
    finally:
        driver.call("cuMemHostUnregister", word(memory.ctypes.data))


@contextlib.contextmanager
def write_combined():
    """Write-combined host memory."""
    driver.library()
    address = driver.answer("cuMemHostAlloc", size(100_000), 4)
    try:
        yield address, 100_000
    finally:
        driver.call("cuMemFreeHost", word(address))


ORIGINS = {
    "registered": (registered, PINNED),
    "write-combined": (write_combined, PINNED),
    "pieces": (pieces_of_the_device, CUDA),
    "pieces of the host": (pieces_of_the_host, PINNED),
    "pool": (lambda: pool(DEVICE), CUDA),
    "pool of the host": (lambda: pool(HOST), PINNED),
    "pool of a NUMA node": (lambda: pool(NUMA), PINNED),
    "managed pool": (lambda: pool(DEVICE, 2), MANAGED),
    "graph": (a_graph, CUDA),
    "variable": (a_variable, CUDA),
    "another process": (another_process, CUDA),
}


def on_devices(address):
    """The address for kernels of the current device, if it has access (`CU_POINTER_ATTRIBUTE_DEVICE_POINTER`)."""
    try:
        return driver.answer("cuPointerGetAttribute", 3, word(address))
    except driver.DriverError:
        return None


@pytest.fixture(params=ORIGINS)
def memory(request):
    """An address, the size in bytes, and the device of the memory."""
    make, device = ORIGINS[request.param]
    with contextlib.ExitStack() as stack:
        try:
            address, bytes = stack.enter_context(make())
        except (driver.DriverError, AttributeError) as error:
            pytest.skip(f"the driver, or the system it runs on, has no such memory: {error}")
        yield address, bytes, device


def test_all_of_it_is_used_in_place(memory):
    """The elements cover the first to the last byte, with gaps."""
    address, bytes, device = memory
    driver.write(address, bytearray(np.ones(bytes // 4, np.float32).tobytes()))
    stride = (bytes - 4) // 15 // 4 * 4
    array = interop_demo.asarray(Interface(address, 16, strides=(stride,)))
    assert (array.__dlpack_device__(), interop_demo.describe(array)["data"]) == (device, address)
    assert array.__cuda_array_interface__["data"] == (on_devices(address), False)
    assert interop_demo.checksum(array) == 16
    interop_demo.scale_(array, 3.0)
    assert driver.read(address + 15 * stride, 4) == b"\0\0\x40\x40"  # 3.0
    assert interop_demo.checksum(interop_demo.asarray(array)[::-1]) == 48
    compact = interop_demo.asarray(Interface(address, bytes // 4))
    assert interop_demo.describe(compact)["nbytes"] == bytes


def test_nothing_beyond_it_is_taken(memory):
    address, bytes, _ = memory
    count = bytes // 4
    for beyond in (Interface(address, count + 1), Interface(address + bytes - 4, 2)):
        with pytest.raises(ArrayError, match="allocation|mapped"):
            interop_demo.asarray(beyond)
    assert interop_demo.describe(Interface(address + bytes - 4, 1))["data"] == address + bytes - 4


def test_a_release_comes_after_the_work_on_it(memory):
    address, bytes, _ = memory
    stream = driver.stream()
    array = interop_demo.asarray(Interface(address, bytes // 4, stream=1))
    driver.sleep(stream, 200)
    del array
    assert interop_demo.poll_releases() == 1
    driver.synchronize(stream)
    assert interop_demo.finish_releases() == 0


@pytest.fixture
def mapped():
    """Like `reserved`; skips the test if the driver cannot map such memory."""
    with contextlib.ExitStack() as stack:

        def mapped(*pieces):
            try:
                return stack.enter_context(reserved(*pieces))
            except (driver.DriverError, AttributeError) as error:
                pytest.skip(f"the driver, or the system it runs on, maps no such memory: {error}")

        yield mapped


def test_a_hole_in_mapped_memory_is_refused_before_anybody_falls_into_it(mapped):
    first = mapped(None, (DEVICE, 0), None, (DEVICE, 0))
    for count, strides in ((3 * PIECE // 4, None), (PIECE // 4 + 1, None), (2, (-4,)), (2, (PIECE,))):
        with pytest.raises(ArrayError, match="the end of the mapped memory"):
            interop_demo.asarray(Interface(first + PIECE, count, strides=strides))
    with pytest.raises(ArrayError, match="does not know"):
        interop_demo.asarray(Interface(first, 1))
    assert interop_demo.describe(Interface(first + PIECE, PIECE // 4))["device"] == CUDA


def test_memory_of_two_devices_is_not_one_array(mapped):
    if driver.devices() < 2:
        pytest.skip("there is one GPU; memory of two devices side by side needs two")
    first = mapped((DEVICE, 0), (DEVICE, 1))
    with pytest.raises(ArrayError, match=r"ordinal 1 follows that of CUDA \(2\), ordinal 0"):
        interop_demo.asarray(Interface(first, PIECE // 2))
    assert interop_demo.describe(Interface(first + PIECE, PIECE // 4))["device"] == (2, 1)


def test_an_array_over_device_and_host_is_refused(mapped):
    first = mapped((DEVICE, 0), (NUMA, 0))
    with pytest.raises(ArrayError, match=r"CUDAHost \(3\) follows that of CUDA"):
        interop_demo.asarray(Interface(first, PIECE // 2))


EXPANDABLE = """
import interop_demo, torch
for count in (1, 1 << 18, 8 << 20, 64 << 20):
    tensor = torch.ones(count, device="cuda")
    array = interop_demo.asarray(tensor)
    assert interop_demo.describe(array)["data"] == tensor.data_ptr()
    interop_demo.scale_(array, 3.0)
    assert tensor[-1].item() == 3 and interop_demo.checksum(array) == 3 * count
    class Interface:
        __cuda_array_interface__ = tensor.__cuda_array_interface__
    assert interop_demo.describe(Interface())["data"] == tensor.data_ptr()
address, reserved = tensor.data_ptr(), torch.cuda.memory_reserved()
del tensor, array, Interface
interop_demo.finish_releases()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() < reserved
class Interface:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3}
try:
    interop_demo.asarray(Interface())
except interop_demo.ArrayError as error:
    assert "freed memory" in str(error), error
else:
    raise AssertionError("memory that was unmapped was taken")
print("done")
"""


def test_tensors_of_torch_in_expandable_segments(monkeypatch):
    """With this setting PyTorch maps 20 MB at a time, so tensors span several mappings."""
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert run(EXPANDABLE, timeout=120) == "done\n"


# The resources whose memory does not come from `cuMemAlloc`, with its location.
RESOURCES = {
    "PinnedMemoryResource": PINNED,
    "ManagedMemoryResource": MANAGED,
    "VirtualMemoryResource": CUDA,
    "LegacyPinnedMemoryResource": PINNED,
    "DeviceMemoryResource": CUDA,
}


@pytest.mark.parametrize("name", RESOURCES)
def test_every_memory_resource_of_cuda_core(name):
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    if not hasattr(core, name):
        pytest.skip(f"cuda.core {core.__version__} has no {name}")
    device = core.Device(0)
    device.set_current()
    stream, kind = device.create_stream(), getattr(core, name)
    try:
        resource = kind(device) if name in ("DeviceMemoryResource", "VirtualMemoryResource") else kind()
        buffer = resource.allocate(3 * PIECE, stream=stream)
    except RuntimeError as error:
        pytest.skip(f"cuda.core {core.__version__} cannot make it here: {error}")
    stream.sync()
    address = int(buffer.handle)
    driver.write(address, bytearray(b"\2" * (3 * PIECE)))
    array = interop_demo.asarray(buffer)
    assert (array.__dlpack_device__(), array.nbytes) == (RESOURCES[name], buffer.size)
    by_dict = interop_demo.asarray(Interface(address, 4, typestr="|u1"))
    if on_devices(address):
        assert interop_demo.checksum(array[: 3 * PIECE : PIECE // 4]) == 24
        assert interop_demo.checksum(by_dict) == 8
    else:
        # cuda.core gives devices no access to a host pool, so the memory is usable by the host and by no kernel.
        assert bytes(memoryview(by_dict)) == b"\2" * 4
        with pytest.raises(ArrayError, match="has no access"):
            interop_demo.checksum(by_dict)
        assert not hasattr(by_dict, "__cuda_array_interface__")
    del by_dict
    del array
    interop_demo.finish_releases()
    buffer.close(stream)
    stream.sync()
