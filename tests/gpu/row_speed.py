"""Kernels in which a team of threads owns a row beside PyTorch's, with limits.

    run.sh row_speed

Each array has 256 MB. A time is the best of several rounds of launches in turns; a rate counts each byte that is read or written once.
"""

import statistics
import sys

import row_kernels_module as rows

COLUMNS = (100, 512, 1000, 1024, 1025, 4000, 4096, 32768)
BYTES, ROUNDS, LAUNCHES = 1 << 28, 5, 5
# The limits: the least rate relative to PyTorch's in each row, and of the geometric mean of a kernel and a type; that of rms_norm and
# sum of float32 relative to `copy_`, for rows of 512 columns and more: a little less where the weights
# have another alignment than a row, and less where a team of 512 threads reads most of a row again, and the weights, from the second cache.
EACH, MEAN, COPY = 0.9, 1.0, 0.95
LESS = {("rms_norm", 1025): 0.9, ("rms_norm", 32768): 0.65}


def best(torch, *calls):
    """The best time of each call in seconds."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, found in zip(calls, times, strict=True):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            for _ in range(LAUNCHES):
                call()
            after.record()
            after.synchronize()
            found.append(before.elapsed_time(after) / LAUNCHES / 1e3)
    return [min(found) for found in times]


def judged(text, holds):
    print(f"{text} {'holds' if holds else 'MISSED'}", flush=True)


def team(kernel, d, size):
    """The threads of a row. Softmax passes three times over it, so the guide advises fewer: one warp, or half of several."""
    threads = rows.threads(d, size)
    return threads // 2 if kernel == "softmax" and 32 < threads < 512 else threads


def asked(n, threads):
    """A launch with so many threads for a row, as `LaunchSize::for_teams`."""
    teams = 128 // threads if threads <= 32 else 1
    return -(-n // teams), threads, teams


def kernels(torch, x):
    """The calls of each kernel: PyTorch's and ours, and the arrays that are moved."""
    functional, (n, d) = torch.nn.functional, x.shape
    softmax_launch = asked(n, team("softmax", d, x.element_size()))
    weight, bias = (torch.randn(d, device="cuda").to(x.dtype) for _ in range(2))
    out, sums = torch.empty_like(x), x.new_empty(n)
    yield "rms_norm", lambda: functional.rms_norm(x, (d,), weight, 1e-5), lambda: rows.rms_norm(x, weight, out, 1e-5), 2
    yield "softmax", lambda: torch.softmax(x, -1), lambda: rows.softmax(x, out, softmax_launch), 2
    yield "layer_norm", lambda: functional.layer_norm(x, (d,), weight, bias, 1e-5), lambda: rows.layer_norm(x, weight, bias, out, 1e-5), 2
    yield "sum", lambda: x.sum(-1), lambda: rows.row_sum(x, sums), 1


def main():
    try:
        import torch
    except ImportError:
        sys.exit("skipped: no PyTorch")
    for dtype in (torch.float32, torch.bfloat16):
        name, size = str(dtype).removeprefix("torch."), dtype.itemsize
        means = {}
        for d in COLUMNS:
            x = torch.randn(BYTES // (d * size), d, device="cuda").to(dtype)
            moved, out = x.numel() * size, torch.empty_like(x)
            for kernel, theirs, ours, arrays in kernels(torch, x):
                library, own, copy = best(torch, theirs, ours, lambda: out.copy_(x))
                ratio, rate = library / own, arrays * moved / own / (2 * moved / copy)
                means.setdefault(kernel, []).append(ratio)
                text = f"{name:9} {kernel:10} {len(x):8} x {d:5}, {team(kernel, d, size):3} threads: {arrays * moved / own / 1e9:5.0f} GB/s, "
                judged(f"{text}{ratio:5.2f} of PyTorch's rate (at least {EACH})", ratio >= EACH)
                if size == 4 and d >= 512 and kernel in ("rms_norm", "sum"):
                    least = LESS.get((kernel, d), COPY)
                    judged(f"{text}{rate:5.2f} of the rate of copy_ (at least {least})", rate >= least)
            del x, out
        for kernel, ratios in means.items():
            mean = statistics.geometric_mean(ratios)
            judged(f"{name:9} {kernel:10} geometric mean: {mean:5.2f} of PyTorch's rate (at least {MEAN})", mean >= MEAN)


if __name__ == "__main__":
    main()
