"""Counts Python's allocations during an export (bugs 175, 176): only the returned object is allocated.

No keyword goes through a dict and no name through a new string. Unlike a time, a count does not depend on the load of
the machine.
"""

import importlib.util
import sys

import native
import pytest
from scripts import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("_testcapi") is None, reason="this Python comes without `_testcapi`, which makes them fail"
)


# Counts the allocations of a call: one after the other is made to fail.
COUNTED = """
        import _testcapi, gc
        import numpy as np
        import interop_demo

        def allocations(call):
            call()
            failed = 0
            for at in range(50):
                error = result = None
                _testcapi.set_nomemory(at, at + 1)
                try:
                    result = call()
                except BaseException as found:
                    error = found
                finally:
                    _testcapi.remove_mem_hooks()
                failed += error is not None
                del error, result
            return failed

        gc.disable()
"""


def test_nothing_is_allocated_but_what_is_handed_out():
    said = run(COUNTED + """
        class Imagined:  # pinned memory, which no driver is asked about here
            def __dlpack_device__(self):
                return 3, 0
            def __dlpack__(self, **wishes):
                return tensor.capsule()

        from capsules import Tensor
        tensor = Tensor(device=(3, 0))
        array, pinned = interop_demo.asarray(np.zeros((4, 4), np.float32)), interop_demo.asarray(Imagined())
        interface = pinned.__cuda_array_interface__
        (rows, columns), (address, _) = interface["shape"], interface["data"]

        def by_hand():  # the same dict, filled as C code fills one; the address is a number of its own
            made = {}
            made["shape"] = rows, columns
            made["typestr"] = "<f4"
            made["data"] = address + 0, False
            made["version"] = 3
            made["strides"] = None
            return made

        print(
            allocations(lambda: array.__dlpack__()),
            allocations(lambda: array.__dlpack__(max_version=(1, 0))),
            allocations(lambda: array.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)),
            allocations(lambda: pinned.__cuda_array_interface__),
            allocations(by_hand),
        )
    """)
    *exports, interface, by_hand = map(int, said.split())
    # Before 3.11 Python first binds a method to its object if it is called with keywords.
    bound = sys.version_info < (3, 11)
    assert exports == [1, 1 + bound, 1 + bound], "a capsule, whatever keywords say"
    assert 1 <= interface <= by_hand + 1, "a dict with its numbers, as Python makes it, and the text of the type"
