"""cuda.core did not accept pinned buffers as kernel arguments (NVIDIA/cuda-python#715).

Here memory of each kind goes through the same call with the same result. The Rust part is in `tests/cuda`.
"""

import driver
import interop_demo
import numpy as np
import pytest
from partners import BASE

BYTES = np.arange(64, dtype=np.uint8)  # doubled, they still fit a signed byte


def cuda_core(kind):
    core = pytest.importorskip("cuda.core", exc_type=ImportError)
    device = core.Device(0)
    device.set_current()
    names = {"pinned": "LegacyPinnedMemoryResource", "managed": "ManagedMemoryResource", "pool": "DeviceMemoryResource"}
    name = names.get(kind)
    if name and not hasattr(core, name):
        pytest.skip(f"this cuda.core has no {name}")
    if kind == "pool":
        resource = core.DeviceMemoryResource(device)
    else:
        resource = getattr(core, name)() if name else device.memory_resource
    stream = device.create_stream()
    buffer = resource.allocate(BYTES.nbytes, stream=stream)
    stream.sync()
    driver.write(int(buffer.handle), bytearray(BYTES.tobytes()))
    return buffer, int(buffer.handle), BYTES


def cupy(kind):
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    if kind == "pinned":
        # CuPy exposes pinned memory through NumPy; for CUDA we describe it in an interface dict.
        memory = cupy.cuda.alloc_pinned_memory(BASE.nbytes)
        host = np.frombuffer(memory, BASE.dtype, BASE.size).reshape(BASE.shape)
        host[...] = BASE

        class Pinned:
            keep = memory
            __cuda_array_interface__ = {**host.__array_interface__, "version": 3, "stream": None}

        return Pinned(), memory.ptr, BASE
    memory = {
        "device": cupy.cuda.alloc,
        "managed": cupy.cuda.malloc_managed,
        "pool": cupy.cuda.malloc_async,
    }[kind](BASE.nbytes)
    array = cupy.ndarray(BASE.shape, BASE.dtype, memptr=memory)
    array.set(BASE)
    return array, array.data.ptr, BASE


def ours(kind):
    array = interop_demo.Array.full((4, 6), 3.0, device="cuda" if kind == "device" else kind)
    return array, interop_demo.describe(array)["data"], np.full((4, 6), 3, np.float32)


@pytest.mark.parametrize("make", [ours, cuda_core, cupy])
@pytest.mark.parametrize("kind", ["device", "pinned", "managed", "pool"])
def test_one_call_for_every_kind(make, kind):
    array, address, values = make(kind)
    driver.synchronize()
    interop_demo.scale_(array, 2.0)
    assert np.frombuffer(driver.read(address, values.nbytes), values.dtype).sum() == (values * 2).sum()
    assert interop_demo.checksum(array) == (values * 2).sum()


@pytest.mark.parametrize("kind", ["device", "pinned", "managed", "pool"])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2", "bfloat16", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"])
def test_every_type_as_on_the_host(kind, dtype):
    results = []
    for device in ("cpu", "cuda" if kind == "device" else kind):
        array = interop_demo.Array.full((3, 5), 7, dtype, device=device)
        for factor in (3, 1.5, 1e3):
            interop_demo.scale_(array[::-2], factor)
        results.append(interop_demo.checksum(array))
    assert results[0] == results[1]
