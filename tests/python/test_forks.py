"""A forked process: parent and child continue."""

import os

import native
import pytest
from scripts import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no `fork`")


def test_both_processes_use_and_release_an_array():
    run(
        """
        import os, numpy as np, interop_demo
        from capsules import release, take
        array = interop_demo.Array.full((10,), 1.0)
        struct = take(array.__dlpack__())
        child = os.fork()
        assert interop_demo.checksum(array) == 10
        np.from_dlpack(array)[...] = 2
        release(struct)
        del array
        assert interop_demo.live_allocations() == 0
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_while_a_thread_releases():
    """The child does not have that thread, which may have held a lock."""
    if why := native.missing():
        pytest.skip(f"a module in C is needed, and none can be compiled: {why}")
    run(
        """
        import os, signal, time, numpy as np, interop_demo, native
        c, array = native.load("threads"), interop_demo.Array.full((10,), 1.0)
        for _ in range(5):
            c.release_elsewhere(*[array.__dlpack__(max_version=(1, 0)) for _ in range(100_000)])
            while not interop_demo.pending_releases():
                time.sleep(0)
            child = os.fork()
            if not child:
                signal.alarm(30)  # the end of a child that waits for ever
                interop_demo.checksum(interop_demo.asarray(np.ones(3)))
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            c.release_elsewhere()
            assert interop_demo.live_allocations() == 1
        """
    )


def test_while_rust_code_writes():
    """A borrow by a thread of the parent does not count in the child, where the memory was borrowed for ever."""
    run(
        """
        import os, threading, time, interop_demo
        image, at_work = interop_demo.Array.full((1500, 1500, 3), 1.0), True

        def blur():
            while at_work:
                interop_demo.blur_(image, 1)

        def is_busy():
            try:
                memoryview(image)
            except interop_demo.ArrayError:
                return True

        thread = threading.Thread(target=blur)
        thread.start()
        while not is_busy():
            time.sleep(0)
        child = os.fork()
        if not child:
            os._exit(bool(is_busy()))
        at_work = False
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_work_for_several_threads():
    """The child has none of the threads that worked for the parent."""
    run(
        """
        import os, signal, interop_demo
        image = interop_demo.Array.full((600, 600, 3), 1.0)
        interop_demo.blur_(image, 1)
        child = os.fork()
        if not child:
            signal.alarm(30)  # the end of a child that waits for ever
            interop_demo.blur_(image, 1)
            interop_demo.edges(image)
            os._exit(interop_demo.checksum(image) != 600 * 600 * 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )
