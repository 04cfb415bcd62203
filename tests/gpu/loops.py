"""Loops that do not wait: the rate, the time of the host and the memory of 100 turns, compared with PyTorch's in one run.

    run.sh loops            arrays of 256 MB of float32; limits: 0.9 of PyTorch's rate, three times its host time, 2 GB more

`host` is the time of the loop itself, `device` that until its work is done, for one turn. `more` is the device memory that
is in use when the loop ends and was not before. A loop that holds the host to the rate of the device has no limit for `host`.
"""

import ctypes
import importlib.util
import sys
import threading
import time

import driver
import interop_demo

COUNT, TURNS = 64_000_000, 100
COPY = {"copy": True, "max_version": (1, 3)}
HEADER = f"{'microseconds, gigabytes':<46}{'host':>9}{'device':>9}{'more':>8}{'host':>12}{'device':>9}{'more':>8}{'':>10}"


def free_now():
    """The number of free bytes on the device, without a wait."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def settle():
    driver.synchronize()
    interop_demo.finish_releases()


def measured(run, turns, wait=driver.synchronize):
    """The microseconds of the host and of the device for a turn of a loop, and the gigabytes that it holds."""
    settle()
    before, start = free_now(), time.perf_counter()
    run()
    queued, more = time.perf_counter(), before - free_now()
    wait()
    done = time.perf_counter()
    settle()
    return (queued - start) * 1e6 / turns, (done - start) * 1e6 / turns, more / 1e9


def loop(turn, turns=TURNS):
    def run(count):
        for number in range(count):
            turn(number)

    run(4)
    return measured(lambda: run(turns), turns)


def show(name, theirs, ours, held=False):
    most = (float("inf") if held else 3 * theirs[0], theirs[1] / 0.9, theirs[2] + 2.05)
    fits = all(found <= limit for found, limit in zip(ours, most, strict=True))
    figures = "".join(f"{host:>{at}.0f}{device:>9.0f}{more:>8.1f}" for at, (host, device, more) in ((9, theirs), (12, ours)))
    print(f"{name:<46}{figures}  {'holds' if fits else 'MISSED':>8}", flush=True)


def show_cupy():
    """What CuPy does in such a loop, without a limit."""
    if importlib.util.find_spec("cupy") is None:
        return
    import cupy

    array = cupy.ones(COUNT, cupy.float32)
    for name, turn in (("CuPy: a copy", lambda _: array.copy()), ("CuPy: 2 * array", lambda _: 2 * array)):
        host, device, more = loop(turn)
        print(f"{name:<46}{host:>9.0f}{device:>9.0f}{more:>8.1f}", flush=True)
    del array
    cupy.get_default_memory_pool().free_all_blocks()


def on_threads(torch, make_turn, threads=4):
    """A loop on each of several threads with a stream of its own, as one."""
    streams = [torch.cuda.Stream() for _ in range(threads)]
    turns = [make_turn() for _ in range(threads)]

    def run(count):
        def work(stream, turn):
            with torch.cuda.stream(stream):
                for number in range(count):
                    turn(number)

        running = [threading.Thread(target=work, args=pair) for pair in zip(streams, turns, strict=True)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    run(4)
    return measured(lambda: run(TURNS // threads), TURNS)


def rows(torch):
    a = interop_demo.Array.full((COUNT,), 1.0, device="cuda")
    t = torch.ones(COUNT, device="cuda")
    wide = torch.ones((8000, 16000), device="cuda")
    ours_wide = interop_demo.asarray(wide)
    side = [torch.cuda.Stream(), torch.cuda.Stream()]

    def in_turns(work):
        def turn(number):
            with torch.cuda.stream(side[number % 2]):
                work(number)

        return turn

    clone = loop(lambda _: t.clone())
    both = loop(in_turns(lambda _: t.clone()))
    taken = lambda _: torch.from_dlpack(a, copy=True)  # noqa: E731
    dropped = lambda stream: a.__dlpack__(stream=stream, **COPY)  # noqa: E731
    show("a copy for PyTorch, at the limit", clone, loop(taken), held=True)
    show("the same, two streams in turns", both, loop(in_turns(taken)), held=True)
    show("the same, 5 turns, below the limit", loop(lambda _: t.clone(), 5), loop(taken, 5))
    show("a capsule with a copy, dropped", clone, loop(lambda _: dropped(1)))
    handles = [stream.cuda_stream for stream in side]
    show("the same, two streams in turns", both, loop(lambda number: dropped(handles[number % 2])))
    threads = on_threads(torch, lambda: lambda _: t.clone())
    mine = on_threads(torch, lambda: lambda _: dropped(torch.cuda.current_stream().cuda_stream))
    show("the same, four threads", threads, mine)
    show("a copy for PyTorch, four threads", threads, on_threads(torch, lambda: taken), held=True)
    strided = loop(lambda _: wide[:, ::2].contiguous())
    part = ours_wide[:, ::2]
    show("every second column, dropped", strided, loop(lambda _: part.__dlpack__(stream=1, **COPY)))
    double = loop(lambda _: 2 * t)
    show("twice(tensor)", double, loop(lambda _: interop_demo.twice(t)))
    show("twice(array of ours)", double, loop(lambda _: interop_demo.twice(a)))
    full = loop(lambda _: torch.full((COUNT,), 1.0, device="cuda"))
    show("full, in the pool", full, loop(lambda _: interop_demo.Array.full((COUNT,), 1.0, device="pool")))
    sizes = [COUNT, COUNT // 3, COUNT // 2]
    parts = [interop_demo.Array.full((size,), 1.0, device="cuda") for size in sizes]
    tensors = [t[:size] for size in sizes]
    alternating = loop(lambda number: tensors[number % 3].clone())
    copies = loop(lambda number: parts[number % 3].__dlpack__(stream=1, **COPY))
    show("sizes that alternate, dropped", alternating, copies)
    kept = loop_that_keeps(lambda: t.clone())
    show("each tenth copy is kept", kept, loop_that_keeps(lambda: torch.from_dlpack(a, copy=True)), held=True)
    beside = beside_a_kernel(torch, lambda: t.clone())
    show("beside a kernel of 58 ms on another stream", beside, beside_a_kernel(torch, lambda: dropped(1)))


def loop_that_keeps(make):
    kept = []

    def turn(number):
        made = make()
        if number % 10 == 0:
            kept.append(made)
        if len(kept) > 10:
            kept.clear()

    return loop(turn, 80)


def beside_a_kernel(torch, make):
    """50 turns while another stream is busy for 58 ms."""
    other, turns = torch.cuda.Stream(), 50
    make()
    torch.cuda._sleep(1)  # loads the kernel
    rate = getattr(torch.cuda.get_device_properties(0), "clock_rate", 1_700_000)

    def run():
        with torch.cuda.stream(other):
            torch.cuda._sleep(int(58 * rate))
        for _ in range(turns):
            make()

    return measured(run, turns, torch.cuda.default_stream().synchronize)


def a_wait_for_what_comes_after_the_loop(torch):
    """Another stream waits for a value that the loop's stream writes after the loop. Nothing may wait for that stream."""
    a = interop_demo.Array.full((COUNT,), 1.0, device="cuda")
    flag = driver.alloc(64)
    driver.write(flag, bytearray(64))
    early, word = driver.stream(), ctypes.c_uint64
    for name, work in (
        ("copies that are dropped", lambda: a.__dlpack__(stream=1, **COPY)),
        ("copies for PyTorch", lambda: torch.from_dlpack(a, copy=True)),
        ("twice(array of ours)", lambda: interop_demo.twice(a)),
        ("full, in the pool", lambda: interop_demo.Array.full((COUNT,), 1.0, device="pool")),
    ):
        driver.write(flag, bytearray(64))
        driver.call("cuStreamWaitValue32_v2", word(early), word(flag), ctypes.c_uint32(7), ctypes.c_uint(1))
        start = time.perf_counter()
        for _ in range(60):
            work()
        driver.call("cuStreamWriteValue32_v2", word(1), word(flag), ctypes.c_uint32(7), ctypes.c_uint(0))
        driver.synchronize(1)
        driver.synchronize(early)
        seconds = time.perf_counter() - start
        settle()
        print(f"a wait for what comes after: {name:<17}{seconds * 1e3:>9.0f} ms  {'holds' if seconds < 5 else 'MISSED':>8}", flush=True)


def seventy_percent(torch):
    """A loop that fills the card to 70 % with PyTorch's tensors and passes them through ours."""
    total = torch.cuda.get_device_properties(0).total_memory
    kept = [torch.ones(COUNT, device="cuda") for _ in range(int(total * 0.7) // (4 * COUNT))]
    start = time.perf_counter()
    for _ in range(3):
        for tensor in kept:
            torch.from_dlpack(interop_demo.asarray(tensor), copy=True)
            interop_demo.twice(tensor)
    driver.synchronize()
    each = (time.perf_counter() - start) * 1e6 / (3 * len(kept))
    settle()
    start = time.perf_counter()
    for _ in range(3):
        for tensor in kept:
            tensor.clone()
            2 * tensor
    driver.synchronize()
    theirs = (time.perf_counter() - start) * 1e6 / (3 * len(kept))
    print(f"{len(kept)} tensors, 70 % of the card: {theirs:.0f} and {each:.0f}  {'holds' if each < 2 * theirs else 'MISSED':>8}", flush=True)


def main():
    if importlib.util.find_spec("torch") is None:
        sys.exit("skipped: torch is what loops are compared with")
    import torch

    torch.cuda.init()
    print(f"{'':<46}{'PyTorch':>26}{'ours':>29}")
    print(HEADER)
    show_cupy()
    rows(torch)
    torch.cuda.empty_cache()
    a_wait_for_what_comes_after_the_loop(torch)
    torch.cuda.empty_cache()
    seventy_percent(torch)


if __name__ == "__main__":
    main()
