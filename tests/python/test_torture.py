"""Threads that import, export, read and drop at random, with and without the GIL. `cargo xtask torture` does it for
longer.

In any order of events everything is released, and each foreign struct once.
"""

import gc
import os
import random
import threading
import time

import interop_demo
import numpy as np
import pytest
from capsules import Tensor, release, release_attached, take

SECONDS = float(os.environ.get("INTEROP_TORTURE", "4"))
Array = interop_demo.Array
V1 = {"max_version": (1, 0)}
# What is added to the pool, made from an array in it.
MADE = [
    lambda array: array,
    lambda array: array[::-1],
    lambda array: array[1:],
    np.from_dlpack,
    np.asarray,
    memoryview,
    interop_demo.asarray,
    lambda array: interop_demo.asarray(np.from_dlpack(array)),
    lambda array: interop_demo.asarray(array.__dlpack__(**V1)),
    lambda array: array.__dlpack__(**V1),
    lambda array: array.__dlpack__(copy=True, **V1),
    lambda array: take(array.__dlpack__(**V1)),
    lambda array: interop_demo.edges(np.ones((2, 2, 3), "f4")),
]


class Pool:
    """Objects that all threads take from and add to."""

    def __init__(self, size):
        self.lock, self.things = threading.Lock(), [None] * size

    def swap(self, chance, thing):
        """Replaces an object with this one; the caller drops the old one."""
        place = chance.randrange(len(self.things))
        with self.lock:
            thing, self.things[place] = self.things[place], thing
        return thing

    def array(self, chance):
        """Returns one of the arrays, or a new one."""
        with self.lock:
            arrays = [thing for thing in self.things if isinstance(thing, Array)]
        return chance.choice(arrays) if arrays and chance.random() < 0.8 else Array.full((5, 3), 1.0)


def drop(thing, chance):
    """Releases a struct that a consumer has taken, on this thread or on one that is unknown to Python."""
    if hasattr(thing, "deleter"):
        chance.choice([release, release_attached])(thing)


@pytest.mark.parametrize("threads", [2, 8])
def test_random_work_in_threads(threads):
    pool, failures, end = Pool(40), [], time.monotonic() + SECONDS / 2
    foreign = [Tensor(form=form) for form in ("legacy", "versioned") for _ in range(200)]
    capsules, made = [tensor.capsule() for tensor in foreign], [0] * threads

    def work(number):
        chance = random.Random(number)
        try:
            while time.monotonic() < end:
                array = pool.array(chance)
                if chance.random() < 0.02:
                    with pool.lock:
                        capsule = capsules.pop() if capsules else array
                    array = interop_demo.asarray(capsule)
                    del capsule
                drop(pool.swap(chance, chance.choice(MADE)(array)), chance)
                made[number] += 1
                if chance.random() < 0.01:
                    gc.collect()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS + 60)
    assert not any(worker.is_alive() for worker in workers), "a thread hangs"
    assert not failures, failures
    assert sum(made) > 100 * threads, "hardly anything was done"
    while pool.things:
        drop(pool.things.pop(), random.Random(0))
    interop_demo.live_allocations()  # runs releases that were deferred for a thread with the GIL
    gc.collect()
    released = [tensor.released for tensor in foreign]
    assert (released.count(1), released.count(0)) == (len(foreign) - len(capsules), len(capsules))


def test_a_dict_that_another_thread_changes():
    """It is read as it was at one moment, or refused; without the GIL the two accesses are really concurrent."""
    memory = np.zeros((3, 4))
    interface = {"shape": (3, 4), "typestr": "<f8", "data": (memory.ctypes.data, False), "version": 3}
    failures, end, read = [], time.monotonic() + SECONDS / 4, 0

    def change():
        chance = random.Random(0)
        while time.monotonic() < end:
            interface["strides"] = chance.choice([None, (32, 8)])
            interface[chance.random()] = interface.pop("descr", [("", "<f8")])
            interface["descr"] = [("", "<f8")]
            if len(interface) > 50:
                for key in [key for key in interface if isinstance(key, float)]:
                    del interface[key]

    def look():
        nonlocal read
        try:
            while time.monotonic() < end:
                facts = interop_demo.parse_cai(interface)
                assert (facts["shape"], facts["strides"]) == ((3, 4), (4, 1))
                read += 1
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    workers = [threading.Thread(target=work) for work in (change, look, look)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS + 60)
    assert not failures, failures
    assert read > 100
