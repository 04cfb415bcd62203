"""DALI 1.32 to 1.36 crashed on `stream: None` in an interface dict (NVIDIA/DALI#5423).

`None`, a missing key, and a stream are three cases, in DALI and here.
"""

import driver
import interop_demo
import pytest
from partners import BASE, OnlyCAI

Array = interop_demo.Array


class Interface:
    """The dict of a device array with another `stream`."""

    def __init__(self, array, version=3, **changes):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "version": version, **changes}


@pytest.fixture
def array():
    return Array.full((4, 6), 2.0, device="cuda")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("stream", ["absent", None, 1, 2, "handle"])
def test_every_stream_comes_in(array, version, stream):
    changes = {} if stream == "absent" else {"stream": driver.stream() if stream == "handle" else stream}
    facts = interop_demo.describe(Interface(array, version, **changes))
    assert (facts["protocol"], facts["data"]) == ("cai", interop_demo.describe(array)["data"])
    assert interop_demo.checksum(Interface(array, version, **changes)) == 48


def test_zero_is_no_stream(array):
    with pytest.raises(interop_demo.ArrayError, match="`stream`: found 0"):
        interop_demo.describe(Interface(array, stream=0))


def test_nothing_pending_is_no_key():
    """We never write the value that crashed DALI; the key is left out instead."""
    pinned = interop_demo.Array.full((3, 4), 0.0, device="pinned")
    assert "stream" not in pinned.__cuda_array_interface__


@pytest.mark.parametrize("stream", ["absent", None, 1, 2])
def test_dali_takes_ours(array, stream):
    backend = pytest.importorskip("nvidia.dali.backend", exc_type=ImportError)
    changes = {} if stream == "absent" else {"stream": stream}
    driver.synchronize()
    tensor = backend.TensorGPU(Interface(array, **changes), "HW")
    assert tensor.data_ptr() == interop_demo.describe(array)["data"]
    assert tensor.shape() == [4, 6]


def test_dali_takes_ours_after_a_kernel(array):
    backend = pytest.importorskip("nvidia.dali.backend", exc_type=ImportError)
    stream = driver.stream()
    interop_demo.scale_(array, 3.0, stream=stream)
    assert array.__cuda_array_interface__["stream"] == stream
    tensor = backend.TensorGPU(OnlyCAI(array), "HW")
    driver.synchronize()
    assert tensor.data_ptr() == interop_demo.describe(array)["data"]


def test_pycuda_says_none():
    gpuarray = pytest.importorskip("pycuda.gpuarray", exc_type=ImportError)
    pytest.importorskip("pycuda.autoprimaryctx", exc_type=ImportError)
    array = gpuarray.to_gpu(BASE)
    assert array.__cuda_array_interface__["stream"] is None
    facts = interop_demo.describe(array)
    assert (facts["protocol"], facts["data"], facts["device"]) == ("cai", int(array.gpudata), (2, 0))
    assert interop_demo.checksum(array) == BASE.sum()


@pytest.mark.parametrize("module", ["numba.cuda", "numba_cuda_mlir.cuda"])
def test_numba_says_none(module):
    cuda = pytest.importorskip(module, exc_type=ImportError)
    array = cuda.to_device(BASE)
    assert array.__cuda_array_interface__["stream"] is None
    assert interop_demo.describe(array)["data"] == array.__cuda_array_interface__["data"][0]
    assert interop_demo.checksum(array) == BASE.sum()
