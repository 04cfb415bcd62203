"""Shared by all Python tests: the extension, marks for what a machine may lack, and a check for leaks.

Run the tests with `cargo xtask test python`, which first builds the extension and installs the libraries.
"""

import gc
import importlib.util
import sys
import time
from pathlib import Path

import interop_demo
import pytest

# The time in seconds in which a library must release memory from its own thread.
PATIENCE = 5.0


# The reader of the corpus, and structs made by hand (`capsules.py`).
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

pytest.register_assert_rewrite("interfaces", "scripts")


def pytest_configure(config):
    """Declares the marks."""
    config.addinivalue_line("markers", "needs(name): the test uses a library that may not be installed")
    config.addinivalue_line("markers", "cuda: the test uses a GPU")


def missing_gpu():
    """Returns why no GPU can be used, or `None`."""
    try:
        interop_demo.Array.full((1,), 0.0, device="cuda")
    except Exception as error:  # any reason is a reason to skip, and the skip shows it
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    """Skips the tests that this machine cannot run, each with its reason."""
    gpu = missing_gpu() if any(item.get_closest_marker("cuda") for item in items) else None
    for item in items:
        for mark in item.iter_markers("needs"):
            if importlib.util.find_spec(mark.args[0]) is None:
                item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]} is not installed"))
        if gpu and item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {gpu}"))


def counters():
    """The numbers of live exports, live allocations, and deferred releases."""
    return {
        "exports": interop_demo.live_exports(),
        "allocations": interop_demo.live_allocations(),
        "pending releases": interop_demo.pending_releases(),
    }


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    """Checks that each test has released everything that it exported or allocated."""
    gc.collect()
    # Objects that are alive now do not belong to this test, so the collector need not visit them again.
    gc.freeze()
    before, failures = counters(), request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        return  # the traceback of a failed test keeps its variables alive
    request.node.funcargs.clear()  # the test keeps the values of its fixtures, too
    deadline = time.monotonic() + PATIENCE
    while (after := released()) != before and time.monotonic() < deadline:
        # A release of an earlier test may end during this one.
        before["pending releases"] = min(before["pending releases"], after["pending releases"])
        time.sleep(0.01)
    assert after == before, "the test left something alive"


def released():
    """Returns the counters after Python has dropped unused objects."""
    gc.collect()
    return counters()
