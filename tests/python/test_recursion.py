"""Python code that an import or an export calls may call the extension again, without end: `RecursionError`, and the process lives.

Each program runs in a process of its own, on the main thread and on one with the stack that threads have.
"""

import pytest
from scripts import run

# Classes and what is called first. Each calls the extension again from one way in which it calls Python.
WAYS = {
    "__dlpack__": """
        class Loop(Cpu):
            def __dlpack__(self, **wishes):
                return interop_demo.is_square(Loop())
        start = lambda: interop_demo.is_square(Loop())
    """,
    "__dlpack__ of pinned memory": """
        calls = 0
        class Loop:
            def __dlpack_device__(self):
                return (3, 0)
            def __dlpack__(self, **wishes):
                global calls
                calls += 1
                assert calls < 1000, "each level tried both ways"
                return interop_demo.describe(Loop())
        start = lambda: interop_demo.describe(Loop())
    """,
    "a function with a large frame": """
        class Loop(Cpu):
            def __dlpack__(self, **wishes):
                return interop_demo.checksum(Loop())
        start = lambda: interop_demo.checksum(Loop())
    """,
    "__dlpack_device__": """
        class Loop:
            def __dlpack_device__(self):
                return interop_demo.asarray(Loop())
            def __dlpack__(self, **wishes):
                raise BufferError
        start = lambda: interop_demo.asarray(Loop())
    """,
    "__cuda_array_interface__": """
        class Loop:
            @property
            def __cuda_array_interface__(self):
                return interop_demo.describe(Loop())
        start = lambda: interop_demo.describe(Loop())
    """,
    "a mapping": """
        class Loop(dict):
            def __getitem__(self, key):
                return interop_demo.parse_cai(Loop(shape=(), typestr="<f4", data=(0, False), version=3))
        start = lambda: Loop()[0]
    """,
    "an extent": """
        class Loop:
            def __index__(self):
                return interop_demo.parse_cai({"shape": (Loop(),), "typestr": "<f4", "data": (0, False), "version": 3})
        start = lambda: Loop().__index__()
    """,
    "__array__": """
        class Loop:
            def __array__(self, *_, **wishes):
                return interop_demo._like_f64(Loop())
        start = lambda: interop_demo._like_f64(Loop())
    """,
    "__cuda_stream__": """
        class Loop:
            def __cuda_stream__(self):
                return interop_demo.describe(bytearray(8), stream=Loop())
        start = lambda: Loop().__cuda_stream__()
    """,
    "the number of a stream": """
        class Loop:
            def __index__(self):
                return interop_demo.Array.full((1,), 0).__dlpack__(stream=Loop())
        start = lambda: Loop().__index__()
    """,
    "an index": """
        class Loop:
            def __index__(self):
                return array[Loop()]
        array = interop_demo.Array.full((1,), 0)
        start = lambda: array[Loop()]
    """,
    "a metaclass": """
        class Meta(type):
            def __getattr__(cls, name):
                return interop_demo.describe(Meta("Loop", (), {})())
        start = lambda: interop_demo.describe(Meta("Loop", (), {})())
    """,
    "from_dlpack of a library": """
        class Loop(Ones):
            @classmethod
            def from_dlpack(cls, array):
                return interop_demo._doubled(Loop())
        start = lambda: interop_demo._doubled(Loop())
    """,
    "the namespace of a library": """
        class Loop(Ones):
            def __array_namespace__(self):
                return interop_demo._doubled(Loop())
        start = lambda: interop_demo._doubled(Loop())
    """,
    "a table that exports": """
        from fake_library import FROM_OBJECT, address_of, library
        @FROM_OBJECT
        def again(address, out):
            try:
                interop_demo.describe(tensor)
            except RecursionError as error:
                raised.append(error)
            return -1
        raised = []
        tensor = library(addresses={"from_object": address_of(again)})(None)
        def start():
            try:
                interop_demo.describe(tensor)
            finally:
                raise raised[0]
    """,
    "a table that creates objects": """
        from fake_library import TO_OBJECT, address_of, library
        @TO_OBJECT
        def again(address, out):
            try:
                interop_demo.twice(tensor)
            except RecursionError as error:
                raised.append(error)
            except SystemError:
                pass
            return -1
        raised = []
        tensor = library(addresses={"to_object": address_of(again)})(interop_demo.Array.full((1, 1), 1.0))
        def start():
            try:
                interop_demo.twice(tensor)
            finally:
                raise raised[0]
    """,
    "a table that allocates": """
        from fake_library import ALLOCATE, address_of, library
        @ALLOCATE
        def again(prototype, out, context, set_error):
            try:
                interop_demo._ones_like(tensor)
            except RecursionError as error:
                raised.append(error)
            return -1
        raised = []
        tensor = library(addresses={"allocator": address_of(again)})(interop_demo.Array.full((1, 1), 1.0))
        def start():
            interop_demo._ones_like(tensor)
            raise raised[0]
    """,
}

PROGRAM = """
import sys
import threading
import interop_demo
import numpy as np

class Cpu:
    def __dlpack_device__(self):
        return (1, 0)

class Ones(Cpu):
    def __dlpack__(self, **wishes):
        return np.ones((1, 1), "f4").__dlpack__(**wishes)
{way}
def check():
    sys.setrecursionlimit({limit})
    try:
        start()
    except RecursionError:
        caught.append(True)
    # The count is back where it was.
    assert interop_demo.describe(bytearray(8))["nbytes"] == 8
caught = []
check()
for size in (0, 2 << 20):
    threading.stack_size(size)
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
assert len(caught) == 3, caught
"""


@pytest.mark.parametrize("limit", [1000, 100_000])
@pytest.mark.parametrize("way", WAYS)
def test_calls_without_end(way, limit):
    lines = WAYS[way].splitlines()
    run(PROGRAM.format(way="\n".join(line[8:] for line in lines), limit=limit))


def test_calls_that_end():
    """Proxies around proxies are imported as long as there are not absurdly many."""
    run(
        """
        import interop_demo

        class Proxy:
            def __init__(self, inner):
                self.inner = inner

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **wishes):
                return interop_demo.asarray(self.inner).__dlpack__(**wishes)

        array = interop_demo.Array.full((2,), 3.0)
        for _ in range(20):
            array = Proxy(array)
        assert interop_demo.checksum(array) == 6
        """
    )
