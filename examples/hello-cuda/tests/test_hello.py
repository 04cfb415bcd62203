import contextlib
import itertools
import sys
import threading

import hello_cuda
import libraries
import numpy as np
import pytest

LIBRARIES, ON_CPU = libraries.on_gpu(), libraries.on_cpu()
COUNT = 6


def name(library):
    return type(library).__name__


@pytest.fixture(params=LIBRARIES, ids=name)
def library(request):
    return request.param


@pytest.fixture(params=LIBRARIES + ON_CPU, ids=name)
def anywhere(request):
    """Arrays of the CPU, or of a GPU."""
    return request.param


@pytest.fixture(params=["default stream", "side stream"])
def stream(request, anywhere):
    """The stream on which the library works."""
    with anywhere.side_stream() if request.param == "side stream" else contextlib.nullcontext():
        yield


def test_where_the_arrays_are(anywhere, stream):
    library = anywhere
    row = library.array(range(COUNT))
    hello_cuda.double_(row)
    assert library.numbers(row) == [0, 2, 4, 6, 8, 10]
    doubled = hello_cuda.double(row)
    assert type(doubled) is type(row) and doubled.shape == (COUNT,)
    assert library.numbers(doubled) == [0, 4, 8, 12, 16, 20]
    assert library.numbers(hello_cuda.double(doubled)) == [0, 8, 16, 24, 32, 40]
    hello_cuda.add_(row, doubled)
    assert library.numbers(row) == [0, 6, 12, 18, 24, 30]


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no lock for which threads wait")
@pytest.mark.parametrize(("count", "runs"), [(3, False), (1 << 22, True)])
def test_a_long_launch_on_the_cpu_gives_up_the_lock_of_the_interpreter(count, runs):
    array, begin, ran = np.ones(count, np.float32), threading.Event(), []
    thread = threading.Thread(target=lambda: begin.wait() and ran.append(True))
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)  # The other thread gets the lock only when it is given up.
    try:
        begin.set()
        for _ in range(100):
            hello_cuda.double_(array)
        has_run = bool(ran)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert has_run is runs


def test_rows_are_normalized(anywhere, stream):
    library = anywhere
    x, weight = library.array([[3.0, 4.0, 0.0, 0.0], [-1.0, 1.0, 1.0, 1.0]]), library.array([1.0, 2.0, 1.0, 1.0])
    normed = hello_cuda.rms_norm(x, weight, eps=0)
    assert type(normed) is type(x) and normed.shape == (2, 4)
    expected = [[1.2, 3.2, 0, 0], [-1, 2, 1, 1]]
    np.testing.assert_allclose(library.numbers(normed), expected, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_of_another_type_and_layout(device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    x = torch.randn(1001, 64, device=device).T.to(torch.bfloat16)
    weight = torch.randn(1001, device=device).to(torch.bfloat16)
    expected = torch.nn.functional.rms_norm(x.float(), (1001,), weight.float(), 1e-6)
    normed = hello_cuda.rms_norm(x, weight)
    assert normed.dtype == torch.bfloat16
    torch.testing.assert_close(normed.float(), expected, rtol=1e-2, atol=1e-2)
    with pytest.raises(ValueError, match="found 1000 columns, allowed: 1001 columns, as in `x`"):
        hello_cuda.rms_norm(x, weight[1:])
    with pytest.raises(BufferError, match="found float64, allowed: float32, bfloat16"):
        hello_cuda.rms_norm(x.double(), weight)


@pytest.mark.parametrize("on", ["default stream", "side stream"])
def test_after_the_work_before_and_before_the_work_after(library, on):
    """Nothing waits, and everything is in order."""
    with library.side_stream() if on == "side stream" else contextlib.nullcontext():
        check_order(library)


def check_order(library):
    row = library.array([0.0] * COUNT)
    for value in range(10):
        library.fill(row, value)
        hello_cuda.double_(row)
        doubled = hello_cuda.double(row)
        hello_cuda.add_(row, doubled)
        results = (library.numbers(row), library.numbers(doubled))
        assert results == ([6 * value] * COUNT, [4 * value] * COUNT)
        del doubled


def test_in_a_graph(library):
    row, sums = library.array([1.0] * COUNT), library.array([0.0] * COUNT)
    with library.graph() as graph:
        hello_cuda.double_(row)
        doubled = hello_cuda.double(row)
        hello_cuda.add_(sums, doubled)
    for value in range(1, 4):
        library.fill(row, value)
        library.fill(sums, 1)
        graph.replay()
        assert library.numbers(row) == [2 * value] * COUNT
        assert library.numbers(doubled) == [4 * value] * COUNT
        assert library.numbers(sums) == [4 * value + 1] * COUNT


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(LIBRARIES, 2)), ids=name)
def test_arrays_of_two_libraries(first, second):
    """Each library works on a stream of its own."""
    with first.side_stream(), second.side_stream():
        row, other = first.array([0.0] * COUNT), second.array([0.0] * COUNT)
        for value in range(10):
            first.fill(row, value)
            second.fill(other, 2 * value)
            hello_cuda.add_(row, other)
            second.fill(other, 0)
            assert first.numbers(row) == [3 * value] * COUNT


def test_under_torch_compile():
    torch = pytest.importorskip("torch")
    function = torch.compile(lambda x: hello_cuda.double(x + 1) + 1, backend="eager")
    assert function(torch.arange(3.0)).tolist() == [3, 5, 7]


def test_under_jit():
    jax = pytest.importorskip("jax")

    def double(x):
        return jax.pure_callback(lambda x: hello_cuda.double(np.asarray(x)), jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert jax.jit(lambda x: double(x + 1) + 1)(jax.numpy.arange(3, dtype=np.float32)).tolist() == [3, 5, 7]


@pytest.mark.parametrize("library", LIBRARIES, ids=name)
def test_arrays_of_two_places_are_refused(library):
    with pytest.raises(BufferError, match=r"`device`: found CPU \(1\), allowed: CUDA \(2\).* the first array of the scope"):
        hello_cuda.add_(library.array([1.0] * 3), np.ones(3, np.float32))


@pytest.mark.parametrize("wrong", ["nonsense", np.zeros((3, 1), np.float32)], ids=["nonsense", "two axes"])
def test_anything_else_is_refused(wrong):
    with pytest.raises((TypeError, BufferError), match="found"):
        hello_cuda.double_(wrong)


def test_rows_of_two_lengths_are_refused(anywhere):
    with pytest.raises(ValueError, match="`other`: found 2 elements, allowed: 3 elements, as in `row`"):
        hello_cuda.add_(anywhere.array([1.0] * 3), anywhere.array([1.0] * 2))
