"""What all Python tests share: the extension, marks for what a computer may lack, and a check for leaks.

Run them with `cargo xtask test python`, which builds the extension and installs the libraries first.
"""

import gc
import importlib.util
import time

import interop_demo
import pytest

# How long a library may take to give memory back from a thread of its own, in seconds.
PATIENCE = 5.0


pytest.register_assert_rewrite("interfaces", "scripts")


def pytest_configure(config):
    """Declares the marks."""
    config.addinivalue_line("markers", "needs(name): the test uses a library that may not be installed")
    config.addinivalue_line("markers", "cuda: the test uses a GPU")


def missing_gpu():
    """Why there is no GPU to test with, or `None`."""
    try:
        interop_demo.Array.full((1,), 0.0, device="cuda")
    except Exception as error:  # any reason is a reason to skip, and the skip shows it
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    """Skips what this computer cannot run, each test with its reason."""
    gpu = missing_gpu() if any(item.get_closest_marker("cuda") for item in items) else None
    for item in items:
        for mark in item.iter_markers("needs"):
            if importlib.util.find_spec(mark.args[0]) is None:
                item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]} is not installed"))
        if gpu and item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {gpu}"))


def counters():
    """What is alive: exports that somebody still holds, allocations, releases that wait for a stream."""
    return {
        "exports": interop_demo.live_exports(),
        "allocations": interop_demo.live_allocations(),
        "pending releases": interop_demo.pending_releases(),
    }


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    """After every test everything that it exported or allocated has been released."""
    gc.collect()
    # What is alive now is no business of this test: the collector need not look at it again.
    gc.freeze()
    before, failures = counters(), request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        return  # the traceback of a failed test keeps its variables alive
    request.node.funcargs.clear()  # and so does the test what its fixtures made
    deadline = time.monotonic() + PATIENCE
    while (after := released()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert after == before, "the test left something alive"


def released():
    """The counters once Python has dropped what it no longer uses."""
    gc.collect()
    return counters()
