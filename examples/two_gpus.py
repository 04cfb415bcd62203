"""All-reduces a derived Rust struct on each of two GPUs in place, with torch.distributed and with CuPy.

Each GPU has its own process. Both libraries use the struct's own memory, and NCCL writes the sums into it.
"""

import os
import sys

N = 1 << 20


def rank(rank, world, port, results):
    import cupy
    import interop_demo
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    cupy.cuda.Device(rank).use()
    array = interop_demo.Array.full((N,), float(rank + 1), "<f4", device="cuda", ordinal=rank)
    assert array.__dlpack_device__() == (2, rank), array.__dlpack_device__()
    address = interop_demo.describe(array)["data"]
    lines = []

    # PyTorch: the tensor uses the struct's memory, and the sum is written there.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl", rank=rank, world_size=world)
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == address and tensor.device.index == rank
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    lines.append(("torch.distributed", interop_demo.checksum(array) / N))

    # CuPy: the same memory again. Every element is 3 now.
    from cupy.cuda import nccl

    identity = [nccl.get_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(identity)
    communicator = nccl.NcclCommunicator(world, identity[0], rank)
    view = cupy.from_dlpack(array)
    assert view.data.ptr == address
    stream = cupy.cuda.get_current_stream()
    communicator.allReduce(view.data.ptr, view.data.ptr, N, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
    stream.synchronize()
    lines.append(("cupy.cuda.nccl", interop_demo.checksum(array) / N))
    dist.destroy_process_group()
    results.put((rank, address, lines))


def main():
    import importlib.util
    import multiprocessing
    import socket

    world = 2
    if missing := [name for name in ("torch", "cupy") if importlib.util.find_spec(name) is None]:
        print(f"skipped: {' and '.join(missing)} not installed")
        return 0
    import torch

    if torch.cuda.device_count() < world:
        print(f"skipped: needs {world} GPUs, found {torch.cuda.device_count()}")
        return 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=rank, args=(at, world, port, results)) for at in range(world)]
    for process in processes:
        process.start()
    said = sorted(results.get(timeout=240) for _ in processes)
    for process in processes:
        process.join(30)
    expected = {"torch.distributed": 3.0, "cupy.cuda.nccl": 6.0}
    for at, _, lines in said:
        for library, mean in lines:
            print(f"GPU {at}: every element is {mean:.0f} after the all-reduce of {library}")
            if mean != expected[library]:
                return 1
    return max(process.exitcode or 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main())
