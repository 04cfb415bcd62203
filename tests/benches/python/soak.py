"""Runs millions of round trips between NumPy and Rust, and checks that the memory of the process does not grow.

    cargo xtask soak-python
"""

import argparse
import gc
import sys
import time

import interop_demo
import numpy as np

# The growth in bytes that is allowed, because the allocators of Python and of the system vary this much.
PLAY = 1 << 20


def resident():
    """Returns the current resident memory of the process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def trips(count):
    """Runs imports, exports with consumed and unconsumed capsules, and failing calls."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    wrong = array.astype(np.float64)
    for number in range(count):
        ours = interop_demo.asarray(array)
        np.from_dlpack(ours)
        ours.__dlpack__(max_version=(1, 0))
        if number % 16 == 0:
            ours.__dlpack__()
            try:
                interop_demo.is_square(wrong)
            except interop_demo.ArrayError:
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", nargs="?", type=float, default=10.0)
    total = int(parser.parse_args().millions * 1_000_000)
    if not sys.platform.startswith("linux"):
        sys.exit("the memory of the process is read from /proc, which only Linux has")
    step = max(total // 10, 1)
    trips(step)  # lets pools and caches fill
    gc.collect()
    start, clock = resident(), time.monotonic()
    for done in range(step, total, step):
        trips(min(step, total - done))
        grown = resident() - start
        print(f"{done + step:>12,} round trips {grown / 1024:>+9.0f} KiB {time.monotonic() - clock:>7.1f} s", flush=True)
        if grown > PLAY:
            sys.exit(f"the process has grown by {grown} bytes")
    if (exports := interop_demo.live_exports()) != 0:
        sys.exit(f"{exports} exports are alive")


if __name__ == "__main__":
    main()
