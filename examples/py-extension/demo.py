"""Passes a photograph between Python and Rust without moving its pixels.

The Rust side is one struct with `#[derive(CudaArray)]` (src/image.rs). This program passes the struct's memory from
library to library and lets each of them work on it. It compares addresses after every hop: an array that was copied
has another address. Run it with `cargo xtask demo`.
"""

import argparse
import gc
import os
import sys
import time
from pathlib import Path

# The demo uses memory that the host can access. Without this, JAX looks for other devices and prints messages.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import interop_demo as rust
import jax
import numpy as np
from scipy import ndimage
from skimage import data, io

PROTOCOLS = {
    "exchange": "DLPack exchange table",
    "dlpack_versioned": "DLPack 1.x capsule",
    "dlpack": "DLPack 0.x capsule",
    "cai": "CUDA Array Interface",
    "buffer": "buffer protocol",
    "numpy": "NumPy's C struct",
}


# The blur replaces each pixel by the mean of the square around it, whose side is `2 * RADIUS + 1`.
RADIUS = 4


def aligned(rows):
    """Returns the rows as a table, the first one as its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


class Witness:
    """Wraps a producer and records which protocol a consumer uses to take its memory."""

    def __init__(self, producer):
        self.producer = producer
        self.protocol = "none"

    def __dlpack_device__(self):
        return self.producer.__dlpack_device__()

    def __dlpack__(self, **wishes):
        capsule = self.producer.__dlpack__(**wishes)
        # The capsule's name states which struct it contains, whatever the consumer asked for.
        self.protocol = "dlpack_versioned" if '"dltensor_versioned"' in repr(capsule) else "dlpack"
        return capsule


class Journey:
    """The hops so far: source, target, protocol, address, and whether the memory was copied."""

    def __init__(self):
        self.rows = []

    def hop(self, source, target, protocol, before, after):
        """Records one hop and prints whether the address stayed the same."""
        copied = before != after
        self.rows.append((source, target, PROTOCOLS.get(protocol, protocol), hex(after), "COPIED" if copied else "no"))
        print(f"    address before {before:#x}, after {after:#x}: {'COPIED' if copied else 'the same memory'}")

    def skip(self, source, target, why):
        """Records a hop that this computer cannot show."""
        self.rows.append((source, target, "-", why, "-"))
        print(f"    {why}")

    def copies(self):
        """Returns the number of hops that copied the memory."""
        return sum(row[-1] == "COPIED" for row in self.rows)

    def table(self):
        """Returns a table of all hops, one per line."""
        rows = [("from", "to", "protocol", "address", "copied?"), *self.rows]
        return aligned(rows)


def say(number, text):
    """Prints the title of a part of the journey."""
    print(f"\n{number}. {text}")


def numpy_address(array):
    """Returns the address of the first element of a NumPy array."""
    return array.__array_interface__["data"][0]


def to_numpy(journey, source, producer):
    """Takes memory of Rust as a NumPy array."""
    witness = Witness(producer)
    array = np.from_dlpack(witness)
    journey.hop(source, "NumPy", witness.protocol, rust.describe(producer)["data"], numpy_address(array))
    return array


def into_rust(journey, source, array, address):
    """Passes the memory of another library to Rust, which every function of the extension does with its argument."""
    seen = rust.describe(array)
    journey.hop(source, "Rust", seen["protocol"], address, seen["data"])


def paint(journey, photo):
    """Allocates an image in Rust, views it in NumPy, and copies the photograph into it: the only copy of the pixels."""
    say(1, "Rust allocates an image; NumPy writes the photograph into it")
    canvas = rust.Array.full(photo.shape, 0.0, "<f4")
    view = to_numpy(journey, "Rust", canvas)
    view[...] = photo
    return canvas, view


def edit(journey, view):
    """Lets Rust change the pixels of the NumPy array."""
    say(2, "Rust takes the NumPy array as its struct `Image`, blurs it and darkens it, in place")
    into_rust(journey, "NumPy", view, numpy_address(view))
    before = view.mean()
    rust.blur_(view, RADIUS)
    rust.scale_(view, 0.8)
    print(f"    NumPy sees the change in its own array: mean {before:.4f} before, {view.mean():.4f} after")


def trace_edges(journey, canvas):
    """Lets Rust allocate a new image and return it."""
    say(3, "Rust computes the edges into a new `Image` and returns it; NumPy takes it over")
    return to_numpy(journey, "Rust (a new image)", rust.edges(canvas))


def through_jax(journey, canvas):
    """Passes the memory to JAX, computes there, and passes it back to Rust."""
    say(4, "JAX takes the same memory, and hands it back to Rust")
    witness = Witness(canvas)
    array = jax.dlpack.from_dlpack(witness)
    address = array.unsafe_buffer_pointer()
    journey.hop("Rust", "JAX", witness.protocol, rust.describe(canvas)["data"], address)
    into_rust(journey, "JAX", array, address)
    print(f"    the sum of all pixels, computed by JAX: {float(array.sum()):.1f}, by Rust: {rust.checksum(array):.1f}")


def through_torch(journey, canvas):
    """Passes the memory to PyTorch, if it is installed."""
    say(5, "PyTorch takes the same memory, and hands it back to Rust")
    try:
        import torch
    except ImportError:
        return journey.skip("Rust", "PyTorch", "not installed")
    witness = Witness(canvas)
    tensor = torch.from_dlpack(witness)
    journey.hop("Rust", "PyTorch", witness.protocol, rust.describe(canvas)["data"], tensor.data_ptr())
    into_rust(journey, "PyTorch", tensor, tensor.data_ptr())


def through_cupy(journey, photo):
    """Copies the photograph to a GPU and passes it to CuPy, if both are available."""
    say(6, "CuPy takes memory that Rust allocated on the GPU, and hands it back to Rust")
    try:
        import cupy
    except ImportError:
        return journey.skip("Rust (GPU)", "CuPy", "not installed")
    try:
        canvas = rust.Array.full(photo.shape, 0.0, "<f4", device="cuda")
    except (BufferError, RuntimeError) as error:
        print(f"    {error}")
        return journey.skip("Rust (GPU)", "CuPy", "no GPU here")
    witness = Witness(canvas)
    array = cupy.from_dlpack(witness)
    journey.hop("Rust (GPU)", "CuPy", witness.protocol, rust.describe(canvas)["data"], array.data.ptr)
    array[...] = cupy.asarray(photo)
    into_rust(journey, "CuPy", array, array.data.ptr)


def milliseconds(*functions):
    """Returns the shortest time of each function. They run in turns, so that all meet the same conditions."""
    best = [float("inf")] * len(functions)
    for _ in range(15):
        for at, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[at] = min(best[at], (time.perf_counter() - start) * 1e3)
    return best


def times(photo):
    """Returns a table of the times of NumPy, or SciPy, and of Rust for the same work, in place on arrays of NumPy.

    The factor is 1, because repeated products would become numbers that some processors multiply slowly.
    """
    one, transposed = np.float32(1), np.ones((2000, 2000), "f4").T
    window = (2 * RADIUS + 1, 2 * RADIUS + 1, 1)
    blurred = [photo.copy(), photo.copy()]
    work = [
        ("multiply the photograph", lambda: np.multiply(photo, one, out=photo), lambda: rust.scale_(photo, 1)),
        (
            "multiply 16 MB, transposed",
            lambda: np.multiply(transposed, one, out=transposed),
            lambda: rust.scale_(transposed, 1),
        ),
        ("sum 16 MB in double", lambda: transposed.sum(dtype="f8"), lambda: rust.checksum(transposed)),
        (
            "blur the photograph (SciPy)",
            lambda: ndimage.uniform_filter(blurred[0], window, output=blurred[0]),
            lambda: rust.blur_(blurred[1], RADIUS),
        ),
    ]
    rows = [("work", "NumPy", "Rust", "Rust / NumPy")]
    for what, by_numpy, by_rust in work:
        numpy, ours = milliseconds(by_numpy, by_rust)
        rows.append((what, f"{numpy:.2f} ms", f"{ours:.2f} ms", f"{ours / numpy:.2f}"))
    return aligned(rows)


def save(folder, name, picture):
    """Saves a picture as an image file."""
    path = folder / name
    io.imsave(path, (np.clip(picture, 0, 1) * 255).round().astype(np.uint8), check_contrast=False)
    print(f"    {path}")


def travel(journey, folder):
    """Runs the whole journey. All its arrays are released when it returns."""
    photo = (data.chelsea() / 255).astype(np.float32)
    height, width, _ = photo.shape
    print(f"The photograph: a cat called Chelsea, {width} × {height} pixels, RGB, float32, {photo.nbytes / 1e6:.1f} MB.")
    canvas, view = paint(journey, photo)
    edit(journey, view)
    edges = trace_edges(journey, canvas)
    through_jax(journey, canvas)
    through_torch(journey, canvas)
    through_cupy(journey, photo)
    print("\nHow long it takes, in place on arrays of NumPy; the best of 15 rounds:\n")
    print(times(photo.copy()))
    print("\nThe pictures:")
    save(folder, "before.png", photo)
    save(folder, "after.png", view)
    save(folder, "edges.png", edges / edges.max())


def all_returned():
    """Waits until every export has been released. JAX releases its export on another thread."""
    deadline = time.monotonic() + 5
    while rust.live_exports() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return not rust.live_exports()


def main():
    """Runs the journey and prints the result, which is also the exit status."""
    parser = argparse.ArgumentParser(description="Hand a photograph from library to library without copying it.")
    parser.add_argument("--out", type=Path, default=Path("target/demo"), help="the folder for the pictures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)

    journey = Journey()
    travel(journey, folder)
    print(f"\nWhat went where:\n\n{journey.table()}\n")
    returned = all_returned()
    print(f"After everything was dropped: {rust.live_exports()} exports of Rust memory are still alive.")
    if journey.copies() or not returned:
        sys.exit(f"FAILED: {journey.copies()} hops copied, {rust.live_exports()} exports were never released.")
    print("Every hop kept the address, and all memory was given back: nothing was copied, nothing leaked.")


if __name__ == "__main__":
    main()
