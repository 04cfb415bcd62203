"""The speed of copies of device arrays compared with PyTorch's, measured in one run.

    run.sh copies           the limits are those for an H200

`ours` copies for a consumer (`copy=True`; compared with `clone()`), for the host (compared with `.cpu().numpy()`),
and into memory owned by Rust (`tests/benches/device_copies.rs`; compared with `.contiguous()`). Each figure is the median
of interleaved rounds.
"""

import ctypes
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

import driver
import interop_demo
import numpy as np

ROUNDS, COPIES = 9, 20
BENCH = Path(__file__).resolve().parent.parent / "benches" / "device_copies"
COPY = {"copy": True, "max_version": (1, 0), "stream": 1}


def layouts(torch):
    """Yields `(name, tensor)`, each with 256 MB of elements. The Rust benchmark uses the same names."""
    new = lambda *shape: torch.ones(shape, device="cuda")  # noqa: E731
    yield "contiguous", new(8192, 8192)
    yield "transposed, 2 axes", new(8192, 8192).t()
    yield "transposed, 3 axes", new(256, 512, 512).permute(2, 1, 0)
    yield "transposed, 4 axes", new(64, 64, 128, 128).permute(3, 2, 1, 0)
    yield "channels last to first", new(64, 512, 512, 4).permute(0, 3, 1, 2)
    yield "every second column", new(8192, 16384)[:, ::2]
    yield "padded rows", new(8192, 8200)[:, :8192]
    yield "padded short rows", new(1 << 20, 72)[:, :64]


def medians(columns, rounds=ROUNDS):
    """The functions return milliseconds."""
    found = {name: [] for name in columns}
    for _ in range(rounds):
        for name, run in columns.items():
            found[name].append(run())
            interop_demo.finish_releases()
    return {name: statistics.median(times) for name, times in found.items()}


def queued(work):
    """The milliseconds of device time for one of many queued calls."""
    work()
    driver.synchronize()
    start = time.perf_counter()
    for _ in range(COPIES):
        work()
    driver.synchronize()
    return (time.perf_counter() - start) * 1e3 / COPIES


def host_time(work):
    """The milliseconds until a call returns, with an idle device and memory that was allocated before."""
    times = []
    for _ in range(COPIES):
        driver.synchronize()
        start = time.perf_counter()
        kept = work()
        times.append((time.perf_counter() - start) * 1e3)
        del kept
    return statistics.median(times)


def finished(work):
    """The milliseconds of a call that waits for the device."""
    driver.synchronize()
    start = time.perf_counter()
    kept = work()
    taken = (time.perf_counter() - start) * 1e3
    del kept
    return taken


def for_consumers(torch):
    for name, tensor in layouts(torch):
        ours = interop_demo.asarray(tensor)
        found = medians({"torch": lambda: queued(tensor.clone), "ours": lambda: queued(lambda: ours.__dlpack__(**COPY))})
        yield f"copy=True, 256 MB, {name}", found, 1 / 0.9


def for_the_host_to_queue(torch):
    for name, count in (("16 elements", 16), ("256 MB", 1 << 26)):
        tensor = torch.ones(count, device="cuda")
        ours = interop_demo.asarray(tensor)
        found = medians({"torch": lambda: host_time(tensor.clone), "ours": lambda: host_time(lambda: ours.__dlpack__(**COPY))})
        yield f"host time of copy=True, {name}", found, 1.5


def for_the_host(torch):
    base = torch.ones(4096, 8192, device="cuda")
    for name, tensor in (
        ("contiguous", base[:2048]),
        ("every second column", base[:, ::2]),
        ("transposed", base[:2048].t()),
        ("padded rows", base[:, :4096]),
        ("transposed, 3 axes", base[:2048].view(256, 256, 256).permute(2, 1, 0)),
    ):
        ours = interop_demo.asarray(tensor)
        columns = {
            "torch": lambda: finished(lambda: tensor.cpu().numpy()),
            "ours": lambda: finished(lambda: np.from_dlpack(ours, device="cpu", copy=True)),
        }
        yield f"to the host, 64 MB, {name}", medians(columns), 1.1


def owned(torch):
    if not BENCH.exists():
        print(f"skipped: no bench of owned imports at {BENCH}")
        return
    lines = subprocess.run([BENCH, "--bench"], capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    ours = {name: float(taken) for taken, _, name in (line.partition("\t") for line in lines) if name}
    for name, tensor in layouts(torch):
        # `contiguous()` of a contiguous tensor returns the tensor itself.
        work = tensor.clone if tensor.is_contiguous() else tensor.contiguous
        yield f"owned import, 256 MB, {name}", {"ours": ours[name], **medians({"torch": lambda: queued(work)})}, 1 / 0.8
    base = torch.ones(4096, 8192)
    for name, tensor in (
        ("contiguous", torch.ones(4096, 4096)),
        ("transposed", torch.ones(4096, 4096).t()),
        ("every second column", base[:, ::2]),
        ("padded rows", torch.ones(4096, 4104)[:, :4096]),
    ):
        name = f"from the host, {name}"
        # `cuda()` keeps the strides of a dense tensor, but an owned import is in C order.
        found = medians({"torch": lambda: queued(lambda: tensor.contiguous().cuda())}, 5)
        yield f"owned import, 64 MB, {name}", {"ours": ours[name], **found}, 1.1


def keep_memory_of_the_pool():
    """Makes the device's pool keep its memory when the host synchronizes, as PyTorch's own allocator does."""
    pool, most = driver.answer("cuDeviceGetDefaultMemPool", 0), ctypes.c_uint64((1 << 64) - 1)
    driver.call("cuMemPoolSetAttribute", ctypes.c_uint64(pool), 4, ctypes.byref(most))


def show(rows):
    for what, found, most in rows:
        rate = f"{2 * (1 << 28) / found['ours'] / 1e9:>9.2f} TB/s" if ", 256 MB, " in what else f"{'':>14}"
        verdict = "holds" if found["ours"] <= most * found["torch"] else "MISSED"
        print(f"{what:<56}{found['torch']:>10.4f}{found['ours']:>10.4f}{rate}{most:>8.2f}x {verdict}", flush=True)


def main():
    if importlib.util.find_spec("torch") is None:
        sys.exit("skipped: torch is what copies are compared with")
    import torch

    print(f"{'milliseconds':<56}{'torch':>10}{'ours':>10}{'':>14}{'must':>9}")
    torch.cuda.init()
    for part in (for_consumers, for_the_host_to_queue, for_the_host, owned):
        show(part(torch))
    keep_memory_of_the_pool()
    print("with a pool that keeps its memory (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD):")
    for part in (for_consumers, for_the_host_to_queue):
        show(part(torch))


if __name__ == "__main__":
    main()
