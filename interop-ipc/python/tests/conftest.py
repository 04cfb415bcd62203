"""Shared by the tests of `interop_ipc`: a second process, and a check that nothing stays open.

Run the tests with `cargo xtask test python`, which first builds the module.
"""

import gc

import interop_ipc
import numpy as np
import pytest
from support import Reader, files, wait_for


@pytest.fixture
def reader():
    """A second process, which is killed at the end."""
    with Reader() as reader:
        yield reader
        reader.kill()


@pytest.fixture(autouse=True)
def nothing_stays(request):
    """Checks that each test has given everything back, and freed its memory."""
    gc.collect()
    # The connection of the process to itself keeps a page.
    interop_ipc.open(interop_ipc.share(interop_ipc.empty(1)))
    before, failures = files(), request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        return  # the traceback of a failed test keeps its variables alive
    request.node.funcargs.clear()
    gc.collect()

    def nothing_is_left():
        # Libraries drop arrays on threads of their own. The next call of the module drops the Python objects that these hold.
        np.asarray(interop_ipc.empty(0))
        return files() <= before and not interop_ipc.leases()

    wait_for(nothing_is_left)
