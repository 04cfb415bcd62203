"""The cost of an import on a GPU, compared with its lower bound and with other libraries, measured in one run.

    run.sh speed

Each figure is the median of interleaved rounds. `floor` is the bare call in C (`modules/gpu_floor.c`). `ours` is a
Rust function that takes the array as a typed view of two axes and returns: owned, validated, with stream waits.

`cuda.core` makes the same waits as we do; ours must be faster. nanobind and TVM FFI neither wait nor validate:
compared with the faster of them ours may take 1.3 times as long for PyTorch, and 1.5 times for the others.
"""

import importlib
import statistics
import sys

import driver
import interop_demo
import native
import numpy as np

ROUNDS, TURNS = 41, 2000
# The others release immediately, whatever is queued. `unordered` is ours without order, and `ours` is the default.
COLUMNS = ("floor", "nanobind", "tvm-ffi", "cuda.core", "cupy", "unordered", "ours")


def library(name):
    """Returns a library, or `None` after printing the reason."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library that is installed and does not start counts as missing
        print(f"skipped: {name}: {type(error).__name__}: {error}")
        return None


class Figures:
    """The rounds of a row. Each column is a function that returns nanoseconds."""

    def __init__(self, floor):
        self.floor, self.columns = floor, {}

    def add(self, name, function, *arguments):
        """Adds a column. If the function fails, it prints the reason and adds nothing."""
        try:
            function(*arguments)
        except Exception as error:  # a limitation of another library is no failure here
            print(f"skipped: {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        else:
            self.columns[name] = lambda: function(*arguments)
        return self

    def calls(self, name, function, array):
        return self.add(name, self.floor.calls, function, array, TURNS)

    def ours(self, function, array):
        """Adds the columns for releases in order and for unordered releases."""

        def unordered():
            interop_demo.set_unordered(releases=True)
            try:
                return self.floor.calls(function, array, TURNS)
            finally:
                interop_demo.set_unordered()

        self.add("unordered", unordered)
        return self.calls("ours", function, array)

    def medians(self):
        rounds = {name: [] for name in self.columns}
        for _ in range(ROUNDS):
            for name, run in self.columns.items():
                rounds[name].append(run())
            interop_demo.finish_releases()
            driver.synchronize()
        return {name: statistics.median(times) for name, times in rounds.items()}


class Others:
    """The other libraries that import arrays."""

    def __init__(self):
        self.tvm, self.cupy = library("tvm_ffi"), library("cupy")
        utils = library("cuda.core.utils")
        self.view = utils.StridedMemoryView if utils else None
        self.nanobind = native.load("gpu_arrays") if library("nanobind") else None

    def add_to(self, figures, array):
        if self.nanobind:
            figures.calls("nanobind", self.nanobind.is_square, array)
        if self.tvm:
            figures.calls("tvm-ffi", self.tvm.from_dlpack, array)
        if self.view:
            figures.calls("cuda.core", lambda array: self.view.from_any_interface(array, stream_ptr=-1), array)
        if self.cupy:
            take = self.cupy.from_dlpack if hasattr(array, "__dlpack__") else self.cupy.asarray
            figures.calls("cupy", take, array)
        return figures


def most(found, beside_unordered):
    """The largest allowed time of ours."""
    others = [found[name] * beside_unordered for name in ("nanobind", "tvm-ffi") if name in found]
    return min([*others, found.get("cuda.core", float("inf"))])


def rows(floor, others):
    """Yields `(name, medians, limit of ours)`; the limit is `None` if nothing else does the same."""
    square = np.ones((4, 4), np.float32)
    ours, stream = interop_demo.is_square, ("stream",)
    if torch := library("torch"):
        tensor = torch.from_numpy(square).cuda()
        torch.cuda.synchronize()
        figures = Figures(floor).add("floor", floor.exchange, tensor, TURNS).ours(ours, tensor)
        found = others.add_to(figures, tensor).medians()
        yield "torch, facts of the driver included", found, most(found, 1.3)
        if trusted := getattr(interop_demo, "is_square_trusted", None):
            figures = Figures(floor).add("floor", floor.exchange, tensor, TURNS).ours(trusted, tensor)
            yield "torch, believed", figures.medians(), None
        yield side_stream(floor, torch, tensor)
        yield there_and_back(floor, others, tensor)
    if others.cupy:
        array = others.cupy.asarray(square)
        figures = Figures(floor).add("floor", floor.methods, array, "__dlpack__", TURNS, stream, 1)
        found = others.add_to(figures.ours(ours, array), array).medians()
        yield "CuPy", found, most(found, 1.5)
    if jax := library("jax"):
        array = jax.numpy.asarray(square).block_until_ready()
        figures = Figures(floor).add("floor", floor.methods, array, "__dlpack__", TURNS, stream, 1)
        found = others.add_to(figures.ours(ours, array), array).medians()
        yield "JAX", found, most(found, 1.5)
    if numba := library("numba.cuda"):
        array = numba.to_device(square)
        figures = Figures(floor).add("floor", floor.gets, array, "__cuda_array_interface__", TURNS)
        found = others.add_to(figures.ours(ours, array), array).medians()
        yield "Numba, by its dict", found, most(found, 1.5)


def there_and_back(floor, others, tensor):
    """Passes a tensor to a function that returns one of the same memory. The limit is the time that TVM FFI takes to
    return one.
    """
    figures = Figures(floor).calls("ours", interop_demo._as_it_came, tensor)
    if others.tvm:
        figures.calls("tvm-ffi", others.tvm.get_global_func("testing.echo"), tensor)
    found = figures.medians()
    return "torch in, torch out", found, found.get("tvm-ffi")


def side_stream(floor, torch, tensor):
    """The additional time of an import if PyTorch works on a stream of its own, beside a stream wait."""
    first = driver.stream()

    def on(function, *arguments):
        with torch.cuda.stream(torch.cuda.ExternalStream(first)):
            return function(*arguments)

    # In one column both sides use the default stream; in the other torch works on its own stream.
    figures = Figures(floor).add("floor", floor.edge, first, 1, TURNS)
    figures.calls("same", interop_demo.is_square, tensor)
    figures.add("other", on, floor.calls, interop_demo.is_square, tensor, TURNS)
    found = figures.medians()
    return "a side stream, and a stream wait", {"floor": found["floor"], "ours": found["other"] - found["same"]}, None


def main():
    if why := native.missing():
        sys.exit(f"the floor is compiled where it is measured: {why}")
    floor = native.load("gpu_floor")
    interop_demo.Array.full((1,), 0.0, device="cuda")
    memory = driver.alloc(64)
    facts = statistics.median(floor.pointer_facts(memory, TURNS) for _ in range(ROUNDS))
    results = list(rows(floor, Others()))
    print(f"\n{'nanoseconds':<38}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'must':>10}")
    print(f"{'six facts of a pointer (bench cuda)':<38}{facts:>10.0f}")
    for what, found, limit in results:
        cells = "".join(f"{found[name]:>10.0f}" if name in found else f"{'':>10}" for name in COLUMNS)
        verdict = "" if limit is None else f"{limit:>10.0f} {'holds' if found['ours'] <= limit else 'MISSED'}"
        print(f"{what:<38}{cells}{verdict}")


if __name__ == "__main__":
    main()
