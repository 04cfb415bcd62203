"""Fixtures of the GPU tests. `cargo xtask test python` runs some of them on the simulated driver."""

import gc
import os
import time

import interop_demo
import pytest

PATIENCE = 5.0

# With `RELEASE_LIMIT=0` every allocation waits for what is deferred.
if limit := os.environ.get("RELEASE_LIMIT"):
    interop_demo.set_release_limit(int(limit))


def pytest_addoption(parser):
    parser.addoption("--partner", default=None, help="only this partner's cells of the matrix")


def counters():
    """The numbers of live exports, live allocations and deferred releases."""
    return interop_demo.live_exports(), interop_demo.live_allocations(), interop_demo.pending_releases()


def released():
    gc.collect()
    interop_demo.finish_releases()
    gc.collect()
    return counters()


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    """Checks that each test has released everything that it exported or allocated."""
    before, failures = released(), request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        return  # the traceback of a failed test keeps its variables alive
    request.node.funcargs.clear()
    deadline = time.monotonic() + PATIENCE
    while more(after := released(), before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not more(after, before), f"exports, allocations or releases are left: {before} before, {after} after"


def more(after, before):
    """Smaller counts are allowed: a library may have kept an array of an earlier test for a while."""
    return any(now > then for now, then in zip(after, before, strict=True))


@pytest.fixture(scope="session")
def torch():
    """PyTorch, with a GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    return torch


@pytest.fixture(scope="session")
def simulated():
    """Loads the extension's kernels into the simulated driver. A machine with a GPU need not have that driver."""
    try:
        from simulation import Simulation
    except ImportError:
        return None
    return Simulation()


@pytest.fixture(scope="session", autouse=True)
def gpu(simulated):
    """Without a GPU these tests prove nothing, so the run ends."""
    try:
        interop_demo.Array.full((1,), 0.0, device="cuda")
    except interop_demo.ArrayError as error:
        pytest.exit(f"no GPU: {error}", returncode=3)
    yield
    if simulated and simulated.library:
        assert simulated.reports() == []
