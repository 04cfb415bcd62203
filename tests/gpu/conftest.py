"""What all tests on a GPU share. `cargo xtask test python` runs some of them on the simulated driver."""

import gc
import time

import interop_demo
import pytest

PATIENCE = 5.0


def pytest_addoption(parser):
    parser.addoption("--partner", default=None, help="only this partner's cells of the matrix")


def counters():
    """What is alive: exports, allocations, and releases that wait."""
    return interop_demo.live_exports(), interop_demo.live_allocations(), interop_demo.pending_releases()


def released():
    gc.collect()
    interop_demo.finish_releases()
    gc.collect()
    return counters()


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    """After every test everything that it exported or allocated has been released."""
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
    """Fewer is well: a library may have kept an array of an earlier test for a while."""
    return any(now > then for now, then in zip(after, before, strict=True))


@pytest.fixture(scope="session")
def simulated():
    """The simulated driver, which gets the extension's kernels by it; a machine with a GPU need not have it."""
    try:
        from simulation import Simulation
    except ImportError:
        return None
    return Simulation()


@pytest.fixture(scope="session", autouse=True)
def gpu(simulated):
    """Without a GPU nothing here says anything."""
    try:
        interop_demo.Array.full((1,), 0.0, device="cuda")
    except interop_demo.ArrayError as error:
        pytest.exit(f"no GPU: {error}", returncode=3)
    yield
    if simulated and simulated.library:
        assert simulated.reports() == []
