"""Operators of PyTorch that a list of `export!` makes: schemas, shapes, gradients, compiled graphs, packages, and bad input."""

import copy
import os
import threading

import pytest
import torch
import torch.utils._python_dispatch

LIBRARY = os.environ["INTEROP_FUNCTIONS"]
torch.ops.load_library(LIBRARY)
OPERATORS = torch.ops.interop_tests
MORE = torch.ops.interop_more_tests
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def row(*shape, **options):
    return torch.rand(shape or (3,), dtype=torch.float64, **options)


def test_schemas_follow_from_the_types():
    schemas = {name: str(getattr(OPERATORS, name).default._schema).split("::")[1] for name in ("shift_", "exponential", "outer", "dropped")}
    assert schemas == {
        "shift_": "shift_(Tensor(a!) array, float by) -> ()",
        # Python keeps the name `from`.
        "exponential": "exponential(Tensor from_) -> Tensor",
        "outer": "outer(Tensor a, Tensor b) -> Tensor",
        "dropped": "dropped() -> int",
    }
    assert str(OPERATORS.sum_all.default._schema).endswith(
        "sum_all(Tensor[] arrays, float[] weights, Tensor? extra=None, float? offset=None) -> float"
    )
    assert str(OPERATORS.shift_all_.default._schema).endswith("shift_all_(Tensor(a!)[] arrays, float by) -> ()")
    assert str(OPERATORS.describe.default._schema).endswith(
        "describe(Tensor array, int in_, float factor, bool flag, str name, ScalarType dtype, Device device, int[] axes, "
        "bool[] flags, str[] names, int? limit=None) -> ()"
    )


def test_every_kind_of_argument():
    def describe(*arguments):
        with pytest.raises(RuntimeError) as error:
            OPERATORS.describe(torch.ones(3, dtype=torch.int32), *arguments)
        return str(error.value)

    device = torch.device("cuda", 1)
    assert describe(1, 2.5, True, "abc", torch.float16, device, [1, 2], [True, False], ["a", "bb"], 7) == (
        '3 1 2.5 true abc float16 CUDA (2), ordinal 1 [1, 2] [true, false] ["a", "bb"] Some(7)'
    )
    assert describe(-1, 1, False, "", torch.bfloat16, "cpu", [], [], []) == '3 -1 1 false  bfloat16 CPU (1) [] [] [] None'
    x = row(2, 3)
    assert OPERATORS.sum_all([x, x], [1.0, 2.0], x, 5.0) == pytest.approx(4 * x.sum().item() + 5)
    assert OPERATORS.sum_all([], []) == 0.0
    assert torch.allclose(OPERATORS.total([x] * 20), 20 * x)


def test_results():
    x = row(4)
    assert torch.equal(OPERATORS.product(x, x), x * x) and OPERATORS.dropped() >= 0
    assert torch.equal(OPERATORS.outer(x, x[:2]), torch.outer(x, x[:2]))
    table = row(4, 2) - 0.5
    assert OPERATORS.positives(table).tolist() == (table > 0).sum(1).tolist()
    assert torch.equal(OPERATORS.shifted_rows(table, 1, 2), torch.cat([table[1:], torch.zeros(2, 2, dtype=torch.float64)]))
    assert OPERATORS.exponential(x[:0]).shape == (0,) and OPERATORS.exponential(x[0]).shape == ()


@pytest.mark.skipif(VERSION < (2, 11), reason="PyTorch takes memory of others since 2.11")
def test_a_result_in_memory_of_rust():
    x = row(1000)
    for _ in range(10):
        assert torch.equal(OPERATORS.owned(x), x)


@pytest.mark.skipif(VERSION >= (2, 11), reason="PyTorch takes memory of others since 2.11")
def test_a_result_in_memory_of_rust_is_refused():
    with pytest.raises(RuntimeError, match="needs PyTorch 2.11; allowed: a `NewArray`"):
        OPERATORS.owned(row(3))


CASES = {
    "product": lambda: (row(2, 3, requires_grad=True), row(2, 3, requires_grad=True)),
    "exponential": lambda: (row(3, 2).t().requires_grad_(),),
    "outer": lambda: (row(2), row(5)),
    "shifted_rows": lambda: (row(4, 2, 3), 1, 3),
    "positives": lambda: (row(4, 2),),
    "shift_": lambda: (row(2, 3), 1.5),
    "shift_all_": lambda: ([row(2), row(3)], 1.5),
    "product_into": lambda: (row(3), row(3), row(3)),
}


@pytest.mark.parametrize("name", CASES)
def test_opcheck(name):
    outcome = torch.library.opcheck(getattr(OPERATORS, name).default, CASES[name]())
    assert set(outcome.values()) == {"SUCCESS"}, outcome


def test_gradients():
    arguments = row(3, 2, requires_grad=True), row(3, 2, requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(OPERATORS.product, arguments) and check(OPERATORS.exponential, arguments[:1])
    # The gradient of a sum is expanded, with strides of 0.
    x = row(3, 2).t().requires_grad_()
    OPERATORS.exponential(x).sum().backward()
    assert torch.allclose(x.grad, x.exp())
    only_one = row(3, requires_grad=True)
    OPERATORS.product(only_one, row(3)).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_several_element_types(dtype):
    x = torch.rand(3, 2, dtype=dtype, requires_grad=True)
    result = OPERATORS.squared(x)
    result.sum().backward()
    assert result.dtype == dtype and torch.equal(result, x * x) and torch.equal(x.grad, 2 * x)
    assert set(torch.library.opcheck(OPERATORS.squared.default, (x,)).values()) == {"SUCCESS"}
    with pytest.raises(RuntimeError, match=r"found int64, allowed: float32, float64 \(from argument `from` of `squared`\)"):
        OPERATORS.squared(torch.arange(3))


def train(product, exponential):
    torch.manual_seed(1)
    weights, inputs, losses = row(8, requires_grad=True), row(20, 8), []
    optimizer = torch.optim.SGD([weights], lr=0.01)
    for at in range(100):
        optimizer.zero_grad()
        loss = (exponential(product(weights, inputs[at % 20])) - 1.5).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_is_as_with_operators_of_pytorch():
    own = train(OPERATORS.product, OPERATORS.exponential)
    assert own == pytest.approx(train(torch.mul, torch.exp), rel=1e-12) and own[-1] < own[0]


def test_a_gradient_of_a_wrong_shape():
    with pytest.raises(RuntimeError, match=r"invalid gradient at index 0 - got \[7\] but expected shape compatible with \[3\]"):
        MORE.halved(row(3, requires_grad=True)).sum().backward()


def test_writes_are_told():
    x = row(2, 4)
    OPERATORS.shift_(x, 1.0)
    OPERATORS.shift_(x[:, ::2], 1.0)
    OPERATORS.shift_all_([x, x[:0], row(2)], 1.0)
    assert x._version == 4
    # What a backward pass has saved is noticed.
    saved = row(3, requires_grad=True).exp()
    loss = (saved * saved).sum()
    with torch.no_grad():
        OPERATORS.shift_(saved, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_that_would_lose_a_gradient():
    parameter = torch.nn.Parameter(row(3))
    before = parameter.tolist()
    for tensor in (parameter, parameter * 1):
        with pytest.raises(RuntimeError, match="`array`: found a tensor that requires a gradient.*torch.no_grad"):
            OPERATORS.shift_(tensor, 1.0)
        with pytest.raises(RuntimeError, match="`arrays`: found a tensor that requires a gradient"):
            OPERATORS.shift_all_([row(3), tensor], 1.0)
    assert parameter.tolist() == before and parameter._version == 0
    with torch.no_grad():
        OPERATORS.shift_(parameter, 1.0)
    assert parameter._version == 1


def test_inference_mode():
    with torch.inference_mode():
        x = row(3)
        OPERATORS.shift_(x, 1.0)
        assert torch.equal(OPERATORS.product(x, x), x * x)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        OPERATORS.shift_(x, 1.0)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(mode, dynamic):
    def function(x, y):
        z = OPERATORS.outer(OPERATORS.exponential(x), y)
        OPERATORS.shift_(z, 1.0)
        return OPERATORS.shifted_rows(z, 1, 2).sum() + OPERATORS.positives(z).sum()

    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled = torch.compile(function, fullgraph=True, mode=mode, dynamic=dynamic)
    for counts in ((3, 4), (5, 6), (7, 8)) if dynamic else ((3, 4), (3, 4)):
        x, y = row(counts[0]), row(counts[1])
        assert torch.allclose(compiled(x, y), function(x, y))
    if dynamic:
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def test_compiled_gradient():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: OPERATORS.exponential(OPERATORS.product(x, y)).sum(), fullgraph=True)
    x, y = row(3, requires_grad=True), row(3)
    compiled(x, y).backward()
    assert torch.allclose(x.grad, y * (x * y).exp())


def test_an_error_in_a_compiled_graph():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: OPERATORS.product(x, y) + 1, fullgraph=True)
    with pytest.raises(RuntimeError, match="`dtype`: found float32, allowed: float64"):
        compiled(torch.ones(3), torch.ones(3))
    assert torch.allclose(compiled(row(3) * 0, row(3)), torch.ones(3, dtype=torch.float64))


class Model(torch.nn.Module):
    def forward(self, x, y):
        return OPERATORS.shifted_rows(OPERATORS.outer(OPERATORS.exponential(x), y), 1, 2) + 1


def test_export_with_dynamic_extents(tmp_path):
    extents = {"x": {0: torch.export.Dim("n", min=2, max=1000)}, "y": {0: torch.export.Dim("m", min=2, max=1000)}}
    exported = torch.export.export(Model(), (row(3), row(4)), dynamic_shapes=extents)
    nodes = {node.target: node.meta["val"].shape for node in exported.graph.nodes if node.op == "call_function"}
    assert all(isinstance(extent, torch.SymInt) for extent in nodes[OPERATORS.outer.default])
    # Less to compile: no headers in advance for one use, and a wrapper that is not optimized.
    less = {"aot_inductor.precompile_headers": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"), inductor_configs=less)
    loaded = torch._inductor.aoti_load_package(package)
    for n, m in ((3, 4), (7, 2), (30, 50)):
        x, y = row(n), row(m)
        assert torch.allclose(loaded(x, y), Model()(x, y)) and torch.allclose(exported.module()(x, y), Model()(x, y))
    with pytest.raises(RuntimeError):
        loaded(row(3).float(), row(4))


def test_layouts():
    x = row(4, 6)
    for view in (lambda a: a[:, ::2], lambda a: a.t(), lambda a: a[:0], lambda a: a[1, 2], lambda a: a[2]):
        ours, theirs = x.clone(), x.clone()
        OPERATORS.shift_(view(ours), 2.0)
        view(theirs).add_(2.0)
        assert torch.equal(ours, theirs) and torch.allclose(OPERATORS.exponential(view(x)), view(x).exp())
    last = row(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.allclose(OPERATORS.exponential(last), last.exp())
    with pytest.raises(RuntimeError, match="no two indices share an element"):
        OPERATORS.shift_(row(1).expand(3), 2.0)
    # A view with a lazy sign is resolved before.
    assert torch.allclose(OPERATORS.exponential(torch._neg_view(x)), (-x).exp())


def freed(start=0):
    tensor = row(8)[start:]
    tensor.untyped_storage().resize_(0)
    return tensor


class Subclass(torch.Tensor):
    pass


DENSE = "allowed: dense tensors on the CPU or on CUDA"
BAD = {
    "dtype": (lambda: OPERATORS.product(row(3).float(), row(3)), "`dtype`: found float32, allowed: float64 (from argument `a` of `product`)"),
    "complex": (lambda: OPERATORS.exponential(row(3).to(torch.complex64).conj()), "found complex64, allowed: float64"),
    "shapes": (lambda: OPERATORS.product(row(3), row(4)), "`shape`: found [4], allowed: [3], the shape of the other array (from `product`)"),
    "rank": (lambda: OPERATORS.product(row(3), row(3, 1)), "found [3, 1], allowed: [3]"),
    "an array for a list": (lambda: OPERATORS.total(1.0), "Expected a value of type 'List[Tensor]'"),
    "negated, written": (lambda: OPERATORS.shift_(torch._neg_view(row(3)), 1.0), "lazy sign or conjugate"),
    "negated, written in a list": (lambda: OPERATORS.shift_all_([torch._neg_view(row(3))], 1.0), "lazy sign or conjugate"),
    "conjugated, beside a written one": (lambda: OPERATORS.product_into(row(3).to(torch.complex64).conj(), row(3), row(3)), "lazy sign or conjugate"),
    "count": (lambda: OPERATORS.product(row(3)), "missing value for argument 'b'"),
    "surplus": (lambda: OPERATORS.dropped(1), "expected at most 0 argument(s) but received 1"),
    "type": (lambda: OPERATORS.shift_(row(3), "two"), "Expected a value of type 'float'"),
    "overlap": (lambda: (lambda x: OPERATORS.product_into(x[:2], x[2:4], x[1:3]))(row(4)), "one writer"),
    "negative int": (lambda: OPERATORS.shifted_rows(row(3, 2), -1, 0), "`skip`: found -1, allowed: 0 to"),
    "in a list": (lambda: OPERATORS.total([row(3), torch.ones(3)]), "argument `arrays[1]` of `total`"),
    "not declared as written": (lambda: OPERATORS.write_any(row(3)), "read-only"),
    "sparse": (lambda: OPERATORS.product(row(3).to_sparse(), row(3).to_sparse()), DENSE),
    "sparse csr": (lambda: OPERATORS.exponential(row(3, 3).to_sparse_csr()), DENSE),
    "quantized": (lambda: OPERATORS.outer(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), row(3)), DENSE),
    "nested": (lambda: OPERATORS.exponential(torch.nested.nested_tensor([row(2), row(3)])), DENSE),
    "nested, without a gradient": (lambda: OPERATORS.outer(torch.nested.nested_tensor([row(2), row(3)]), row(3)), DENSE),
    "mkldnn": (lambda: OPERATORS.outer(torch.ones(3).to_mkldnn(), row(3)), DENSE),
    "no shape declared": (lambda: OPERATORS.total([row(3).to("meta")]), "or one without elements"),
    "freed": (lambda: OPERATORS.exponential(freed()), "null"),
    "freed, a view": (lambda: OPERATORS.exponential(freed(3)), "null"),
    "freed, written": (lambda: OPERATORS.shift_(freed(), 1.0), "null"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_bad_input(name, requires_grad, capfd):
    call, text = BAD[name]
    with torch.set_grad_enabled(requires_grad), pytest.raises(RuntimeError) as error:
        call()
    assert text in str(error.value), error.value
    assert "frame #" not in str(error.value) + capfd.readouterr().err


def test_the_text_of_an_error_stands_alone(capfd):
    for how, text in (("value", "a value"), ("nul", "a\\0b and ü"), ("panic", "`fails` panicked: on purpose")):
        with pytest.raises(RuntimeError) as error:
            OPERATORS.fails(row(3), how)
        assert str(error.value) == text
    capfd.readouterr()
    expected = "`Array`: `dtype`: found float32, allowed: float64 (from argument `a` of `product`)"
    for requires_grad in (False, True):
        with pytest.raises(RuntimeError) as error:
            OPERATORS.product(torch.ones(3, requires_grad=requires_grad), row(3))
        assert str(error.value) == expected
        # Older versions write each exception that their C functions catch to stderr.
        assert capfd.readouterr().err == ""


def test_what_is_dropped():
    before = OPERATORS.dropped()
    for how in ("value", "panic", "fine"):
        for _ in range(10):
            try:
                OPERATORS.fails(row(3), how)
            except RuntimeError:
                pass
    assert OPERATORS.dropped() == before + 30


def test_subclasses():
    tensor = row(3).as_subclass(Subclass)
    assert type(OPERATORS.exponential(tensor)) is Subclass
    assert OPERATORS.exponential(torch.nn.Parameter(row(3))).grad_fn is not None
    with torch.no_grad():
        assert not OPERATORS.exponential(torch.nn.Parameter(row(3))).requires_grad


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, arguments=(), named=None):
        self.names.append(operator.name())
        return operator(*arguments, **named or {})


def test_a_call_without_a_gradient_is_one_step():
    """The kernel of the CPU runs the function. Modes and transforms see the operators that are called, as does a gradient."""
    x, needs = row(3), row(3, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        OPERATORS.exponential(x)
        with torch.no_grad():
            OPERATORS.exponential(needs)
    ours = [event.name for event in profiled.events() if event.name.startswith("interop_tests::")]
    assert ours == ["interop_tests::exponential"] * 2
    for tensor, expected in ((x, "_exponential"), (needs, "_exponential_grad")):
        with Seen() as seen:
            result = OPERATORS.exponential(tensor)
        assert f"interop_tests::{expected}" in seen.names and torch.allclose(result, x.exp() if tensor is x else needs.exp())
    with Seen(), pytest.raises(RuntimeError, match="found float32, allowed: float64"):
        OPERATORS.exponential(x.float())


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(3, dtype=torch.float64)
        assert OPERATORS.outer(x, x[:2]).shape == (3, 2) and OPERATORS.product(x, x).shape == (3,)
        assert OPERATORS.positives(torch.empty(4, 2)).dtype == torch.int64
        assert OPERATORS.shift_(x, 1.0) is None
        with pytest.raises(RuntimeError, match="`total`: .*or one without elements"):
            OPERATORS.total([x])
    # PyTorch refuses functions of C++ that write there.
    with pytest.raises(RuntimeError, match="alias annotation"):
        torch.func.functionalize(lambda x: OPERATORS.shift_(x, 1.0))(row(3))
    x = row(3)
    assert torch.equal(torch.func.functionalize(OPERATORS.product)(x, x), x * x)


@pytest.mark.filterwarnings("error")
def test_transforms():
    table = row(4, 3)
    assert torch.allclose(torch.vmap(OPERATORS.exponential)(table), table.exp())
    assert torch.equal(torch.vmap(OPERATORS.product, in_dims=(0, None))(table, table[0]), table * table[0])
    assert torch.equal(torch.vmap(OPERATORS.product, in_dims=(0, 1))(table, table.t()), table * table)
    rows = torch.stack([OPERATORS.outer(row, table[0]) for row in table])
    assert torch.equal(torch.vmap(OPERATORS.outer, in_dims=(0, None))(table, table[0]), rows)
    gradient = table.clone().requires_grad_()
    torch.vmap(OPERATORS.exponential)(gradient).sum().backward()
    assert torch.allclose(gradient.grad, table.exp())
    with pytest.raises(RuntimeError, match="Batching rule not implemented for interop_tests::shift_"):
        torch.vmap(lambda x: OPERATORS.shift_(x, 1.0))(table)
    # As with `custom_op`.
    for transform in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(RuntimeError, match="setup_context"):
            transform(lambda x: OPERATORS.exponential(x).sum())(row(3))


def test_forward_mode_is_refused():
    with pytest.raises(RuntimeError, match="no gradients in forward mode"):
        torch.func.jvp(OPERATORS.exponential, (row(3),), (row(3),))
    for call in (OPERATORS.exponential, lambda x: OPERATORS.outer(x, x), lambda x: OPERATORS.shift_(x, 1.0)):
        with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="no gradients in forward mode"):
            call(torch.autograd.forward_ad.make_dual(row(3), row(3)))


def test_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert OPERATORS.exponential(row(3)).dtype == torch.float64


def test_checkpoints_and_copies():
    from torch.utils.checkpoint import checkpoint

    x = row(3, requires_grad=True)
    checkpoint(OPERATORS.exponential, x, use_reentrant=False).sum().backward()
    assert torch.allclose(x.grad, x.exp())
    assert torch.allclose(copy.deepcopy(OPERATORS.exponential(x.detach())), x.exp())
    traced = torch.jit.trace(lambda x: OPERATORS.exponential(x) + 1, (row(3),))
    assert torch.allclose(traced(x.detach()), x.detach().exp() + 1)


def test_threads_have_errors_of_their_own():
    wrong = []

    def run(number):
        x = row(10 + number)
        for _ in range(100):
            OPERATORS.shift_(x, 1.0)
            if not torch.equal(OPERATORS.product(x, x), x * x):
                wrong.append(number)
            try:
                OPERATORS.shifted_rows(row(3, 2), -number, 0)
                wrong.append("no error")
            except RuntimeError as error:
                if f"found -{number}," not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_leaks():
    import resource

    large = torch.ones(1 << 16, dtype=torch.float64)
    gradient = large.clone().requires_grad_()

    def once():
        OPERATORS.product(large, large)
        OPERATORS.product(gradient, large)
        OPERATORS.total([large, large])
        OPERATORS.sum_all([large], [1.0], large, 2.0)
        for bad in (lambda: OPERATORS.product(large.float(), large), lambda: OPERATORS.sum_all([large.float()], [], large, 1.0)):
            with pytest.raises(RuntimeError):
                bad()
        with pytest.raises(RuntimeError):
            OPERATORS.product(gradient.float(), large)

    for _ in range(20):
        once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
