"""cuda.core's `StridedMemoryView` of JAX arrays failed with stream -1 (NVIDIA/cuda-python#285).

-1 reached the driver, and the form of the capsule was guessed before the capsule existed.
"""

import driver
import interop_demo
import numpy as np
import pytest
from partners import OnlyCAI, OnlyDLPack

jax = pytest.importorskip("jax", exc_type=ImportError)
Array = interop_demo.Array


@pytest.fixture
def views():
    return pytest.importorskip("cuda.core.utils", exc_type=ImportError).StridedMemoryView


@pytest.fixture
def array():
    return jax.numpy.arange(24, dtype="float32").reshape(4, 6).block_until_ready()


@pytest.mark.parametrize("stream", ["none", -1, 1, 2, "handle"])
@pytest.mark.parametrize("protocol", [lambda array: array, OnlyDLPack, OnlyCAI], ids=["all", "dlpack", "cai"])
def test_jax_comes_in_whatever_the_stream(array, protocol, stream):
    number = {"none": None, "handle": driver.stream()}.get(stream, stream)
    facts = interop_demo.describe(protocol(array), stream=number)
    assert facts["data"] == array.unsafe_buffer_pointer()
    assert (facts["shape"], facts["strides"], facts["device"]) == ((4, 6), (6, 1), (2, 0))
    dlpack = "dlpack_versioned" if jax.__version_info__ >= (0, 12) else "dlpack"
    assert facts["protocol"] == ("cai" if protocol is OnlyCAI else dlpack)
    assert interop_demo.checksum(protocol(array), stream=number) == 276


@pytest.mark.parametrize("stream", [-1, "handle"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_ours_in_a_view(views, stream, step):
    handle = driver.stream() if stream == "handle" else stream
    array = Array.full((4, 6), 1.0, device="cuda")
    interop_demo.scale_(array, 2.0)
    view = views.from_dlpack(array[::step], stream_ptr=handle)
    facts = interop_demo.describe(array[::step])
    # Twice, because an early version gave another result on the second call.
    for _ in range(2):
        assert (view.ptr, tuple(view.shape)) == (facts["data"], facts["shape"])
    assert view.device_id == 0 and view.is_device_accessible and not view.readonly
    assert tuple(view.strides or facts["strides"]) == facts["strides"]


@pytest.mark.parametrize("stream", [-1, "handle"])
def test_our_dict_in_a_view(views, stream):
    handle = driver.stream() if stream == "handle" else stream
    array = Array.full((4, 6), 1.0, device="cuda")
    interop_demo.scale_(array, 2.0)
    view = views.from_cuda_array_interface(OnlyCAI(array), stream_ptr=handle)
    assert view.ptr == interop_demo.describe(array)["data"]


@pytest.mark.parametrize("stream", [-1, "handle"])
def test_a_view_of_jax(views, array, stream):
    """Reproduces the original bug. JAX 0.11 still refuses -1, and its error is passed on."""
    handle = driver.stream() if stream == "handle" else stream
    if stream == -1:
        with pytest.raises(Exception, match="INVALID_HANDLE|invalid"):
            views.from_dlpack(array, stream_ptr=handle)
    else:
        assert views.from_dlpack(array, stream_ptr=handle).ptr == array.unsafe_buffer_pointer()


@pytest.mark.parametrize("written_on", ["nothing", "default", "stream"])
def test_ours_in_jax(written_on):
    array = Array.full((4, 6), 1.0, device="cuda")
    if written_on != "nothing":
        interop_demo.scale_(array, 3.0, stream=1 if written_on == "default" else driver.stream())
    taken = jax.dlpack.from_dlpack(array)
    assert taken.unsafe_buffer_pointer() == interop_demo.describe(array)["data"]
    assert np.asarray(taken).sum() == 24 * (1 if written_on == "nothing" else 3)
