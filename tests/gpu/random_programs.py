"""Random programs of several libraries and threads: arrays are made, passed on by any protocol to any stream, changed, cut,
copied and dropped in an order that nobody wrote down, behind random delays, and what was copied is compared element by element.

A memory has one array through which it is used, the last that it was passed to; those before it are only dropped, at any time.
Memory that went back too early is written by whoever gets it next, and shows in a copy, as what was read too early does.

`STEPS` is how many steps each thread takes (4000), `SEED` begins the numbers (0). A failure names what happened to the memory.
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
# A missing order shows in most walks, and not in all: five were not enough once.
WALKS = 20
# The most that a thread has at a time.
MEMORIES = 8
SHAPES = [(1 << 12,), (64, 96), (7, 33, 64)]


def counting(library, shape, first, **where):
    """Elements that count up from `first`, made by any library that has NumPy's `arange`."""
    return library.arange(first, first + int(np.prod(shape)), dtype=library.float32, **where).reshape(shape)


class Ours:
    """What the libraries have in common: arrays of float32 on a stream; `take` makes one of ours its own."""

    name = "ours"

    def __init__(self, ordinal):
        self.ordinal = ordinal

    def on(self, stream):
        return contextlib.nullcontext()

    def make(self, shape, first, kind):
        """An array, and its elements; the other libraries have one kind of memory."""
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
        """What is read later; here it is on the host at once."""
        return np.from_dlpack(OnlyDLPack(array), device="cpu", copy=True)

    def read(self, copy):
        return copy


class Library(Ours):
    """Any other; its arrays count up."""

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
    """Its arrays are values: a change makes another. It has streams of its own."""

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
    """What the elements must be, the array through which they are used, and those before it."""

    def __init__(self, library, array, values, stream):
        self.library, self.array, self.values, self.stream = library, array, values, stream
        self.before, self.story = [], [f"made by {library.name} on {stream:#x}"]
        # What is JAX's, or was, is a value that nobody changes in place; and it takes compact arrays only.
        self.frozen, self.compact = library.name == "jax", True


class Walk:
    """A thread's own memories and streams."""

    def __init__(self, names, seed, ordinal, ordered, others):
        self.chance, self.ordered, self.others = random.Random(seed), ordered, others
        driver.enter(ordinal)
        # Before JAX starts, which may leave another device's context current.
        self.streams = [driver.stream() for _ in range(3)]
        self.libraries = [LIBRARIES[name](ordinal) for name in names]
        self.ours = self.libraries[0]
        # Memory of the driver's pool that is freed too early may be unmapped, which ends the context; and no library takes
        # what is the host's too as it is.
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
        # Halved often enough, a number is 0, and shows nothing.
        if memory.values.max(initial=1) < 1 or (memory.frozen and memory.library.name != "jax"):
            return
        with memory.library.on(memory.stream):
            self.delay(memory.stream)
            memory.array = memory.library.halve(memory.array, memory.stream)
        memory.values = memory.values * np.float32(0.5)
        memory.compact = memory.compact or memory.library.name == "jax"
        memory.story.append("halved")

    def pass_on(self, memory):
        """From a library to us, or from us to one, for another stream."""
        stream = self.chance.choice(self.streams)
        # Of another thread's libraries, perhaps.
        if memory.library.name == "ours":
            other = self.chance.choice(self.libraries)
            if other.name == "jax" and (memory.frozen or not memory.compact):
                return  # JAX asks for the legacy form, in which nothing read-only goes out
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
        """The array, with one of its protocols."""
        if not self.ordered:
            return OnlyDLPack(array, unordered=True), "__dlpack__ without order"
        ways = ["all", "dlpack", "cai"]
        # Only we heed all that a dict says of streams, or does not say.
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
        """A copy is queued, and looked at when everything around it has gone on."""
        with memory.library.on(memory.stream):
            copy = memory.library.copy(memory.array, memory.stream)
        memory.story.append("copied")
        self.copies.append((memory.library, copy, memory.values.copy(), memory.stream, list(memory.story)))

    def forget(self, memory):
        """One of the arrays that came before."""
        if memory.before:
            memory.before.pop(self.chance.randrange(len(memory.before)))

    def drop(self, memory):
        self.memories.remove(memory)

    def swap(self, memory):
        """With another thread."""
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
    """What was wrong, in all threads together."""
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
        except BaseException as error:  # a thread's own would be lost
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
def released(policy):
    before = interop_demo.set_release_policy(policy)
    try:
        yield
    finally:
        interop_demo.set_release_policy(before)


@pytest.mark.parametrize("policy", ["batched", "after_all_contexts"])
def test_by_other_policies(policy):
    with released(policy):
        assert walk(["ours", "torch"], SEED) == []


def test_on_two_devices():
    if driver.devices() < 2:
        pytest.skip("there is one GPU; arrays on two need two")
    names = ["ours"]
    for name in ("torch", "cupy"):
        with contextlib.suppress(pytest.skip.Exception):
            names.append(LIBRARIES[name](0).name)
    assert walk(names, SEED, ordinals=(0, 1)) == []


def test_without_ordered_releases_it_shows():
    """A control: what we let go of is the library's again at once."""
    with released("immediate"):
        assert any(walk(["ours", "torch"], SEED + more) for more in range(WALKS))


@pytest.mark.parametrize("names", [["ours", "torch"], ["ours", "cupy"]], ids="-".join)
def test_without_order_it_shows(names):
    """The control: nobody asks for order."""
    with released("immediate"):
        assert any(walk(names, SEED + more, ordered=False) for more in range(WALKS))
