"""An array to another process and an answer back, beside what a user would write instead.

    cargo xtask bench-python processes

A cell is the median of its rounds, in microseconds. The columns take turns. Each round sends an array that the other process has
seen before; it reads the last element, and answers. PyTorch takes part if it is installed.
"""

import multiprocessing
import statistics
import sys
import time
from multiprocessing.shared_memory import SharedMemory

import interop_ipc
import numpy as np

SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def shared_by_hand(message):
    """A user's own way: a name, a shape and an element type, without a check or a lease."""
    name, shape, dtype = message
    memory = SharedMemory(name)
    value = float(np.ndarray(shape, dtype, memory.buf)[-1])
    memory.close()
    return value


READ = {
    "NumPy, pickled": lambda array: float(array[-1]),
    "SharedMemory by hand": shared_by_hand,
    "PyTorch": lambda tensor: float(tensor[-1]),
    "ours": lambda message: float(np.from_dlpack(interop_ipc.open(message))[-1]),
}


def answer(column, orders, answers):
    """The other process."""
    while (message := orders.get()) is not None:
        answers.put(READ[column](message))


class Column:
    """A process that answers, and what it is sent."""

    def __init__(self, name, context):
        self.name, self.context = name, context
        self.orders, self.answers = context.SimpleQueue(), context.SimpleQueue()
        context.Process(target=answer, args=(name, self.orders, self.answers), daemon=True).start()

    def prepare(self, size):
        """Makes the function that returns what is sent in each round."""
        count = size // 4
        if self.name == "ours":
            array = np.from_dlpack(interop_ipc.empty(count, "float32"))
            array[-1] = 7
            self.send = lambda: bytes(interop_ipc.share(array))
        elif self.name == "SharedMemory by hand":
            self.memory = SharedMemory(create=True, size=size)
            np.ndarray((count,), "float32", self.memory.buf)[-1] = 7
            self.send = lambda: (self.memory.name, (count,), "float32")
        elif self.name == "PyTorch":
            import torch

            tensor = torch.zeros(count).share_memory_()
            tensor[-1] = 7
            self.send = lambda: tensor
        else:
            array = np.zeros(count, "float32")
            array[-1] = 7
            self.send = lambda: array

    def clean(self):
        self.send = None
        if self.name == "SharedMemory by hand":
            self.memory.close()
            self.memory.unlink()

    def round(self):
        start = time.perf_counter()
        self.orders.put(self.send())
        assert self.answers.get() == 7
        return 1e6 * (time.perf_counter() - start)


def columns():
    spawn = multiprocessing.get_context("spawn")
    found = [Column(name, spawn) for name in READ if name != "PyTorch"]
    try:
        import torch.multiprocessing
    except ImportError:
        return found
    return [*found[:-1], Column("PyTorch", torch.multiprocessing.get_context("spawn")), found[-1]]


def main():
    rounds = 1 if "--once" in sys.argv else 200
    taking_part = columns()
    print("| | " + " | ".join(column.name for column in taking_part) + " |")
    print("|---" * (1 + len(taking_part)) + "|")
    for title, size in SIZES.items():
        for column in taking_part:
            column.prepare(size)
            column.round()
        times = [[column.round() for column in taking_part] for _ in range(max(1, rounds // (1 + size // (8 << 20))))]
        print(f"| {title} | " + " | ".join(f"{statistics.median(of):.0f}" for of in zip(*times)) + " |")
        for column in taking_part:
            column.clean()
    for column in taking_part:
        column.orders.put(None)


if __name__ == "__main__":
    main()
