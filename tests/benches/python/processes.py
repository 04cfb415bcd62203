"""An array to another process and an answer back, beside what a user would write instead.

    cargo xtask bench-python processes
    python processes.py --gpu              # where PyTorch has a GPU

A cell is the median of its rounds, in microseconds. The columns take turns. Each round sends an array that the other process has
seen before; it reads the last element, and answers. PyTorch takes part if it is installed.

On a GPU, the array is a tensor of PyTorch. In the first row the other process keeps another tensor of the block, in the others it has
nothing open between two rounds. In the last one, the tensor is a new one in each round.
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
        target = answer_on_gpu if isinstance(self, OnGpu) else answer
        context.Process(target=target, args=(name, self.orders, self.answers), daemon=True).start()

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


class OnGpu(Column):
    """As a column, with tensors in memory of a GPU."""

    def message(self, tensor):
        return tensor if self.name == "PyTorch" else bytes(interop_ipc.share(tensor))

    def prepare(self, row):
        import torch

        # The allocator gives both the same block.
        self.first, self.tensor = (torch.full((1 << 14,), 7.0, device="cuda") for _ in range(2))
        if row == "known block":
            self.orders.put(("keep", self.message(self.first)))
            self.answers.get()

        def send():
            if row == "new tensor":
                self.tensor = torch.full((1 << 14,), 7.0, device="cuda")
            return ("read", self.message(self.tensor))

        self.send = send

    def clean(self):
        self.orders.put(("drop", None))
        self.answers.get()
        self.send = self.first = self.tensor = None


def answer_on_gpu(column, orders, answers):
    """The other process."""
    import torch

    kept = []
    while (order := orders.get()) is not None:
        word, message = order
        if word == "drop":
            kept.clear()
            answers.put(None)
            continue
        tensor = message if column == "PyTorch" else torch.from_dlpack(interop_ipc.open(message))
        if word == "keep":
            kept.append(tensor)
        value = float(tensor[-1])
        del tensor, message, order
        answers.put(value)


def columns():
    spawn = multiprocessing.get_context("spawn")
    found = [Column(name, spawn) for name in READ if name != "PyTorch"]
    try:
        import torch.multiprocessing
    except ImportError:
        return found
    return [*found[:-1], Column("PyTorch", torch.multiprocessing.get_context("spawn")), found[-1]]


def on_gpu():
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    return [OnGpu(name, context) for name in ("PyTorch", "ours")]


def main():
    rounds = 1 if "--once" in sys.argv else 200
    is_on_gpu = "--gpu" in sys.argv
    taking_part = on_gpu() if is_on_gpu else columns()
    sizes = {row: row for row in ("known block", "idle block", "new tensor")} if is_on_gpu else SIZES
    print("| | " + " | ".join(column.name for column in taking_part) + " |")
    print("|---" * (1 + len(taking_part)) + "|")
    for title, size in sizes.items():
        for column in taking_part:
            column.prepare(size)
            column.round()
        most = rounds if is_on_gpu else max(1, rounds // (1 + size // (8 << 20)))
        times = [[column.round() for column in taking_part] for _ in range(most)]
        print(f"| {title} | " + " | ".join(f"{statistics.median(of):.0f}" for of in zip(*times)) + " |")
        for column in taking_part:
            column.clean()
    for column in taking_part:
        column.orders.put(None)


if __name__ == "__main__":
    main()
