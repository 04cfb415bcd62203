"""The time of a call of an exported function, beside the PyO3 function, `custom_op`, and PyTorch's and JAX's own operators.

The host's time for one call with six elements: the minimum of many rounds. In each round every row is called, so that the two calls of a
ratio meet the same clock rate and the same neighbours. The last lines compare with the limits.
"""

import sys
import time

try:
    import tvm_ffi
except ImportError:
    print("skipped: no tvm_ffi")
    sys.exit()

import hello_functions
import hello_functions.for_torch
import torch

ROUNDS, CALLS = 60, 200


def best(calls, sync):
    """The least time of a call of each row, by its name. A time is the mean of some calls; the rows take turns."""
    times = {name: float("inf") for name in calls}
    for call in calls.values():
        for _ in range(50):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            sync()
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            times[name] = min(times[name], (time.perf_counter_ns() - start) / CALLS)
    sync()
    return times


def custom(device):
    """The same functions by `torch.library.custom_op`."""

    @torch.library.custom_op(f"hello_custom::scale_{device}_", mutates_args=("x",))
    def scale_(x: torch.Tensor, factor: float) -> None:
        hello_functions.scale_(x, factor)

    @torch.library.custom_op(f"hello_custom::scaled_{device}", mutates_args=())
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return hello_functions.scaled(x, factor)

    return scale_, scaled


def rows(device):
    x = torch.zeros(6, device=device)
    to = torch.zeros_like(x)
    operators, (custom_in_place, custom_new) = torch.ops.hello_functions, custom(device)
    yield "function in place", lambda: hello_functions.scale_(x, 1.0)
    yield "function into another array", lambda: hello_functions.scale_into(x, to, 1.0)
    yield "function with a new tensor", lambda: hello_functions.scaled(x, 1.0)
    if device == "cuda":
        import hello_cuda

        yield "PyO3 in place", lambda: hello_cuda.double_(x)
        yield "PyO3 with a new tensor", lambda: hello_cuda.double(x)
    else:
        import interop_demo

        yield "PyO3 in place", lambda: interop_demo.scale_(x, 1.0)
        yield "PyO3 with a new tensor", lambda: interop_demo.twice(x)
    yield "function into torch.empty", lambda: hello_functions.scale_into(x, torch.empty(6, device=device), 1.0)
    yield "operator in place", lambda: operators.scale_(x, 1.0)
    yield "operator with a new tensor", lambda: operators.scaled(x, 1.0)
    # As an operator without a declared gradient: the dispatcher looks for one itself.
    yield "operator without a gradient, new", lambda: operators._scaled(x, 1.0)
    recorded = torch.zeros(6, device=device, requires_grad=True)
    yield "operator, gradient recorded", lambda: operators.scaled(recorded, 1.0)
    yield "x * 1.0, gradient recorded", lambda: recorded * 1.0
    yield "custom_op in place", lambda: custom_in_place(x, 1.0)
    yield "custom_op with a new tensor", lambda: custom_new(x, 1.0)
    yield "torch.mul(out=)", lambda: torch.mul(x, 1.0, out=to)
    yield "x.mul_", lambda: x.mul_(1.0)
    yield "x * 1.0", lambda: x * 1.0
    # As an operator of `export!`: by the name, so Python looks it up and parses its arguments.
    yield "torch.ops.aten.mul", lambda: torch.ops.aten.mul(x, 1.0)


def jax_rows():
    try:
        import jax
        from hello_functions.for_jax import scaled
    except ImportError:
        return
    x = jax.numpy.zeros(6)
    ours, theirs = jax.jit(lambda x: scaled(x, 2.0)), jax.jit(lambda x: x * 2.0)
    yield "JAX, jitted function", lambda: ours(x)
    yield "JAX, jitted x * 2", lambda: theirs(x)


def main():
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        sync = torch.cuda.synchronize if device == "cuda" else lambda: None
        calls = dict(rows(device))
        if device == devices[-1]:
            calls |= dict(jax_rows())
        found = best(calls, sync)
        for name, time_of in found.items():
            print(f"{device:<5} {name:<32} {time_of:>9.0f} ns")
        new = "operator with a new tensor"
        limits = [("operator in place", "x.mul_", 1.15), (new, "x * 1.0", 1.4), (new, "torch.ops.aten.mul", 1.15)]
        if device == "cuda":
            limits += [("function in place", "PyO3 in place", 1.2), ("function in place", "torch.mul(out=)", 0.8)]
        for own, other, limit in limits:
            ratio = found[own] / found[other]
            outcome = "holds" if ratio <= limit else "MISSED"
            print(f"{device} {own} / {other}: {ratio:.2f}, at most {limit} {outcome}")


if __name__ == "__main__":
    main()
