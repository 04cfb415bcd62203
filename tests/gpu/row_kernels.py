"""Kernels in which a team of threads owns a row: results beside PyTorch's for each layout, launch and odd value, and refusals."""

import itertools

import numpy as np
import pytest
import row_kernels_module as rows

torch = pytest.importorskip("torch")

TYPES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
EPS = 1e-5
# None is the launch that the library chooses; else blocks, threads of a team, and teams of a block.
LAUNCHES = [None, (3, 1, 32), (2, 4, 5), (1, 8, 16), (5, 32, 3), (2, 64, 1), (1, 96, 1), (3, 256, 1), (1, 512, 1)]
SHAPES = [(5, 1), (3, 2), (7, 100), (4, 512), (3, 1000), (5, 1025), (2, 4096), (1, 33000), (1000, 12)]


def layouts(x):
    """The same numbers in other strides, and at addresses with other alignments."""
    n, d = x.shape
    yield "contiguous", x
    yield "transposed", x.T.contiguous().T
    wide = x.new_zeros(n, d + 3)
    wide[:, 1 : d + 1] = x
    yield "misaligned rows", wide[:, 1 : d + 1]
    apart = x.new_zeros(n, 2 * d)
    apart[:, ::2] = x
    yield "every second column", apart[:, ::2]
    behind = x.new_zeros(n * d + 1)
    behind[1:] = x.flatten()
    yield "one element on", behind[1:].view(n, d)


def numbers(n, d, dtype):
    torch.manual_seed(n * d)
    return torch.randn(n, d, device="cuda").to(dtype)


def close(found, expected, dtype, scale=1.0):
    torch.testing.assert_close(found.double(), expected, rtol=TYPES[dtype], atol=TYPES[dtype] * scale, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_each_kernel_in_each_layout_and_launch(shape, dtype):
    (n, d), x = shape, numbers(*shape, dtype)
    weight, bias = (torch.randn(d, device="cuda").to(dtype) for _ in range(2))
    exact, exact_weight, exact_bias = x.double(), weight.double(), bias.double()
    functional = torch.nn.functional
    expected = {
        "rms_norm": functional.rms_norm(exact, (d,), exact_weight, EPS),
        "softmax": torch.softmax(exact, -1),
        "online_softmax": torch.softmax(exact, -1),
        "layer_norm": functional.layer_norm(exact, (d,), exact_weight, exact_bias, EPS),
        "row_sum": exact.sum(-1),
    }
    # The variance of few numbers loses digits.
    scale = {"layer_norm": 100 if d < 10 else 1, "row_sum": d**0.5}
    for (name, view), launch in itertools.product(layouts(x), LAUNCHES):
        for to, out in layouts(torch.zeros_like(x)):
            if to != "contiguous" and launch is not None:
                continue
            sums = torch.zeros(n, device="cuda", dtype=dtype)
            calls = {
                "rms_norm": lambda: rows.rms_norm(view, weight, out, EPS, launch),
                "softmax": lambda: rows.softmax(view, out, launch),
                "online_softmax": lambda: rows.online_softmax(view, out, launch),
                "layer_norm": lambda: rows.layer_norm(view, weight, bias, out, EPS, launch),
                "row_sum": lambda: rows.row_sum(view, sums, launch),
            }
            for kernel, call in calls.items():
                call()
                found = sums if kernel == "row_sum" else out
                try:
                    close(found, expected[kernel], dtype, scale.get(kernel, 1))
                except AssertionError as error:
                    raise AssertionError(f"{kernel}, {name} to {to}, {launch}: {error}") from None


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_odd_values_are_those_of_pytorch(dtype):
    low, high, nan = float("-inf"), float("inf"), float("nan")
    odd = [[0, low, 0], [low, low, low], [0, high, 0], [0, nan, 1], [low, 1, nan], [nan, nan, nan], [-5, low, low]]
    for d in (3, 40, 1025):
        x = torch.zeros(len(odd), d, device="cuda", dtype=dtype)
        x[:, -3:] = torch.tensor(odd, dtype=dtype)
        x[1] = low
        out, sums = torch.empty_like(x), torch.empty(len(odd), device="cuda", dtype=dtype)
        for softmax in (rows.softmax, rows.online_softmax):
            softmax(x, out)
            close(out, torch.softmax(x.double(), -1), dtype)
        rows.row_sum(x, sums)
        close(sums, x.double().sum(-1), dtype)
        values, columns = torch.empty_like(sums), torch.empty(len(odd), device="cuda", dtype=torch.int64)
        for launch in LAUNCHES:
            rows.row_max(x, values, columns, launch)
            close(values, x.double().amax(-1), dtype)
            # The first of several; `torch.argmax` says any.
            expected = x.cpu().double().nan_to_num(nan=1e300, posinf=1e200, neginf=-1e200).numpy().argmax(-1)
            assert columns.tolist() == expected.tolist(), (d, launch)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_in_place_in_two_loops(dtype):
    for (n, d), launch in itertools.product([(7, 100), (3, 1025), (2, 33000), (9, 1)], LAUNCHES):
        for name, x in layouts(numbers(n, d, dtype)):
            expected = x.double() - x.double().mean(-1, keepdim=True)
            means = torch.empty(n, device="cuda")
            rows.center_(x, means, launch)
            torch.testing.assert_close(x.double(), expected, rtol=TYPES[dtype], atol=TYPES[dtype], msg=lambda text: f"{name} {launch}: {text}")


@pytest.mark.parametrize("name", ["row_sum", "chain"])
def test_sums_and_reductions_have_the_bits_of_the_cpu(name):
    on_device, on_cpu = {"row_sum": (rows.row_sum, rows.sum_on_cpu), "chain": (rows.chain, rows.chain_on_cpu)}[name]
    for n, d in [(5, 1000), (6, 1025), (3, 33), (2, 40000)]:
        x = numbers(n, d, torch.float32)
        for threads in (1, 4, 32, 64, 96, 512):
            sums = torch.empty(n, device="cuda")
            on_device(x, sums, (2, threads, 1))
            expected = np.array(on_cpu(x.cpu().numpy(), threads), np.float32)
            assert sums.cpu().numpy().tobytes() == expected.tobytes(), (n, d, threads)


def on_cpu(x):
    """The same tensor in memory of the CPU, with its strides."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


def aligned_layouts(x):
    """Layouts whose first element is aligned to 16 bytes, which a launch on the CPU takes for granted: rows have heads and tails."""
    n, d = x.shape
    yield "contiguous", x
    yield "transposed", x.T.contiguous().T
    wide = x.new_zeros(n, d + 3)
    wide[:, :d] = x
    yield "rows with gaps", wide[:, :d]
    apart = x.new_zeros(n, 2 * d)
    apart[:, ::2] = x
    yield "every second column", apart[:, ::2]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_launches_over_cpu_tensors_have_the_bits_of_the_gpu(dtype):
    """Sums, maxima and what is computed of them bit for bit; `exp` and `rsqrt` of a GPU differ in the last digits."""
    for (n, d), launch in itertools.product(SHAPES, LAUNCHES):
        weight, bias = (torch.randn(d, device="cuda").to(dtype) for _ in range(2))
        for name, x in aligned_layouts(numbers(n, d, dtype)):
            what = f"{n} x {d}, {name}, {launch}"
            results = []
            for place in (lambda tensor: tensor, on_cpu):
                own, w, b = place(x), place(weight), place(bias)
                device = own.device
                sums, values = (torch.zeros(n, device=device, dtype=dtype) for _ in range(2))
                columns = torch.zeros(n, device=device, dtype=torch.int64)
                rows.row_sum(own, sums, launch)
                rows.row_max(own, values, columns, launch)
                outs = [torch.zeros(n, d, device=device, dtype=dtype) for _ in range(4)]
                rows.rms_norm(own, w, outs[0], EPS, launch)
                rows.softmax(own, outs[1], launch)
                rows.online_softmax(own, outs[2], launch)
                rows.layer_norm(own, w, b, outs[3], EPS, launch)
                centered, means = place(x).clone(), torch.zeros(n, device=device)
                rows.center_(centered, means, launch)
                exact = [sums, values, columns, centered, means]
                results.append(([result.cpu() for result in exact], [out.cpu() for out in outs]))
            (exact, close_), (exact_on_cpu, close_on_cpu) = results
            for one, other in zip(exact, exact_on_cpu, strict=True):
                # Equal, and not only close: there is no NaN.
                assert torch.equal(one, other), what
            for one, other in zip(close_, close_on_cpu, strict=True):
                torch.testing.assert_close(one.double(), other.double(), rtol=TYPES[dtype], atol=TYPES[dtype], msg=lambda text, what=what: f"{what}: {text}")


def test_no_rows_and_no_columns():
    for dtype in TYPES:
        for n, d in [(0, 5), (0, 0), (3, 0)]:
            x, weight = torch.empty(n, d, device="cuda", dtype=dtype), torch.empty(d, device="cuda", dtype=dtype)
            sums = torch.full((n,), 7.0, device="cuda", dtype=dtype)
            rows.rms_norm(x, weight, torch.empty_like(x), EPS)
            rows.softmax(x, torch.empty_like(x))
            rows.row_sum(x, sums)
            assert sums.tolist() == [0.0] * n


def test_more_rows_than_teams():
    x = torch.randn(300_000, 3, device="cuda")
    sums = torch.empty(300_000, device="cuda")
    rows.row_sum(x, sums, (7, 4, 8))
    torch.testing.assert_close(sums, x.sum(-1))


def test_on_a_side_stream_and_in_a_graph():
    x, weight = numbers(64, 1025, torch.bfloat16), torch.ones(1025, device="cuda", dtype=torch.bfloat16)
    out, normed = torch.empty_like(x), torch.empty_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for value in range(20):
            x.fill_(value)
            rows.softmax(x, out)
            assert (out.float() - 1 / 1025).abs().max().item() < 1e-5
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows.rms_norm(x, weight, normed, EPS)
        rows.softmax(normed, out)
    for seed in range(3):
        x.copy_(numbers(64, 1025, torch.bfloat16).mul(seed + 1))
        graph.replay()
        expected = torch.nn.functional.rms_norm(x.double(), (1025,), None, EPS)
        close(normed, expected, torch.bfloat16)
        close(out, torch.softmax(normed.double(), -1), torch.bfloat16)


def alive():
    """Whether the context still works: a kernel that traps ends it."""
    return torch.ones(3, device="cuda").sum().item() == 3


def refused(call, match=None):
    with pytest.raises((ValueError, BufferError, RuntimeError), match=match):
        call()
    assert alive()


def test_a_bad_call_is_refused_before_the_launch():
    x, weight, out = torch.ones(4, 100, device="cuda"), torch.ones(100, device="cuda"), torch.zeros(4, 100, device="cuda")
    refused(lambda: rows.rms_norm(x, weight[:99], out, EPS), "`weight`: found 99 columns, allowed: 100 columns, as in `x`")
    refused(lambda: rows.rms_norm(x, weight, out[:3], EPS), r"`out`: found the shape \[3, 100\], allowed: the shape \[4, 100\]")
    refused(lambda: rows.row_sum(x, weight[:3]), "`sums`: found 3 rows, allowed: 4 rows, as in `x`")
    for block in [(3, 1), (48, 1), (64, 2), (96, 3)]:
        refused(lambda: rows.softmax(x, out, (1, *block)), "`block`: found .* allowed: teams of 1, 2, 4, 8, 16 or 32 threads along x")
    refused(lambda: rows.softmax(x, x))
    refused(lambda: rows.softmax(x, x[:, :]))
    refused(lambda: rows.softmax(x.double(), out), "dtype.*float64.*float32, bfloat16")
    refused(lambda: rows.softmax(x, torch.zeros(1, 1, device="cuda").expand(4, 100)))
    wide = torch.ones(1, 1, device="cuda").expand(1, 1 << 31)
    refused(lambda: rows.row_sum(wide, weight[:1]), "`x`: found 2147483648 columns, allowed: fewer than 2")
    rows.rms_norm(x, weight, out, EPS)
    assert alive() and (out - 1).abs().max().item() < 1e-4
