"""Runs the GPU features of the extension for compute-sanitizer, without a test runner and without other libraries."""

import gc

import driver
import interop_demo

Array = interop_demo.Array

for kind in ("cuda", "pool", "pinned", "managed"):
    for dtype in ("<f4", "<f8", "<f2", "bfloat16", "<i4", "|u1"):
        array = Array.full((37, 41), 2, dtype, device=kind)
        interop_demo.scale_(array, 2.0)
        interop_demo.scale_(array[::-2, ::3], 1.5, stream=driver.stream())
        assert interop_demo.checksum(array[::2]) > 0
        assert interop_demo.checksum(interop_demo.asarray(array)) > 0
        copy = interop_demo.asarray(array.__dlpack__(copy=True, max_version=(1, 0)))
        assert interop_demo.checksum(copy) == interop_demo.checksum(array)
        del array, copy
for shape in ((), (0,), (1,), (3, 0, 2), (300_001,)):
    array = Array.full(shape, 1.0, device="cuda")
    interop_demo.scale_(array, 2.0)
    interop_demo.checksum(array)
    del array
gc.collect()
assert interop_demo.finish_releases() == 0
assert interop_demo.live_allocations() == 0
print("done")
