"""A trainer that hands its weights to a server after each step: the server reads them in the trainer's memory.

    python trainer.py
    python trainer.py --gpu     # tensors of PyTorch on a GPU
"""

import math
import multiprocessing
import sys

import interop_ipc

if "--gpu" in sys.argv:
    import torch as library  # `torch.from_dlpack` also takes arrays of the host
else:
    import numpy as library

STEPS = 5
SHAPES = {"embedding": (1000, 64), "projection": (64, 64), "bias": (64,)}
COUNT = sum(map(math.prod, SHAPES.values()))


def shared_weights():
    """Weights in memory that other processes can open, which optimizers update in place."""
    if "--gpu" in sys.argv:
        return {name: library.zeros(shape, device="cuda") for name, shape in SHAPES.items()}
    return {name: library.from_dlpack(interop_ipc.empty(shape, "float32")) for name, shape in SHAPES.items()}


def trainer(server):
    # Two sets: the server uses one while the trainer writes the other.
    sets = [shared_weights(), shared_weights()]
    offers = [{}, {}]
    for step in range(STEPS):
        weights = sets[step % 2]
        for offer in offers[step % 2].values():
            # Waits until the server has dropped what it got two steps ago.
            offer.take_back(seconds=30)
        for array in weights.values():
            array[...] = step
        offers[step % 2] = {name: interop_ipc.share(array) for name, array in weights.items()}
        # A parcel is pickled as its bytes. The offers stay in this process.
        server.send((step, offers[step % 2]))
        assert server.recv() == (step, step * COUNT), "the server has seen the weights of this step"
    server.send(None)


def server(trainer):
    while (update := trainer.recv()) is not None:
        step, messages = update
        weights = {name: library.from_dlpack(interop_ipc.open(message)) for name, message in messages.items()}
        total = int(sum(float(array.sum()) for array in weights.values()))
        del weights  # gives them back, so that the trainer can write them again
        trainer.send((step, total))


def main():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=server, args=(theirs,))
    process.start()
    trainer(ours)
    process.join()
    assert process.exitcode == 0
    print(f"{STEPS} steps, {4 * COUNT // 1024} KiB of weights each, read in place")


if __name__ == "__main__":
    main()
