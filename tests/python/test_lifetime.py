"""Threads, the GIL, and the garbage collector (R96, R98, bugs 37, 43, 47, 50 to 54)."""

import ctypes
import gc
import queue
import sys
import threading
import time

import interop_demo
import numpy as np
import pytest
from capsules import Tensor, python_function, release, release_attached, take
from scripts import run

Array = interop_demo.Array


def in_threads(count, work):
    """Runs `work(number)` in `count` threads at once and raises any exception of theirs."""
    failures, start = [], threading.Barrier(count)

    def body(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]


# Threads


@pytest.mark.parametrize(
    "copy",
    [
        lambda array: interop_demo._in_a_vector(array),
        lambda array: interop_demo._in_a_vector(array.transpose(1, 0, 2)),
        lambda array: interop_demo.asarray(array).__dlpack__(copy=True, max_version=(1, 0)),
    ],
    ids=["an argument", "a strided argument", "copy=True"],
)
def test_other_threads_run_during_a_long_copy(copy):
    """The other thread gets the GIL only where it is released, because nobody asks for it after a time slice."""
    array, turns, done = np.ones((512, 4096, 3), "f4"), [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1
            time.sleep(0)

    thread, interval = threading.Thread(target=count), sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread.start()
        while not turns[0]:
            time.sleep(0.001)
        before = turns[0]
        copy(array)
        assert turns[0] > before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def test_work_in_many_threads():
    outside, inside = np.ones((16, 16)), Array.full((16, 16), 1.0)

    def work(number):
        for _ in range(300):
            assert interop_demo.describe(outside)["shape"] == (16, 16)
            assert np.from_dlpack(inside)[number, number] == 1
            assert interop_demo.checksum(interop_demo.asarray(outside)[number]) == 16
            inside.__dlpack__(), inside.__dlpack__(max_version=(1, 0), copy=True)

    in_threads(8, work)


def test_what_one_thread_imports_another_drops():
    """Bugs 43, 53."""
    handed = queue.Queue()

    def work(number):
        for step in range(200):
            if number % 2:
                handed.put(interop_demo.asarray(np.full(10, step)))
                handed.put(np.from_dlpack(Array.full((10,), step)))
                handed.put(Array.full((10,), step).__dlpack__())
            else:
                for _ in range(3):
                    handed.get()

    in_threads(8, work)
    assert handed.empty()


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
def test_deleters_in_threads_without_the_lock(version):
    """R96, bug 51: many at once, each on memory that others share."""
    array = Array.full((10, 10), 1.0)
    before = sys.getrefcount(array)
    structs = [[take(array[number:].__dlpack__(max_version=version)) for _ in range(100)] for number in range(8)]
    structs += [[take(array.__dlpack__(max_version=version)) for _ in range(100)]]
    assert interop_demo.live_exports() == 900

    def work(number):
        for struct in structs[number]:
            release(struct)

    in_threads(9, work)
    assert interop_demo.live_exports() == 0
    interop_demo.live_allocations()  # runs deferred releases
    assert interop_demo.pending_releases() == 0
    assert sys.getrefcount(array) == before


def raw_thread(struct):
    """Releases a struct in a thread that is unknown to Python, and waits for it while holding the GIL."""
    python = ctypes.PyDLL(None)  # its functions are called without releasing the GIL
    thread = ctypes.c_ulong()
    start, join = python.pthread_create, python.pthread_join
    start.argtypes = [ctypes.POINTER(ctypes.c_ulong), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
    assert start(thread, None, struct.deleter, ctypes.addressof(struct)) == 0
    assert join(thread, None) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="no Linux: `pthread_create` is called by its name in libc")
def test_a_deleter_never_waits_for_the_lock():
    """Bug 54: this thread holds the GIL and waits for the releasing thread, which would be a deadlock."""
    before = interop_demo.live_allocations()
    array = Array.full((1000,), 1.0)
    struct = take(array.__dlpack__())
    del array
    raw_thread(struct)
    assert interop_demo.live_exports() == 0
    assert interop_demo.pending_releases() == 1
    assert interop_demo.live_allocations() == before
    assert interop_demo.pending_releases() == 0


CAPSULE, RECORDING = Tensor().capsule(), interop_demo.Recording(np.ones(2, "f4"), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="no Linux: `pthread_create` is called by its name in libc")
@pytest.mark.parametrize(
    "drain",
    [
        lambda: interop_demo.live_allocations(),
        lambda: interop_demo.describe(np.ones(2)),
        lambda: Array.full((2,), 0).__dlpack__(),
        lambda: Array.full((2,), 0).__dlpack_device__(),
        lambda: interop_demo.asarray(np.ones(2)),
        lambda: interop_demo.describe(CAPSULE),
        lambda: RECORDING.__dlpack__(),
        lambda: bytes(Array.full((2,), 0)),
    ],
    ids=["live_allocations", "describe", "__dlpack__", "__dlpack_device__", "asarray", "capsule", "by hand", "buffer"],
)
def test_what_had_to_wait_is_released_soon(drain):
    array = Array.full((1000,), 1.0)
    references = sys.getrefcount(array)
    raw_thread(take(array.__dlpack__(max_version=(1, 0))))
    assert interop_demo.pending_releases() == 1
    assert sys.getrefcount(array) == references + 1
    drain()
    assert interop_demo.pending_releases() == 0
    assert sys.getrefcount(array) == references


def test_the_lock_and_a_foreign_deleter():
    """Foreign memory is exported again and released without the GIL: its deleter still runs."""
    tensor = Tensor()
    struct = take(interop_demo.asarray(tensor.capsule()).__dlpack__(max_version=(1, 0)))
    assert tensor.released == 0
    release(struct)
    interop_demo.live_allocations()
    assert tensor.released == 1


def test_two_interpreters():
    """`PyGILState_Check` always returns true after a second interpreter existed; deleters must not rely on it."""
    run(
        """
        import interop_demo
        from capsules import release, take

        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        other = interpreters.create()
        for round in range(20):
            array = interop_demo.Array.full((4,), 1.0)
            struct = take(array.__dlpack__())
            del array
            release(struct)
            assert interop_demo.pending_releases() == 1
            assert interop_demo.live_allocations() == 0
        """
    )


# The garbage collector


def test_under_a_busy_collector():
    """Bug 47: wrappers and tensors are dropped in either order while the collector runs at each step."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for step in range(300):
            tensor = np.arange(6.0)
            wrapper = interop_demo.asarray(tensor)
            view = np.from_dlpack(wrapper)
            if step % 2:
                del tensor, wrapper
            else:
                del wrapper, tensor
            assert view.sum() == 15
    finally:
        gc.set_threshold(*threshold)


def test_cycles_through_python_are_collected():
    """Bug 50: an object that holds an array and is held by the array's consumer is collected."""

    class Node:
        pass

    node = Node()
    node.itself = node
    node.array = Array.full((10,), 1.0)
    node.view = np.from_dlpack(node.array)
    node.again = interop_demo.asarray(node.view)
    node.capsule = node.again.__dlpack__(max_version=(1, 0))
    assert interop_demo.live_exports() == 2
    del node
    gc.collect()
    assert interop_demo.live_exports() == 0


def test_references_are_let_go_at_once():
    """Without a cycle nothing waits for the collector."""
    gc.disable()
    try:
        before = interop_demo.live_allocations()
        array = Array.full((10,), 1.0)
        view = np.from_dlpack(array)[2:]
        capsule = interop_demo.asarray(view).__dlpack__(max_version=(1, 0))
        interop_demo.describe(capsule)
        del array, view, capsule
        assert interop_demo.live_allocations() == before
    finally:
        gc.enable()


CHAINS = {
    "ours": "interop_demo.asarray(array)",
    "numpy-in-between": "interop_demo.asarray(np.from_dlpack(array))",
    "buffers-in-between": "interop_demo.asarray(np.asarray(array))",
    "capsules": "interop_demo.asarray(array.__dlpack__(max_version=(1, 0)))",
    "on-the-host": "array.relabel_as_host()",
}


@pytest.mark.parametrize("step", CHAINS.values(), ids=CHAINS)
def test_long_chains_end(step):
    """An array that is passed on many times is a chain of owners; its release must not recurse through the chain."""
    run(
        f"""
        import threading
        import interop_demo, numpy as np

        def work():
            array = interop_demo.Array.full((4,), 1.0)
            for _ in range(3000):
                array = {step}
            assert array.shape == (4,)
            del array
            # What a release left behind would show in the next one.
            for _ in range(3):
                interop_demo.asarray(np.ones(3))

        threading.stack_size(1 << 18)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert interop_demo.live_allocations() == interop_demo.live_exports() == 0
        """
    )


def test_a_chain_ends_with_the_exception_that_is_on_its_way():
    array, released = Array.full((4,), 1.0), []

    class Tells(np.ndarray):
        def __del__(self):
            released.append(len(released))

    with pytest.raises(KeyError, match="on its way"):
        for _ in range(100):
            array = interop_demo.asarray(np.asarray(array).view(Tells))
        chain = [array]
        del array
        try:
            raise KeyError("on its way")
        finally:
            chain.clear()
    assert len(released) >= 100


def test_classes_without_end_are_forgotten():
    """Also classes that reuse one address; the cache entry of a destroyed class has a dead reference to it."""
    run(
        """
        import gc, weakref
        import interop_demo, numpy as np

        def import_of_a_new_class():
            class New(np.ndarray):
                pass
            interop_demo.describe(np.zeros(1).view(New))

        gc.freeze()
        for _ in range(10_000):
            import_of_a_new_class()
            gc.collect()
        gc.unfreeze()
        dead = [it for it in gc.get_objects() if type(it) is weakref.ref and it() is None]
        assert len(dead) < 5000, len(dead)
        """
    )


def test_references_to_modules_and_singletons_stay_as_they_are():
    """Bug 37. The interpreter's method cache holds references to the names of its entries, so it is cleared before
    each count: entries of earlier tests disappear when others replace them.
    """
    forget = python_function("PyType_ClearCache", ctypes.c_uint)
    watched = [
        None, True, False, (), "", 0, 1, Ellipsis, sys, np, interop_demo, ctypes, sys.modules, Array, np.ndarray,
        BufferError, interop_demo.ArrayError, "max_version", "__dlpack__", "stream",
    ]
    source, array = np.ones((2, 3)), Array.full((2, 3), 1.0)

    def everything():
        interop_demo.describe(source)
        interop_demo.asarray(source)[0].__dlpack__(max_version=(1, 0), copy=None, stream=None, dl_device=(1, 0))
        release_attached(take(array.__dlpack__()))
        np.from_dlpack(array)
        interop_demo.parse_cai({"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None})
        for wrong in (
            lambda: interop_demo.describe(3),
            lambda: array.__dlpack__(dl_device=(2, 0)),
            lambda: array.__dlpack__(copied=1),
        ):
            try:
                wrong()
            except (TypeError, BufferError):
                pass
        hasattr(array, "__cuda_array_interface__")

    everything()
    gc.collect()
    forget()
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(1000):
        everything()
    gc.collect()
    forget()
    after = [sys.getrefcount(value) for value in watched]
    grown = {
        repr(value)[:40]: (was, now)
        for value, was, now in zip(watched, before, after, strict=True)
        if abs(now - was) > 100
    }
    assert not grown
