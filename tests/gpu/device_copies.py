"""Copies of device arrays in each layout, compared with PyTorch's values, and arrays with more than 2^31 elements."""

import ctypes
import random

import driver
import interop_demo
import numpy as np
import pytest

GIB = 1 << 30
COPY = {"copy": True, "max_version": (1, 0)}


class Part:
    """A view of a device array in any layout that NumPy has, including negative strides."""

    def __init__(self, address, base, view):
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.dtype.str,
            "data": (address + offset, False),
            "version": 3,
            "stream": 1,
        }


@pytest.fixture
def memory():
    made = []

    def new(size):
        if (free := driver.free_memory()) < size + GIB:
            pytest.skip(f"{free >> 30} GiB of the GPU are free; this takes {size >> 30} GiB")
        made.append(driver.alloc(size))
        return made[-1]

    yield new
    driver.synchronize()
    for address in made:
        driver.free(address)


def random_view(base, seed):
    """Permutes, slices, steps and flips the array at random."""
    choose = random.Random(seed)
    ndim = choose.choice([1, 2, 2, 3, 3, 4, 5, 7])
    shape, rest = [], base.size
    for _ in range(ndim - 1):
        most = max(1, int(rest ** (1 / (ndim - len(shape)))) * 2)
        shape.append(choose.choice([1, 2, 3, 4, choose.randint(1, most)]))
        rest //= shape[-1]
    shape.append(max(1, rest))
    view = base[: int(np.prod(shape))].reshape(shape).transpose(choose.sample(range(ndim), ndim))
    for axis in range(ndim):
        step = choose.choice([1, 1, 1, 1, 2, 3, -1, -2])
        start = choose.choice([0, 0, 1, 3]) % view.shape[axis]
        cut = slice(None, None, step) if step < 0 else slice(start, None, step)
        view = view[(slice(None),) * axis + (cut,)]
    return view


def test_copies_beside_a_capture_leave_it_good(memory):
    """This is the first copy of the process: the kernel is loaded while a graph is captured."""
    base = np.arange(3000, dtype=np.float32)
    address, stream, graph = memory(base.nbytes), driver.stream(), ctypes.c_uint64()
    driver.write(address, bytearray(base.tobytes()))
    view = base.reshape(50, 60).T[:, ::2]
    # On a stream that is named: work on an array that is kept is otherwise unknown, and a capture cannot wait for it.
    source = interop_demo.asarray(Part(address, base, view), stream=1)
    held = interop_demo.HoldReleases()
    with held:
        driver.call("cuStreamBeginCapture_v2", ctypes.c_uint64(stream), 0)
        host = np.from_dlpack(source, device="cpu", copy=True)
        copy = interop_demo.asarray(source.__dlpack__(**{**COPY, "stream": stream}), stream=-1)
        driver.call("cuStreamEndCapture", ctypes.c_uint64(stream), ctypes.byref(graph))
    driver.call("cuGraphDestroy", graph)
    assert np.array_equal(host, view)
    assert np.array_equal(np.from_dlpack(copy, device="cpu"), view)


@pytest.mark.parametrize("dtype", ["|u1", "<i2", "<f4", "<f8", "<c16"])
def test_values_of_random_layouts(memory, dtype):
    base = np.frombuffer(np.random.default_rng(1).bytes(1 << 22), np.uint8).view(dtype)
    if base.dtype.kind in "fc":
        base = np.arange(base.size).astype(dtype)
    base = base.copy()
    address = memory(base.nbytes)
    driver.write(address, bytearray(base.tobytes()))
    for seed in range(60):
        view = random_view(base, seed)
        source = interop_demo.asarray(Part(address, base, view))
        # In C order, through contiguous memory on the device.
        assert np.array_equal(np.from_dlpack(source, device="cpu", copy=True), view), (seed, view.shape, view.strides)
        copy = interop_demo.asarray(source.__dlpack__(stream=1, **COPY), stream=1)
        assert np.array_equal(np.from_dlpack(copy, device="cpu"), view), (seed, view.shape, view.strides)
        assert interop_demo.describe(copy)["nbytes"] == view.nbytes


def test_values_beside_torch():
    torch = pytest.importorskip("torch")
    base = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    views = [base.view(1024, 1024).t(), base.view(64, 128, 128).permute(2, 0, 1), base.view(1024, 1024)[:, ::2], base.view(16, 64, 32, 32).permute(3, 1, 0, 2)]
    views += [base.view(1024, 1024)[:, 1:1000], base[:3000].view(1000, 3).t(), base[:3000].view(3, 1000).t(), base.view(64, 4, 4096)[..., ::2].permute(1, 2, 0)]
    for view in views:
        ours = interop_demo.asarray(view)
        assert torch.equal(torch.from_dlpack(ours.__dlpack__(stream=1, **COPY)), view)
        assert np.array_equal(np.from_dlpack(ours, device="cpu", copy=True), view.contiguous().cpu().numpy())


@pytest.mark.parametrize("layout", ["transposed", "every second"])
def test_more_elements_than_31_bits_count(memory, layout):
    """Each byte differs from those of adjacent rows. Samples of the copy are compared, up to the end."""
    rows, columns = 1 << 16, (1 << 15) + 64
    address = memory(rows * columns * (2 if layout == "every second" else 1))
    row = np.arange(columns, dtype=np.uint32)
    if layout == "transposed":
        interface = {"shape": (columns, rows), "strides": (1, columns)}
        for at in (0, 1, rows // 2, rows - 1):
            driver.write(address + at * columns, bytearray(((row * 7 + at) % 251).astype(np.uint8).tobytes()))
    else:
        interface = {"shape": (rows, columns), "strides": (2 * columns, 2)}
        for at in (0, 1, rows // 2, rows - 1):
            spread = np.zeros(2 * columns, np.uint8)
            spread[::2] = (row * 7 + at) % 251
            driver.write(address + at * 2 * columns, bytearray(spread.tobytes()))
    source = interop_demo.asarray(type("Source", (), {"__cuda_array_interface__": {**interface, "typestr": "|u1", "data": (address, False), "version": 3, "stream": 1}})())
    host = np.from_dlpack(source, device="cpu", copy=True)
    assert host.size > 1 << 31
    lines = host.T if layout == "transposed" else host
    for at in (0, 1, rows // 2, rows - 1):
        assert np.array_equal(lines[at], (row * 7 + at) % 251), at


def test_the_host_does_not_wait_for_a_copy():
    array = interop_demo.Array.full((1 << 20,), 1.0, device="cuda")
    stream = driver.stream()
    interop_demo.scale_(array, 2.0, stream=stream)
    array.__dlpack__(stream=stream, **COPY)  # the pool gets its first memory
    driver.synchronize()
    driver.sleep(stream, 300)
    ended = ctypes.c_uint64(driver.answer("cuEventCreate", 2))
    capsule = array.__dlpack__(stream=stream, **COPY)
    driver.call("cuEventRecord", ended, ctypes.c_uint64(stream))
    assert driver.library().cuEventQuery(ended) == 600, "the stream is still busy when the copy is handed out"
    copy = interop_demo.asarray(capsule, stream=stream)
    assert interop_demo.checksum(copy, stream=stream) == 2.0 * (1 << 20)
    driver.call("cuEventDestroy_v2", ended)


def test_many_copies_take_the_memory_of_a_few(memory):
    """The copies are queued one after the other. Each reuses memory that an earlier one freed, without a wait on the
    host.
    """
    if hasattr(driver.library(), "simulated_cuda_live"):
        pytest.skip("the simulated driver runs nothing before somebody waits")
    size, stream = 4 << 20, driver.stream()
    address = memory(size)
    source = interop_demo.asarray(driver.Interface(address, size // 4, stream=stream))
    before = driver.free_memory()
    for _ in range(2000):
        source.__dlpack__(**{**COPY, "stream": stream})
    interop_demo.finish_releases()
    assert before - driver.free_memory() < 512 << 20, "8 GB were copied"
