"""Results as arrays of PyTorch, TVM FFI, CuPy, JAX and Warp, in GPU memory.

Unless stated otherwise, the doubled arrays are `float32`. The counters return to zero after each test
(`conftest.py`).
"""

import copy
import gc

import driver
import interop_demo
import numpy as np
import pytest

Array, ArrayError, twice = interop_demo.Array, interop_demo.ArrayError, interop_demo.twice
BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
VIEWS = {
    "plain": lambda array: array,
    "transposed": lambda array: array.T,
    "strided": lambda array: array[1:, ::2],
    "0-d": lambda array: array[1, 2],
    "empty": lambda array: array[:0],
}
each_view = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX finds no GPU")
    return jax


def full(value=1.5, shape=(2, 3), dtype="<f4", **options):
    return Array.full(shape, value, dtype, device="cuda", **options)


# PyTorch.


@each_view
def test_twice_of_torch(torch, view):
    tensor = VIEWS[view](torch.from_numpy(BASE).cuda())
    result = twice(tensor)
    assert type(result) is torch.Tensor and result.device == tensor.device and result.is_contiguous()
    assert np.array_equal(result.cpu().numpy(), VIEWS[view](BASE) * 2)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int8", "int32", "int64", "uint8"])
def test_each_type_of_torch(torch, name):
    tensor = torch.arange(5, device="cuda").to(getattr(torch, name))
    result = twice(tensor)
    assert result.dtype == tensor.dtype and result.tolist() == [0, 2, 4, 6, 8]


def test_torch_on_the_host(torch):
    result = twice(torch.from_numpy(BASE))
    assert type(result) is torch.Tensor and np.array_equal(result.numpy(), BASE * 2)


def test_the_memory_is_of_torch_s_allocator(torch):
    tensor = torch.ones(1 << 20, device="cuda")
    gc.collect()
    interop_demo.finish_releases()
    before, ours = torch.cuda.memory_allocated(), interop_demo.live_allocations()
    result = twice(tensor)
    interop_demo.finish_releases()
    assert torch.cuda.memory_allocated() - before == result.nbytes == 4 << 20
    assert interop_demo.live_allocations() == ours
    del result
    gc.collect()
    interop_demo.finish_releases()
    assert torch.cuda.memory_allocated() == before


def test_many_pieces_are_gathered(torch):
    tensor = torch.arange(1 << 16, device="cuda", dtype=torch.float32).reshape(256, 256).T
    assert torch.equal(twice(tensor), tensor * 2)


@pytest.mark.parametrize("round_", range(5))
def test_torch_works_on_a_stream_of_its_own(torch, round_):
    """The kernel waits for the work that torch queued before, and torch's later work waits for the kernel."""
    stream = torch.cuda.Stream()
    tensor = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        driver.spin(stream.cuda_stream, 20)
        tensor.fill_(3 + round_)
        result = twice(tensor)
        tensor.fill_(-1)
        after = result + 1
    stream.synchronize()
    assert after.min().item() == after.max().item() == 2 * (3 + round_) + 1


def test_ours_as_a_tensor_in_place(torch):
    array = full()
    tensor = interop_demo._as_torch(array)
    assert type(tensor) is torch.Tensor and tensor.data_ptr() == interop_demo.describe(array)["data"]
    tensor += 1
    torch.cuda.synchronize()
    assert interop_demo.checksum(array) == 2.5 * 6
    # Tensors of other tests, which a reference cycle kept alive.
    gc.collect()
    interop_demo.finish_releases()
    before = interop_demo.live_exports()
    del tensor
    gc.collect()
    interop_demo.finish_releases()
    assert interop_demo.live_exports() == before - 2, "that of the tensor, and that of the array which it is over"


def test_a_tensor_comes_after_our_kernel(torch):
    ours = driver.stream()
    array = full(shape=(1 << 20,))
    driver.spin(ours, 20)
    interop_demo.scale_(array, 2, stream=ours)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert (interop_demo._as_torch(array) + 0).min().item() == 3


@pytest.mark.parametrize(("kind", "device"), [("pinned", "cpu"), ("managed", "cuda")])
def test_other_memory_as_tensors(torch, kind, device):
    tensor = interop_demo._as_torch(Array.full((2, 3), 1.5, device=kind))
    assert tensor.device.type == device and tensor.tolist() == [[1.5] * 3] * 2


def test_what_torch_cannot_have(torch):
    with pytest.raises(ArrayError, match="found a read-only array"):
        interop_demo._as_torch(full(readonly=True))


def test_a_function_of_torch_that_reads_bytes(torch):
    """`torch.asarray` takes any object with a buffer for bytes of `float32`. If it no longer does, COMPATIBILITY.md must not say so."""
    array = Array.full((2,), 1, "<i4")
    seen = torch.asarray(array)
    assert seen.dtype == torch.float32 and seen.data_ptr() == interop_demo.describe(array)["data"] and seen.tolist() != [1, 1]
    with pytest.raises(RuntimeError, match="could not retrieve buffer"):
        torch.asarray(full())
    for read in (torch.as_tensor, torch.from_dlpack):
        assert read(array).tolist() == [1, 1] and read(full()).tolist() == [[1.5] * 3] * 2


def test_new_memory_of_torch(torch):
    ones = interop_demo._ones_like(torch.zeros(2, 3))
    assert type(ones) is torch.Tensor and ones.tolist() == [[1] * 3] * 2


# TVM FFI.


def test_twice_of_tvm_ffi():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    source = tvm_ffi.from_dlpack(full())
    result = twice(source)
    assert type(result) is type(source) and interop_demo.checksum(result) == 18


# CuPy.


@each_view
def test_twice_of_cupy(cupy, view):
    array = VIEWS[view](cupy.asarray(BASE))
    result = twice(array)
    assert type(result) is cupy.ndarray and result.device == array.device
    assert np.array_equal(result.get(), VIEWS[view](BASE) * 2)


def test_cupy_backwards(cupy):
    assert np.array_equal(twice(cupy.asarray(BASE)[::-1, ::-2]).get(), BASE[::-1, ::-2] * 2)


def test_the_memory_is_of_cupy_s_pool(cupy):
    array, pool = cupy.ones(1 << 20, np.float32), cupy.get_default_memory_pool()
    gc.collect()
    interop_demo.finish_releases()
    before, ours = pool.used_bytes(), interop_demo.live_allocations()
    result = twice(array)
    interop_demo.finish_releases()
    assert pool.used_bytes() - before == result.nbytes and interop_demo.live_allocations() == ours


@pytest.mark.parametrize("round_", range(5))
def test_cupy_works_on_a_stream_of_its_own(cupy, round_):
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(1 << 20, np.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        driver.spin(stream.ptr, 20)
        array.fill(3 + round_)
        result = twice(array)
        array.fill(-1)
        after = result + 1
    stream.synchronize()
    assert float(after.min()) == float(after.max()) == 2 * (3 + round_) + 1


def test_ours_as_an_array_of_cupy_in_place(cupy):
    array = full()
    result = interop_demo._as_cupy(array)
    assert type(result) is cupy.ndarray and result.data.ptr == interop_demo.describe(array)["data"]
    assert result.sum().get() == 9
    with pytest.raises(ArrayError, match="return `python::NumPy`"):
        interop_demo._as_cupy(np.zeros(3))


# JAX.


@each_view
def test_twice_of_jax(jax, view):
    array = VIEWS[view](jax.numpy.asarray(BASE))
    result = twice(array)
    assert isinstance(result, jax.Array) and result.devices() == array.devices()
    assert np.array_equal(np.asarray(result), VIEWS[view](BASE) * 2)


def test_ours_as_an_array_of_jax(jax):
    array = full()
    result = interop_demo._as_jax(array)
    assert isinstance(result, jax.Array) and result.unsafe_buffer_pointer() == interop_demo.describe(array)["data"]
    assert np.asarray(result).tolist() == [[1.5] * 3] * 2


def test_arrays_of_jax_are_not_written(jax):
    array = jax.numpy.asarray(BASE)
    with pytest.raises(ArrayError, match="read-only"):
        interop_demo.scale_(array, 2)


def test_memory_of_torch_is_used_in_place_by_jax(jax, torch):
    """`jax.numpy.asarray` asks for `__jax_array__`, after the work that PyTorch has queued."""
    tensor = torch.zeros(1 << 20, device="cuda")
    tensor.add_(3)
    seen = jax.numpy.asarray(interop_demo.asarray(tensor))
    assert seen.unsafe_buffer_pointer() == tensor.data_ptr()
    assert seen.shape == tensor.shape and bool((seen == 3).all())


def test_a_donated_argument_leaves_read_only_memory(jax):
    """On a GPU, JAX writes its result to the memory of a donated argument, also to memory of another library."""
    source = jax.numpy.arange(1 << 12, dtype="float32")
    lent = interop_demo.asarray(source)
    facts = interop_demo.describe(lent)
    assert facts["readonly"] is True and facts["data"] == source.unsafe_buffer_pointer()
    add_one = jax.jit(lambda x: x + 1, donate_argnums=0)
    for convert in (jax.numpy.asarray, interop_demo._as_jax, lambda lent: jax.numpy.asarray(interop_demo._exported(lent))):
        donated = convert(lent)
        assert donated.unsafe_buffer_pointer() != facts["data"]
        changed = np.asarray(add_one(donated))
        assert np.array_equal(changed, np.arange(1, (1 << 12) + 1, dtype="f4"))
        assert np.array_equal(np.asarray(source), np.arange(1 << 12, dtype="f4"))


# Copies.


@each_view
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_on_the_device(torch, view, copied):
    """In memory of its own, without gaps, and after the work on the original."""
    source = torch.from_numpy(BASE).cuda()
    source.mul_(2)
    original = interop_demo._exported(interop_demo.asarray(VIEWS[view](source)))
    result = copied(original)
    before, after = interop_demo.describe(original), interop_demo.describe(result)
    assert type(result) is type(original) and result.device == "cuda:0" and after["readonly"] is False
    assert after["shape"] == before["shape"]
    steps = sum((extent - 1) * stride for extent, stride in zip(after["shape"], after["strides"]))
    assert result.size == 0 or steps + 1 == result.size
    assert result.size == 0 or after["data"] != before["data"]
    interop_demo.scale_(result, 10)
    assert np.array_equal(torch.from_dlpack(result).cpu().numpy(), VIEWS[view](BASE) * 20)
    assert np.array_equal(source.cpu().numpy(), BASE * 2)


# Warp.


def test_arrays_of_warp_are_written():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    if not warp.is_cuda_available():
        pytest.skip("Warp finds no GPU")
    array = warp.array(BASE, dtype=warp.float32, device="cuda:0")
    assert interop_demo.describe(array)["readonly"] is False
    interop_demo.scale_(array, 2)
    result = twice(array)
    warp.synchronize()
    assert np.array_equal(array.numpy(), BASE * 2)
    assert type(result) is type(array) and np.array_equal(result.numpy(), BASE * 4)


# NumPy.


def test_no_array_of_numpy_in_memory_of_a_device():
    with pytest.raises(ArrayError, match="memory that the host can reach"):
        interop_demo._as_numpy(full())
