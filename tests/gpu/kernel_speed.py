"""The speed of the extension's kernels compared with PyTorch's, on one tensor in one run, and the host time of the
calls.

    run.sh kernel_speed

Rates are for 256 MB of float32, the median of interleaved rounds. A byte that is read and written counts twice.
"""

import importlib
import statistics
import sys
import time

import driver
import interop_demo

ROUNDS, BYTES = 15, 256 << 20
COUNT = BYTES // 4
# The limits: the minimal rate relative to PyTorch's, and the maximal host time relative to that of PyTorch's call.
RATE, HOST = 0.9, 1.5


def layouts(torch):
    """Tensors of `COUNT` elements by name."""

    def new(*shape):
        return torch.ones(shape, device="cuda")

    yield "contiguous", new(COUNT)
    yield "2 axes, transposed", new(8192, COUNT // 8192).T
    yield "3 axes, transposed", new(256, 512, COUNT >> 17).permute(2, 0, 1)
    yield "4 axes, transposed", new(64, 128, 128, COUNT >> 20).permute(3, 1, 0, 2)
    yield "every second column", new(8192, COUNT // 4096)[:, ::2]
    yield "padded rows", new(8192, COUNT // 8192 + 32)[:, :-32]
    yield "padded rows, odd", new(8192, COUNT // 8192 + 1)[:, :-1]
    yield "one element on", new(COUNT + 1)[1:]
    yield "half precision", torch.ones(2 * COUNT, device="cuda", dtype=torch.float16)
    yield "bytes", torch.ones(4 * COUNT, device="cuda", dtype=torch.uint8)


def on_device(torch, work):
    """The seconds of device time for one call."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3


def to_the_end(_torch, work):
    """The seconds until a call that waits for its result returns."""
    driver.synchronize()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def on_host(_torch, work, times=100):
    """The seconds of host time for one of many calls that queue work and return."""
    driver.synchronize()
    start = time.perf_counter()
    kept = [work() for _ in range(times)]
    took = (time.perf_counter() - start) / times
    driver.synchronize()
    del kept
    return took


def compare(torch, measure, *works):
    """The median time of each function, measured in interleaved rounds."""
    for work in works:
        work()
    rounds = [[measure(torch, work) for work in works] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


class Bare:
    """Memory allocated with `cuMemAlloc`."""

    def __init__(self, count):
        self.address = driver.alloc(count)

    def __del__(self):
        driver.free(self.address)


def rate_row(what, ours, theirs, bytes):
    verdict = "holds" if theirs / ours >= RATE else "MISSED"
    print(f"{what:<44}{bytes / ours / 1e9:>10.0f}{bytes / theirs / 1e9:>10.0f}{theirs / ours:>8.2f} {verdict}")


def host_row(what, ours, theirs):
    verdict = "holds" if ours / theirs <= HOST else "MISSED"
    print(f"{what:<44}{ours * 1e6:>10.1f}{theirs * 1e6:>10.1f}{ours / theirs:>8.2f} {verdict}")


def rates(torch, stream):
    print(f"{'GB/s of 256 MB':<44}{'ours':>10}{'torch':>10}{'ratio':>8} must: {RATE}")
    for what, tensor in layouts(torch):
        factor = 1 if tensor.dtype == torch.uint8 else 1.0
        ours, theirs = compare(
            torch,
            on_device,
            lambda: interop_demo.scale_(tensor, 1.0, stream=stream),
            lambda: tensor.mul_(factor),
        )
        rate_row(f"in place, {what}", ours, theirs, 2 * BYTES)
        if tensor.dtype == torch.float32:
            ours, theirs = compare(
                torch,
                to_the_end,
                lambda: interop_demo.checksum(tensor, stream=stream),
                lambda: tensor.sum().item(),
            )
            rate_row(f"sum, {what}", ours, theirs, BYTES)
        del tensor
        torch.cuda.empty_cache()


def host_times(torch, stream):
    print(f"\n{'microseconds on the host':<44}{'ours':>10}{'torch':>10}{'ratio':>8} must: {HOST}")
    small, large = torch.ones(16, device="cuda"), torch.ones(COUNT // 16, device="cuda")
    for what, tensor in (("16 elements", small), ("16 MB", large)):
        scale = compare(
            torch,
            on_host,
            lambda: interop_demo.scale_(tensor, 1.0, stream=stream),
            lambda: tensor.mul_(1.0),
        )
        host_row(f"scale_, {what}", *scale)
    own = interop_demo.Array.full((16,), 1.0, device="cuda")
    host_row(
        "scale_ of our own array", *compare(torch, on_host, lambda: interop_demo.scale_(own, 1.0), lambda: small.mul_(1.0))
    )
    found = compare(torch, to_the_end, lambda: interop_demo.checksum(small, stream=stream), lambda: small.sum().item())
    host_row("checksum of 16 elements, to the host", *found)
    for count in (16, COUNT // 16):
        bare, cuda, pool, theirs = compare(
            torch,
            lambda torch, work: on_host(torch, work, 8),
            lambda: Bare(4 * count),
            lambda: interop_demo.Array.full((count,), 1.0, device="cuda"),
            lambda: interop_demo.Array.full((count,), 1.0, device="pool"),
            lambda: torch.full((count,), 1.0, device="cuda"),
        )
        interop_demo.finish_releases()
        host_row(f"full of {4 * count} bytes, device='pool'", pool, theirs)
        # PyTorch has no such memory; this is the time of the driver's call itself.
        print(f"{'the same in plain memory; cuMemAlloc alone':<44}{cuda * 1e6:>10.1f}{bare * 1e6:>10.1f}")


def main():
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        sys.exit(f"the rates are compared with those of PyTorch: {error}")
    driver.library()
    with torch.cuda.stream(torch.cuda.Stream()):
        stream = torch.cuda.current_stream().cuda_stream
        rates(torch, stream)
        host_times(torch, stream)


if __name__ == "__main__":
    main()
