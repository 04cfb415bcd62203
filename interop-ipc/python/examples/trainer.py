"""A trainer that hands its weights to a server after each step: the server reads them in the trainer's memory.

    python trainer.py

With PyTorch on the host, `torch.from_dlpack` takes the place of `numpy.from_dlpack`, in both processes.
"""

import multiprocessing

import interop_ipc
import numpy as np

STEPS = 5
SHAPES = {"embedding": (1000, 64), "projection": (64, 64), "bias": (64,)}


def shared_weights():
    """Weights in memory that other processes can open, which optimizers update in place."""
    return {name: np.from_dlpack(interop_ipc.empty(shape, "float32")) for name, shape in SHAPES.items()}


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
        expected = step * sum(array.size for array in weights.values())
        assert server.recv() == (step, expected), "the server has seen the weights of this step"
    server.send(None)


def server(trainer):
    while (update := trainer.recv()) is not None:
        step, messages = update
        weights = {name: np.from_dlpack(interop_ipc.open(message)) for name, message in messages.items()}
        total = int(sum(array.sum(dtype="float64") for array in weights.values()))
        del weights  # gives them back, so that the trainer can write them again
        trainer.send((step, total))


def main():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=server, args=(theirs,))
    process.start()
    trainer(ours)
    process.join()
    size = sum(4 * np.prod(shape) for shape in SHAPES.values()) // 1024
    print(f"{STEPS} steps, {size} KiB of weights each, read in place")


if __name__ == "__main__":
    main()
