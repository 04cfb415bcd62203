"""Arrays of a GPU between two processes, from Python, by the module `interop_ipc`: values, order in both directions, ends."""

import ctypes
import gc
import multiprocessing
import queue
import time

import pytest

interop_ipc = pytest.importorskip("interop_ipc", reason="`interop_ipc` is not built")
# Longer than a few kernels take to start, so that what does not wait comes too early.
CYCLES = 2_000_000


def imported(library, message):
    """The array of a message, as one of this library."""
    array = interop_ipc.open(message)
    if library == "jax":
        import jax

        # The array is read-only, which JAX's `from_dlpack` does not take.
        return jax.numpy.asarray(array)
    return __import__(library).from_dlpack(array)


class Handle(ctypes.Structure):
    """`CUipcMemHandle`."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


def handle_of(tensor):
    """The handle of a tensor, as a program gets it that knows only `cuIpcGetMemHandle`."""
    handle = Handle()
    address = ctypes.c_uint64(tensor.data_ptr())
    assert ctypes.CDLL("libcuda.so.1").cuIpcGetMemHandle(ctypes.byref(handle), address) == 0
    return bytes(handle)


def by_hand(message):
    """The first number of a handle, as a program reads it that takes the opened address for that of the tensor."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes the context current
    driver, handle = ctypes.CDLL("libcuda.so.1"), Handle.from_buffer_copy(message)
    address, value = ctypes.c_uint64(), ctypes.c_float()
    assert driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1) == 0
    assert driver.cuMemcpyDtoH_v2(ctypes.byref(value), address, ctypes.c_size_t(4)) == 0
    assert driver.cuIpcCloseMemHandle(address) == 0
    return value.value


def answer(order, message, kept):
    """What the other process does for an order."""
    import torch

    if order in ("torch", "cupy", "jax"):
        return float(imported(order, message).sum())
    if order == "numpy":
        return imported("numpy", message).tolist()
    if order == "elements":
        return imported("torch", message).tolist()
    if order == "by hand":
        return by_hand(message)
    if order == "first, on a stream":
        with torch.cuda.stream(torch.cuda.Stream()):
            return float(imported("torch", message)[0])
    if order == "first, on a named stream":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            return float(torch.from_dlpack(interop_ipc.open(message, stream=stream))[0])
    if order == "add late":
        tensor = imported("torch", message)
        torch.cuda._sleep(CYCLES)
        tensor += 1
    elif order == "copy late":
        tensor = imported("torch", message)
        torch.cuda._sleep(CYCLES)
        kept[:] = [tensor.clone()]
    elif order == "what was copied":
        return float(kept[0].double().mean())
    elif order == "offer late":
        tensor = torch.zeros(1 << 16, device="cuda")
        torch.cuda._sleep(2_000_000_000)  # a second
        tensor += 1
        kept[:] = [tensor, interop_ipc.share(tensor)]
        return bytes(kept[1])
    elif order == "keep":
        kept[:] = [imported("torch", message)]
    elif order == "drop":
        kept.clear()
    return "done"


def serve(orders, answers):
    kept = []
    while (order := orders.get()) is not None:
        try:
            answers.put(answer(*order, kept))
        except Exception as error:
            answers.put(f"{type(error).__name__}: {error}")


class Other:
    """Another process, which does one order after the other."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.orders, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=serve, args=(self.orders, self.answers), daemon=True)
        self.process.start()

    def ask(self, order, message=b""):
        self.orders.put((order, bytes(message)))
        try:
            return self.answers.get(timeout=60)
        except queue.Empty:
            pytest.fail(f"no answer to `{order}`; the other process lives: {self.process.is_alive()}")

    def end(self):
        self.orders.put(None)
        self.process.join(10)
        self.process.kill()


@pytest.fixture(scope="module")
def other(torch):
    other = Other()
    yield other
    other.end()


def test_a_view_keeps_its_offset_and_strides(torch, other):
    base = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    view = base[12345 : 12345 + 24].reshape(4, 6)[::2, 1::2]
    with interop_ipc.share(view) as parcel:
        assert other.ask("elements", parcel) == view.tolist()
        assert len(parcel) <= 200


def compare_with_by_hand(torch, other, tensors):
    """How many tensors arrive with a wrong first element, by hand and by this module."""
    torch.cuda.synchronize()
    hand = [other.ask("by hand", handle_of(tensor)) != float(tensor.flatten()[0]) for tensor in tensors]
    ours = [other.ask("elements", interop_ipc.share(tensor)) != tensor.tolist() for tensor in tensors]
    return sum(hand), sum(ours)


def test_dora_978(torch, other):
    """A tensor that was stacked from two others arrived as one of them: https://github.com/dora-rs/dora/issues/978."""
    torch.cuda.empty_cache()
    first = torch.arange(6, dtype=torch.float32, device="cuda").reshape(2, 3) + 1
    second = first + 6
    stacked = torch.stack([first, second]) + 20
    hand, ours = compare_with_by_hand(torch, other, [stacked])
    assert (hand, ours) == (1, 0)


def test_mooncake_1622(torch, other):
    """Tensors of one block lost their offsets: https://github.com/kvcache-ai/Mooncake/pull/1622."""
    sizes = (16, 4 << 10, 32 << 10)
    tensors = [torch.full((size,), float(value + 2), device="cuda") for value, size in enumerate(sizes)]
    hand, ours = compare_with_by_hand(torch, other, tensors)
    assert hand >= 2 and ours == 0


def test_streams_are_named(torch, other):
    stream, tensor, wrong = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda"), 0
    with torch.cuda.stream(stream):
        for number in range(50):
            torch.cuda._sleep(CYCLES)
            tensor.fill_(number)
            parcel = interop_ipc.share(tensor)
            wrong += other.ask("first, on a named stream", parcel) != number
            assert parcel.take_back(10, stream=stream) is tensor
    assert wrong == 0


def test_the_writer_s_stream_waits_for_the_reader(torch, other):
    stream, tensor, wrong = torch.cuda.Stream(), torch.zeros(1 << 16, device="cuda"), 0
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for number in range(100):
            tensor.fill_(number)
            parcel = interop_ipc.share(tensor)
            assert other.ask("copy late", parcel) == "done"
            parcel.take_back(10, stream=stream)  # the host does not wait
            tensor.fill_(-1)
            stream.synchronize()
            wrong += other.ask("what was copied") != number
    assert wrong == 0


def test_a_reader_asks_whether_the_producer_runs(torch):
    producer = Other()
    message = producer.ask("offer late")
    tensor = torch.from_dlpack(interop_ipc.open(message))
    assert interop_ipc.is_alive(message)
    producer.process.kill()
    producer.process.join()
    total = float(tensor.sum())  # the stream does not wait for ever, for work that will not be done
    assert not interop_ipc.is_alive(message), total
    producer.end()


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
def test_a_tensor_is_read_by_each_library(torch, other, library):
    pytest.importorskip(library)
    tensor = torch.full((1000,), 2.0, device="cuda")
    parcel = interop_ipc.share(tensor)
    assert other.ask(library, parcel) == 2000.0
    parcel.take_back(10)


def test_an_array_of_cupy_is_read_by_torch(other):
    array = pytest.importorskip("cupy").arange(1000, dtype="float32")[::2]
    parcel = interop_ipc.share(array)
    assert other.ask("torch", parcel) == float(array.sum())
    parcel.take_back(10)


def test_an_array_of_jax_is_read_by_torch(other):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX finds no GPU")
    parcel = interop_ipc.share(jax.numpy.ones(1000))
    assert other.ask("torch", parcel) == 1000.0
    parcel.take_back(10)


def test_the_reader_waits_for_the_writer(torch, other):
    tensor, wrong = torch.zeros(1 << 20, device="cuda"), 0
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(200):
            torch.cuda._sleep(CYCLES)
            tensor.fill_(number)
            parcel = interop_ipc.share(tensor)
            wrong += other.ask("first, on a stream", parcel) != number
            parcel.take_back(10)
    assert wrong == 0


def test_the_writer_waits_for_the_reader(torch, other):
    tensor, wrong = torch.zeros(1 << 16, device="cuda"), 0
    for number in range(100):
        tensor.fill_(number)
        parcel = interop_ipc.share(tensor)
        assert other.ask("copy late", parcel) == "done"
        parcel.take_back(10)
        tensor.fill_(-1)
        torch.cuda.synchronize()
        wrong += other.ask("what was copied") != number
    assert wrong == 0


def test_writes_of_the_other_process_are_seen(torch, other):
    tensor = torch.zeros(1 << 16, device="cuda")
    for number in range(50):
        parcel = interop_ipc.share(tensor, writable=True)
        assert other.ask("add late", parcel) == "done"
        parcel.take_back(10)
        assert float(tensor[0]) == number + 1


def test_memory_is_freed_once_the_reader_has_dropped_it(torch, other):
    gc.collect()
    before = torch.cuda.memory_allocated()
    message = bytes(interop_ipc.share(torch.zeros(1 << 24, device="cuda")))
    assert other.ask("keep", message) == "done"
    assert torch.cuda.memory_allocated() > before
    other.ask("drop")
    deadline = time.monotonic() + 10
    while torch.cuda.memory_allocated() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    # Less, if an array of an earlier test was still on its way back.
    assert torch.cuda.memory_allocated() <= before


def test_a_loop_leaves_no_memory(torch, other):
    tensor = torch.zeros(1 << 20, device="cuda")

    def loop(rounds):
        for _ in range(rounds):
            parcel = interop_ipc.share(tensor)
            assert other.ask("torch", parcel) == 0.0
            parcel.take_back(10)

    loop(20)
    before = torch.cuda.mem_get_info()[0]
    loop(500)
    assert torch.cuda.mem_get_info()[0] == before


def test_a_killed_reader_gives_the_array_back(torch):
    victim, tensor = Other(), torch.zeros(1 << 20, device="cuda")
    parcel = interop_ipc.share(tensor)
    assert victim.ask("keep", parcel) == "done"
    victim.process.kill()
    parcel.take_back(10)
    tensor.fill_(1)
    torch.cuda.synchronize()
    victim.end()


@pytest.mark.parametrize("is_pinned", [True, False])
def test_memory_that_cannot_be_shared_is_refused_with_its_allocator_and_copied(torch, other, is_pinned):
    tensor = torch.arange(12.0).reshape(3, 4)
    tensor = tensor.pin_memory() if is_pinned else tensor
    with pytest.raises(interop_ipc.ArrayError, match=r"memory.*copy=True"):
        interop_ipc.share(tensor)
    assert other.ask("numpy", interop_ipc.share(tensor.T, copy=True)) == tensor.T.tolist()


def test_a_copy_is_queued_behind_the_writer_and_before_its_next_write(torch, other):
    tensor, wrong = torch.zeros(1 << 20, device="cuda"), 0
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(50):
            torch.cuda._sleep(CYCLES)
            tensor.fill_(number)
            parcel = interop_ipc.share(tensor, copy=True)
            tensor.fill_(-1)
            wrong += other.ask("first, on a stream", parcel) != number
            parcel.take_back(10)
    assert wrong == 0


def test_a_copy_leaves_no_memory(torch, other):
    def loop(rounds):
        for _ in range(rounds):
            parcel = interop_ipc.share(tensor, copy=True)
            assert other.ask("torch", parcel) == 0.0
            parcel.take_back(10)
            del parcel

    tensor = torch.zeros(1 << 20, device="cuda")
    loop(20)
    before = torch.cuda.mem_get_info()[0]
    loop(200)
    assert torch.cuda.mem_get_info()[0] >= before - (64 << 20)


@pytest.mark.parametrize("memory", ["MemoryAsyncPool", "malloc_managed"])
def test_cupy_s_other_allocators_need_a_copy(other, memory):
    cupy = pytest.importorskip("cupy")
    allocator = cupy.cuda.MemoryAsyncPool().malloc if memory == "MemoryAsyncPool" else cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc
    with cupy.cuda.using_allocator(allocator):
        array = cupy.arange(1000, dtype="float32")[::-2]
    with pytest.raises(interop_ipc.ArrayError, match=r"copy=True"):
        interop_ipc.share(array)
    parcel = interop_ipc.share(array, copy=True)
    assert other.ask("torch", parcel) == float(array.sum())
    parcel.take_back(10)


def test_a_pool_with_a_type_of_handle_is_shared_as_it_is(torch, other):
    core = pytest.importorskip("cuda.core")
    device = core.Device()
    device.set_current()
    if not hasattr(core, "DeviceMemoryResourceOptions"):
        pytest.skip("this cuda.core has no pools for processes")
    options = core.DeviceMemoryResourceOptions(max_size=1 << 24, ipc_enabled=True)
    resource, stream = core.DeviceMemoryResource(device, options=options), device.create_stream()
    for number in range(1, 20):
        buffer = resource.allocate(1 << 20, stream=stream)
        stream.sync()
        view = torch.from_dlpack(buffer).view(torch.float32)
        view.fill_(number)
        parcel = interop_ipc.share(view)
        assert other.ask("torch", parcel) == number * view.numel()
        parcel.take_back(10)
        torch.cuda.synchronize()
        del view, parcel
        buffer.close(stream)
