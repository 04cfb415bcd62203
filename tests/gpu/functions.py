"""Functions of the project `hello-functions` on a GPU: PyTorch eager, compiled and in graphs, JAX, CuPy, and bad input.

Work is pending before each call, by a kernel that sleeps, and the arrays change right after it. So a call that is not
ordered leaves wrong values.
"""

import subprocess
import sys
import threading

import pytest

tvm_ffi = pytest.importorskip("tvm_ffi")
torch = pytest.importorskip("torch")

import hello_functions  # noqa: E402
import hello_functions.for_torch  # noqa: E402

OPERATORS = torch.ops.hello_functions
COUNT, SLEEP = 1 << 16, 2_000_000


@pytest.fixture(params=["default stream", "side stream"])
def stream(request):
    chosen = torch.cuda.Stream() if request.param == "side stream" else torch.cuda.default_stream()
    chosen.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(chosen):
        yield chosen
    torch.cuda.synchronize()


def same(tensor, value):
    return bool((tensor == value).all())


@pytest.mark.parametrize("way", ["direct", "operators"])
def test_pending_work(stream, way):
    functions = hello_functions if way == "direct" else OPERATORS
    x, to = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    for value in range(1, 101):
        torch.cuda._sleep(SLEEP // 20)
        x.fill_(value)
        functions.scale_(x, 2.0)
        hello_functions.scale_into(x, to, 3.0)
        new = functions.scaled(x, 4.0)
        x.fill_(-1)
        assert same(to, 6 * value) and same(new, 8 * value), value
        assert type(new) is torch.Tensor


def test_layouts():
    x = torch.arange(24.0, device="cuda").reshape(4, 6)
    for view in (lambda a: a[:, ::2], lambda a: a.t(), lambda a: a[1:3, 2:5], lambda a: a[:0], lambda a: a[1, 2]):
        ours, theirs = x.clone(), x.clone()
        hello_functions.scale_(view(ours), 2.0)
        view(theirs).mul_(2.0)
        assert torch.equal(ours, theirs)
        assert torch.equal(hello_functions.scaled(view(x), 3.0), view(x) * 3)
    expanded = torch.ones(3, 1, device="cuda").expand(3, 4)
    assert torch.equal(OPERATORS.scaled(expanded, 2.0), expanded * 2)


@pytest.mark.parametrize("way", ["direct", "operators"])
def test_graph(way):
    functions = hello_functions if way == "direct" else OPERATORS
    x, to = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        functions.scale_(x, 2.0)
        # Errors inside leave the capture valid.
        for arguments in ((x,), (x, "two"), (x.double(), 2.0), (x[:1].expand(3), 2.0)):
            with pytest.raises((TypeError, ValueError, RuntimeError)):
                functions.scale_(*arguments)
        hello_functions.scale_into(x, to, 3.0)
        new = functions.scaled(x, 4.0)
    for value in range(1, 51):
        x.fill_(value)
        graph.replay()
        assert same(x, 2 * value) and same(to, 6 * value) and same(new, 8 * value)


def test_first_launch_in_a_graph():
    program = """
import torch, hello_functions
x, graph = torch.ones(8, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    hello_functions.scale_(x, 2.0)
graph.replay()
assert x.tolist() == [2.0] * 8
"""
    subprocess.run([sys.executable, "-c", program], check=True)


BACKENDS = {name: {"backend": name} for name in ("eager", "aot_eager", "inductor", "cudagraphs")}
BACKENDS["reduce-overhead"] = {"mode": "reduce-overhead"}


def works_with_two_shapes(options):
    """Whether a backend accepts another extent than the first one, without a function of ours."""
    compiled = torch.compile(lambda x: torch.sin(x + 1) - 1, fullgraph=True, dynamic=True, **options)
    try:
        for count in (6, 6, 6, 10):
            compiled(torch.arange(float(count), device="cuda"))
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("options", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compile(options, dynamic):
    torch._dynamo.reset()
    if dynamic and not works_with_two_shapes(options):
        pytest.skip("this backend fails with PyTorch's own operators, too")

    def functional(x):
        return OPERATORS.scaled(OPERATORS.scaled(x + 1, 2.0), 3.0) - 1

    def mutating(x):
        y = x * 2
        OPERATORS.scale_(y, 3.0)
        return y + 1

    for function, expected in ((functional, lambda x: (x + 1) * 6 - 1), (mutating, lambda x: 6 * x + 1)):
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, **options)
        for count in (6, 6, 6, 10) if dynamic else (6, 6, 6):
            x = torch.arange(float(count), device="cuda")
            assert torch.equal(compiled(x), expected(x))


@pytest.mark.parametrize("options", BACKENDS.values(), ids=BACKENDS)
def test_compiled_backward(options):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (OPERATORS.scaled(x, 2.5) + 1).sum(), fullgraph=True, **options)
    for _ in range(3):
        x = torch.arange(6.0, device="cuda", requires_grad=True)
        result = compiled(x)
        result.backward()
        assert result.item() == 43.5 and x.grad.tolist() == [2.5] * 6


def test_a_result_as_an_output_of_a_graph():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda x: OPERATORS.scaled(x, 2.0), fullgraph=True, mode="reduce-overhead")
    for value in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        assert same(compiled(torch.full((COUNT,), float(value), device="cuda")), 2 * value)
    assert torch._dynamo.utils.counters["inductor"].get("cudagraph_skips", 0) == 0


def test_export_with_dynamic_extents():
    class Module(torch.nn.Module):
        def forward(self, x):
            return OPERATORS.scaled(x, 3.0) + 1

    extents = {"x": {0: torch.export.Dim("n", min=2, max=1000)}}
    exported = torch.export.export(Module(), (torch.ones(3, device="cuda"),), dynamic_shapes=extents).module()
    for count in (3, 7, 500):
        assert same(exported(torch.ones(count, device="cuda")), 4)


def test_training_is_as_with_operators_of_pytorch():
    def train(scaled):
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 8, device="cuda")
        optimizer, x, losses = torch.optim.SGD(model.parameters(), lr=0.1), torch.rand(32, 8, device="cuda"), []
        for _ in range(100):
            optimizer.zero_grad()
            loss = (scaled(model(x), 2.0) - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    own = train(OPERATORS.scaled)
    assert own == pytest.approx(train(torch.mul), rel=1e-5) and own[-1] < own[0]


def test_operators_leave_no_memory():
    x = torch.ones(1 << 16, device="cuda", requires_grad=True)

    def once():
        OPERATORS.scaled(x, 2.0)
        with torch.no_grad():
            OPERATORS.scale_(OPERATORS.scaled(x, 2.0), 2.0)
        with pytest.raises(RuntimeError):
            OPERATORS.scaled(x.double(), 2.0)

    once()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(2000):
        once()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_other_devices_and_layouts_are_refused():
    for tensor in (torch.eye(3, device="cuda").to_sparse(), torch.ones(3, device="cuda", dtype=torch.float16)):
        with pytest.raises(RuntimeError, match="allowed"):
            OPERATORS.scaled(tensor, 2.0)
    assert same(OPERATORS.scaled(on_gpu(), 2.0), 2)


def test_gradients():
    x = torch.arange(12.0, device="cuda").reshape(3, 4).t().requires_grad_()
    OPERATORS.scaled(OPERATORS.scaled(x, 2.0), 3.0).sum().backward()
    assert x.grad.flatten().tolist() == [6.0] * 12
    # What a backward pass has saved, and a function has written, is an error and no wrong gradient.
    saved = torch.ones(3, device="cuda", requires_grad=True)
    y = saved * 1.0
    z = (y * y).sum()
    with torch.no_grad():
        OPERATORS.scale_(y, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    with pytest.raises(RuntimeError, match="requires a gradient"):
        OPERATORS.scale_(torch.nn.Parameter(torch.ones(3, device="cuda")), 2.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_opcheck(device):
    x = torch.arange(6.0, device=device).reshape(2, 3)
    cases = [(OPERATORS.scaled, x.clone().requires_grad_()), (OPERATORS.scaled, x.t()), (OPERATORS.scale_, x.clone())]
    for operator, tensor in cases:
        outcome = torch.library.opcheck(operator.default, (tensor, 2.5))
        assert set(outcome.values()) == {"SUCCESS"}, outcome


@pytest.mark.parametrize("release", [False, True], ids=["with the lock", "without the lock"])
def test_threads(release):
    hello_functions.scale_.release_gil = release
    wrong = []

    def run(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.zeros(COUNT, device="cuda")
            for _ in range(100):
                x.fill_(number)
                hello_functions.scale_(x, 2.0)
                if not same(hello_functions.scaled(x, 2.0), 4 * number):
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hello_functions.scale_.release_gil = False
    assert not wrong


def test_new_tensors_are_of_the_allocator():
    x = torch.ones(1 << 20, device="cuda")
    hello_functions.scaled(x, 2.0)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    new = hello_functions.scaled(x, 2.0)
    assert torch.cuda.memory_allocated() - before == new.nbytes
    del new
    assert torch.cuda.memory_allocated() == before


def on_gpu(**options):
    return torch.ones(6, device="cuda", **options)


WRONG = {
    "dtype": (lambda: (on_gpu(dtype=torch.float64), 1.0), TypeError, "`dtype`: found float64, allowed: float32"),
    "missing": (lambda: (on_gpu(),), TypeError, "the argument `factor` is missing"),
    "surplus": (lambda: (on_gpu(), 1.0, 2.0), TypeError, "found 3 arguments, allowed: 2"),
    "none": (lambda: (None, 1.0), TypeError, "found None, allowed: an array"),
    "text": (lambda: (on_gpu(), "2"), TypeError, "found a str, allowed: a float"),
    "shared elements": (lambda: (on_gpu()[:1].expand(3), 1.0), ValueError, "share"),
}


@pytest.mark.parametrize(("arguments", "kind", "text"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(arguments, kind, text):
    with pytest.raises(kind, match=text):
        hello_functions.scale_(*arguments())
    # The context is as before.
    assert (on_gpu() * 2).tolist() == [2.0] * 6


@pytest.mark.parametrize("way", ["direct", "operators"])
def test_arguments_that_do_not_fit_together(way):
    """Among them tensors of two devices."""
    scale_into, x = (hello_functions if way == "direct" else OPERATORS).scale_into, on_gpu()
    for to in (x, x[1:].new_zeros(5), torch.zeros(6), torch.zeros(2, 3, device="cuda")):
        with pytest.raises((TypeError, ValueError, RuntimeError), match="found .*, allowed: "):
            scale_into(x, to, 2.0)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        scale_into(x[:4], x[2:], 2.0)
    scale_into(x[:3], x[3:], 2.0)
    assert x.tolist() == [1, 1, 1, 2, 2, 2]


# CuPy: nobody tells TVM FFI its stream.


@pytest.fixture(params=["default", "blocking", "non-blocking"])
def cupy_stream(request):
    cupy = pytest.importorskip("cupy")
    streams = {"default": cupy.cuda.Stream.null, "blocking": cupy.cuda.Stream(), "non-blocking": cupy.cuda.Stream(non_blocking=True)}
    with streams[request.param]:
        yield cupy


def test_cupy(cupy_stream):
    cupy = cupy_stream
    slow = cupy.ones(1 << 24, dtype=cupy.float32)
    x, to = cupy.zeros(COUNT, dtype=cupy.float32), cupy.zeros(COUNT, dtype=cupy.float32)
    for value in range(1, 51):
        for _ in range(5):
            slow *= 1.0
        x.fill(value)
        hello_functions.scale_(x, 2.0)
        hello_functions.scale_into(x, to, 3.0)
        new = cupy.from_dlpack(hello_functions.scaled(x, 4.0))
        x.fill(-1)
        assert bool((to == 6 * value).all()) and bool((new == 8 * value).all())
    # `tvm_ffi` 0.1.15 reads negative strides of CuPy wrongly, and the array is refused.
    with pytest.raises(ValueError):
        hello_functions.scale_(x[::-1], 2.0)


def test_cupy_in_a_graph():
    cupy = pytest.importorskip("cupy")
    x, stream = cupy.ones(8, dtype=cupy.float32), cupy.cuda.Stream(non_blocking=True)
    tensor = tvm_ffi.from_dlpack(x)
    with stream:
        stream.begin_capture()
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream.ptr):
            hello_functions.scale_(tensor, 2.0)
        graph = stream.end_capture()
        for value in (1, 2, 3):
            x.fill(value)
            graph.launch(stream)
            assert x.tolist() == [2 * value] * 8


# JAX sets the stream of XLA.


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax_tvm_ffi")
    if jax.default_backend() != "gpu":
        pytest.skip("no JAX with CUDA")
    import hello_functions.for_jax  # noqa: F401

    return jax


def test_jit(jax):
    from hello_functions.for_jax import scale, scaled

    def function(x):
        y = jax.lax.fori_loop(0, 20, lambda _, y: y * 1.0, x)
        return scaled(scaled(y + 1, 2.0) - 1, 3.0) + scale(x * 2, 2.0)

    function = jax.jit(function)
    for value in range(1, 101):
        x = jax.numpy.full(COUNT, value, dtype="float32")
        assert bool((function(x) == 3 * (2 * (value + 1) - 1) + 4 * value).all())


def test_vmap_and_gradients(jax):
    from hello_functions.for_jax import scale, scaled

    x = jax.numpy.arange(24, dtype="float32").reshape(2, 3, 4)
    assert bool((jax.jit(jax.vmap(jax.vmap(lambda x: scaled(x, 2.5))))(x) == 2.5 * x).all())
    assert bool((jax.vmap(lambda x: scale(x, 2.5))(x) == 2.5 * x).all())
    assert bool((jax.jit(jax.grad(lambda x: scaled(x, 2.5).sum()))(x) == 2.5).all())
    assert bool((jax.jit(lambda x: scale(x, 2.0) + x)(x) == 3 * x).all())
    assert scaled(x[:0], 2.0).shape == (0, 3, 4)


def test_jax_on_the_host(jax):
    from hello_functions.for_jax import scaled

    with jax.default_device(jax.devices("cpu")[0]):
        x = jax.numpy.arange(6, dtype="float32")
        assert bool((jax.jit(lambda x: scaled(x, 2.0))(x) == 2 * x).all())


def test_errors_in_jax(jax):
    from hello_functions.for_jax import scaled

    for dtype in ("int32", "bfloat16"):
        with pytest.raises(Exception, match="allowed: float32"):
            jax.block_until_ready(jax.jit(lambda x: scaled(x, 2.0))(jax.numpy.ones(3, dtype=dtype)))
    assert bool((scaled(jax.numpy.ones(3), 2.0) == 2).all())


@pytest.mark.parametrize("module", ["numba.cuda", "numba_cuda_mlir.cuda"])
def test_numba_is_refused(module):
    cuda = pytest.importorskip(module)
    with pytest.raises(TypeError, match="found an object that exports no DLPack tensor"):
        hello_functions.scale_(cuda.to_device([1.0]), 2.0)
