"""The interpreter ends while arrays are alive: exit status 0 (R97, bugs 55 to 57)."""

import os
import subprocess
import sys

import pytest
from scripts import run

ENDINGS = {
    "live-objects": """
        array = interop_demo.Array.full((10,), 1.0)
        view, capsule, again = np.from_dlpack(array), array.__dlpack__(), interop_demo.asarray(np.ones(3))
    """,
    "a-cycle": """
        class Node: pass
        node = Node(); node.itself = node
        node.array = interop_demo.Array.full((10,), 1.0)
        node.view = np.from_dlpack(node.array)
        np.kept = node
    """,
    "kept-by-a-builtin-module": """
        import builtins
        view = interop_demo.asarray(np.ones(3))[1:]
        builtins.kept = [np.from_dlpack(interop_demo.Array.full((10,), 1.0)), view.__dlpack__(max_version=(1, 0))]
    """,
    "never-released": """
        kept = [take(interop_demo.Array.full((10,), 1.0).__dlpack__(max_version=version)) for version in (None, (1, 0))]
    """,
    "released-after-the-end": """
        # As a static object of a C++ library does: from a function that runs when the process exits.
        for version in (None, (1, 0)):
            struct = take(interop_demo.Array.full((10,), 1.0).__dlpack__(max_version=version))
            at_exit(struct.deleter, ctypes.addressof(struct), None)
            struct = take(interop_demo.asarray(np.ones(3)).__dlpack__(max_version=version or (1, 0)))
            at_exit(struct.deleter, ctypes.addressof(struct), None)
    """,
    "released-after-the-end-image": """
        struct = take(interop_demo.edges(interop_demo.Array.full((4, 5, 3), 1.0)).__dlpack__(max_version=(1, 0)))
        at_exit(struct.deleter, ctypes.addressof(struct), None)
    """,
    "parked": """
        import threading
        struct = take(interop_demo.Array.full((10,), 1.0).__dlpack__())
        release(struct)
        assert interop_demo.pending_releases() == 1
    """,
    "atexit": """
        import atexit
        array = interop_demo.Array.full((10,), 1.0)
        struct = take(array.__dlpack__())
        atexit.register(lambda: (release(struct), interop_demo.describe(array)))
    """,
    "weakref-finalize": """
        import weakref
        array = interop_demo.Array.full((10,), 1.0)
        weakref.finalize(array, print)
        class Last:
            def __del__(self):
                np.from_dlpack(array), interop_demo.checksum(array)
        last = Last()
    """,
    "daemon-threads": """
        import threading, time
        def work():
            while True:
                array = interop_demo.Array.full((10,), 1.0)
                np.from_dlpack(array), interop_demo.asarray(np.ones(3))
                release(take(array.__dlpack__()))
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
    """,
    "sys-exit": """
        array = interop_demo.Array.full((10,), 1.0)
        view = np.from_dlpack(array)
        sys.exit(0)
    """,
    "second-interpreter": """
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        other = interpreters.create()
        struct = take(interop_demo.Array.full((10,), 1.0).__dlpack__())
        at_exit(struct.deleter, ctypes.addressof(struct), None)
        kept = np.from_dlpack(interop_demo.Array.full((10,), 1.0))
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("attempt", range(10 if "INTEROP_TORTURE" in os.environ else 2))
def test_the_end_of_the_interpreter(ending, attempt):
    if "at_exit" in ENDINGS[ending] and sys.platform != "linux":
        pytest.skip("no Linux: `__cxa_atexit` is called by its name in libc")
    beginning = """
        import ctypes, sys
        import numpy as np
        import interop_demo
        from capsules import release, take
        at_exit = getattr(ctypes.CDLL(None), "__cxa_atexit", None)
        if at_exit:
            at_exit.argtypes = [ctypes.c_void_p] * 3
    """
    run(beginning + ENDINGS[ending])


@pytest.mark.parametrize(
    ("array", "said"),
    [
        ("interop_demo._Titled('x')", "(2,)"),
        ("interop_demo.Array.full((3,), 1.0)[1:]", "(2,)"),
        ("interop_demo.edges(np.ones((3, 3, 3), 'f4'))[1:]", "(2, 3, 3)"),
        ("interop_demo._exported(interop_demo.Array.full((3,), 1.0, 'bfloat16'))", "ArrayError"),
    ],
    ids=["an array", "a view", "a view of a result", "an array without a buffer"],
)
@pytest.mark.parametrize("function", ["memoryview", "np.asarray"])
def test_an_object_in_a_cycle_uses_an_array_at_the_end(array, said, function):
    """The interpreter is no longer initialized, but the thread is attached to it: a result, or an ordinary exception."""
    program = f"""
import gc, interop_demo, numpy as np

class Node:
    def __init__(self, array):
        self.itself, self.array = self, array

    def __del__(self, function={function}, print=print, Exception=Exception, type=type):
        try:
            print(function(self.array).shape)
        except Exception as error:
            print(type(error).__name__)

gc.disable()
Node({array})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    # NumPy imports a module for a bfloat16, which an ending interpreter does not.
    assert done.stdout.strip() in {said, "ImportError"} if "ArrayError" in said else done.stdout.strip() == said
    assert done.stderr == ""
