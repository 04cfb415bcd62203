"""Random programs with several libraries and threads, with random delays; each copy is compared element by element.

Arrays are created, passed on through any protocol to any stream, changed, sliced, copied and dropped in random order.
Each memory is used through one array, the one it was passed to last; the earlier ones are only dropped, at any time.
Memory that is released too early is overwritten by its next owner. That shows in a copy, and so does memory that was
read too early.

`STEPS` is the number of steps of each thread (4000); `SEED` is the first seed (0). A failure prints the history of
the memory.
"""

import contextlib
import os
import queue
import random
import threading

import driver
import interop_demo
import numpy as np
import pytest
from partners import OnlyCAI, OnlyDLPack

STEPS = int(os.environ.get("STEPS", "4000"))
SEED = int(os.environ.get("SEED", "0"))
THREADS = 4
# A missing wait shows in most walks, but not in all: five were once not enough.
WALKS = 20
# The largest number of memories that a thread has at a time.
MEMORIES = 8
SHAPES = [(1 << 12,), (64, 96), (7, 33, 64)]


def counting(library, shape, first, **where):
    """Elements that count up from `first`, made by any library that has NumPy's `arange`."""
    return library.arange(first, first + int(np.prod(shape)), dtype=library.float32, **where).reshape(shape)


class Ours:
    """The interface of a library: float32 arrays on a stream; `take` imports one of our arrays."""

    name = "ours"

    def __init__(self, ordinal):
        self.ordinal = ordinal

    def on(self, stream):
        return contextlib.nullcontext()

    def make(self, shape, first, kind):
        """Returns an array and its elements. The other libraries have one kind of memory."""
        array = interop_demo.Array.full(shape, float(first), device=kind, ordinal=self.ordinal)
        return array, np.full(shape, first, np.float32)

    def halve(self, array, stream):
        interop_demo.scale_(array, 0.5, stream=stream)
        return array

    def cut(self, array, key):
        return array[key]

    def take(self, array, stream):
        return interop_demo.asarray(array, stream=stream)

    def copy(self, array, stream):
        """Returns a copy that is read later; here it is on the host immediately."""
        return np.from_dlpack(OnlyDLPack(array), device="cpu", copy=True)

    def read(self, copy):
        return copy


class Library(Ours):
    """Any other library; its arrays count up."""

    def __init__(self, ordinal):
        super().__init__(ordinal)
        self.library = pytest.importorskip(self.name, exc_type=ImportError)

    def make(self, shape, first, kind):
        return self.counting(shape, first), counting(np, shape, first)

    def counting(self, shape, first):
        return counting(self.library, shape, first)

    def take(self, array, stream):
        return self.library.from_dlpack(array)


class Torch(Library):
    name = "torch"

    def on(self, stream):
        return self.library.cuda.stream(self.library.cuda.ExternalStream(stream, device=self.ordinal))

    def counting(self, shape, first):
        return counting(self.library, shape, first, device=f"cuda:{self.ordinal}")

    def halve(self, array, stream):
        return array.mul_(0.5)

    def copy(self, array, stream):
        return array.clone()

    def read(self, copy):
        return copy.cpu().numpy()


class CuPy(Library):
    name = "cupy"

    def on(self, stream):
        both = contextlib.ExitStack()
        both.enter_context(self.library.cuda.Device(self.ordinal))
        both.enter_context(self.library.cuda.ExternalStream(stream, self.ordinal))
        return both

    def halve(self, array, stream):
        array *= np.float32(0.5)
        return array

    def copy(self, array, stream):
        return array.copy()

    def read(self, copy):
        return copy.get()


class Jax(Library):
    """Its arrays are immutable: a change creates another array. JAX manages its own streams."""

    name = "jax"

    def __init__(self, ordinal):
        super().__init__(ordinal)
        try:
            self.device = self.library.devices("cuda")[ordinal]
        except RuntimeError as error:
            pytest.skip(f"JAX has no GPU: {error}")

    def counting(self, shape, first):
        with self.library.default_device(self.device):
            return counting(self.library.numpy, shape, first)

    def halve(self, array, stream):
        return array * np.float32(0.5)

    def take(self, array, stream):
        return self.library.dlpack.from_dlpack(array)

    def copy(self, array, stream):
        return array + 0

    def read(self, copy):
        return np.asarray(copy)


LIBRARIES = {library.name: library for library in (Ours, Torch, CuPy, Jax)}


class Memory:
    """The expected elements, the array through which they are used, and the arrays before it."""

    def __init__(self, library, array, values, stream):
        self.library, self.array, self.values, self.stream = library, array, values, stream
        self.before, self.story = [], [f"made by {library.name} on {stream:#x}"]
        # A JAX array, also a former one, is never changed in place. JAX accepts only contiguous arrays.
        self.frozen, self.compact = library.name == "jax", True


class Walk:
    """The memories and streams of a thread."""

    def __init__(self, names, seed, ordinal, ordered, others):
        self.chance, self.ordered, self.others = random.Random(seed), ordered, others
        driver.enter(ordinal)
        # Before JAX starts, because JAX may leave another device's context current.
        self.streams = [driver.stream() for _ in range(3)]
        self.libraries = [LIBRARIES[name](ordinal) for name in names]
        self.ours = self.libraries[0]
        # Pool memory that is freed too early may be unmapped, which ends the context. No library accepts
        # host-accessible memory as it is.
        self.kinds = ["cuda", "pool"] if ordered else ["cuda"]
        self.kinds += ["pinned", "managed"] if names == ["ours"] else []
        self.memories, self.copies, self.wrong, self.compared = [], [], [], 0
        self.often = {self.make: 3, self.change: 4, self.pass_on: 8, self.cut: 1}
        self.often |= {self.copy: 4, self.forget: 3, self.drop: 1, self.swap: 1}

    def step(self):
        do = self.chance.choices(list(self.often), list(self.often.values()))[0]
        if len(self.memories) == MEMORIES and do == self.make:
            do = self.drop
        if do == self.make or not self.memories:
            self.make()
        else:
            do(self.chance.choice(self.memories))
        if len(self.copies) > 30:
            self.compare()

    def make(self):
        library, stream = self.chance.choice(self.libraries), self.chance.choice(self.streams)
        first = self.chance.randrange(1, 1000)
        with library.on(stream):
            self.delay(stream)
            array, values = library.make(self.chance.choice(SHAPES), first, self.chance.choice(self.kinds))
        self.memories.append(Memory(library, array, values, stream))

    def delay(self, stream):
        if self.chance.random() < 0.25:
            driver.sleep(stream, 1)

    def change(self, memory):
        # A number that was halved often enough is 0 and shows no error.
        if memory.values.max(initial=1) < 1 or (memory.frozen and memory.library.name != "jax"):
            return
        with memory.library.on(memory.stream):
            self.delay(memory.stream)
            memory.array = memory.library.halve(memory.array, memory.stream)
        memory.values = memory.values * np.float32(0.5)
        memory.compact = memory.compact or memory.library.name == "jax"
        memory.story.append("halved")

    def pass_on(self, memory):
        """Passes the array from a library to us, or from us to a library, for another stream."""
        stream = self.chance.choice(self.streams)
        # The library may be one of another thread.
        if memory.library.name == "ours":
            other = self.chance.choice(self.libraries)
            if other.name == "jax" and (memory.frozen or not memory.compact):
                return  # JAX requests the legacy form, in which no read-only array is exported
            with other.on(stream):
                array, protocol = self.given(memory.array, other)
                array = other.take(array, stream)
            memory.library, memory.frozen = other, memory.frozen or other.name == "jax"
        else:
            with memory.library.on(memory.stream):
                array, protocol = self.given(memory.array, self.ours)
                array = self.ours.take(array, stream)
            memory.library = self.ours
        memory.before.append(memory.array)
        memory.array, memory.stream = array, stream
        memory.story.append(f"to {memory.library.name} on {stream:#x} by {protocol}")

    def given(self, array, to):
        """Returns the array with only one of its protocols."""
        if not self.ordered:
            return OnlyDLPack(array, unordered=True), "__dlpack__ without order"
        ways = ["all", "dlpack", "cai"]
        # Only we respect each stream that a dict states or leaves out.
        way = self.chance.choice(ways if to.name == "ours" else ways[:2])
        if way == "cai" and hasattr(array, "__cuda_array_interface__"):
            return OnlyCAI(array), way
        return (OnlyDLPack(array), way) if way == "dlpack" else (array, way)

    def cut(self, memory):
        if memory.library.name == "jax" or memory.values.size < 1000:
            return
        step = self.chance.choice([1, 2])
        key = (slice(self.chance.randrange(2), None, step), ...)
        memory.before.append(memory.array)
        memory.array, memory.values, memory.compact = memory.library.cut(memory.array, key), memory.values[key], False
        memory.story.append(f"cut by {key[0]}")

    def copy(self, memory):
        """Queues a copy. It is compared after other work has gone on."""
        with memory.library.on(memory.stream):
            copy = memory.library.copy(memory.array, memory.stream)
        memory.story.append("copied")
        self.copies.append((memory.library, copy, memory.values.copy(), memory.stream, list(memory.story)))

    def forget(self, memory):
        """Drops one of the earlier arrays."""
        if memory.before:
            memory.before.pop(self.chance.randrange(len(memory.before)))

    def drop(self, memory):
        self.memories.remove(memory)

    def swap(self, memory):
        """Exchanges a memory with another thread."""
        self.drop(memory)
        with contextlib.suppress(queue.Empty):
            self.memories.append(self.others.get_nowait())
        self.others.put(memory)

    def compare(self):
        for library, copy, values, stream, story in self.copies:
            with library.on(stream):
                driver.synchronize(stream)
                found = library.read(copy)
            if not np.array_equal(found, values):
                self.wrong.append(f"{found!r} and not {values!r}: {'; '.join(story)}")
        self.compared += len(self.copies)
        self.copies = []


def walk(names, seed, ordinals=(0,), ordered=True):
    """Returns the errors of all threads."""
    wrong, compared, errors = [], [], []
    others = {ordinal: queue.Queue() for ordinal in ordinals}

    def run(number):
        try:
            ordinal = ordinals[number % len(ordinals)]
            one = Walk(names, seed * THREADS + number, ordinal, ordered, others[ordinal])
            for _ in range(STEPS):
                one.step()
                if one.wrong:
                    break
            one.compare()
            wrong.extend(one.wrong)
            compared.append(one.compared)
        except BaseException as error:  # an exception of a thread would be lost
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]
    assert wrong or sum(compared) > STEPS * THREADS // 10, "hardly anything was compared"
    return wrong


@pytest.mark.parametrize(
    "names", [["ours"], *(["ours", name] for name in LIBRARIES if name != "ours"), list(LIBRARIES)], ids="-".join
)
def test_every_copy_is_right(names):
    assert walk(names, SEED) == []


@contextlib.contextmanager
def unordered():
    interop_demo.set_unordered(releases=True)
    try:
        yield
    finally:
        interop_demo.set_unordered()


def test_by_the_other_policy():
    before = interop_demo.set_release_policy("after_all_contexts")
    try:
        assert walk(["ours", "torch"], SEED) == []
    finally:
        interop_demo.set_release_policy(before)


def test_on_two_devices():
    if driver.devices() < 2:
        pytest.skip("there is one GPU; arrays on two need two")
    names = ["ours"]
    for name in ("torch", "cupy"):
        with contextlib.suppress(pytest.skip.Exception):
            names.append(LIBRARIES[name](0).name)
    assert walk(names, SEED, ordinals=(0, 1)) == []


def test_without_ordered_releases_it_shows():
    """A counterexample: memory that we drop returns to its library immediately."""
    with unordered():
        assert any(walk(["ours", "torch"], SEED + more) for more in range(WALKS))


@pytest.mark.parametrize("names", [["ours", "torch"], ["ours", "cupy"]], ids="-".join)
def test_without_order_it_shows(names):
    """The counterexample: no stream waits are requested."""
    with unordered():
        assert any(walk(names, SEED + more, ordered=False) for more in range(WALKS))
