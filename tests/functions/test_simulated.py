"""Functions on the simulated driver, with libraries that tell their stream to TVM FFI and with others that do not."""

import contextlib
import ctypes
import os
import threading

import pytest
import tvm_ffi
from capsules import NAMES, Legacy, new_capsule
from streamed_library import CUDA, DRIVER, GLOBAL, Export, Foreign, Library, Torch, Unset, call

DRIVER.simulated_cuda_calls.restype = DRIVER.simulated_cuda_report_count.restype = ctypes.c_uint64
DRIVER.simulated_cuda_spin.argtypes = [ctypes.c_uint64]
ctypes.CDLL(os.environ["INTEROP_FUNCTIONS"]).register_kernels()

# What was exported, as long as the program runs.
exported = []


class CuPy(Library):
    """As CuPy and Numba for TVM FFI: nothing tells the stream, and the default stream waits for the library's own."""

    def protocols(self):
        def __dlpack__(array, **_):  # noqa: N807
            Foreign(0).wait_for(self.current())
            kept = Export(array)
            kept.legacy = Legacy(kept.struct.tensor, None, None)
            exported.append(kept)
            return new_capsule(ctypes.addressof(kept.legacy), ctypes.cast(NAMES["legacy"], ctypes.c_void_p), None)

        return {"__dlpack__": __dlpack__, "__dlpack_device__": lambda _: (CUDA, 0)}


class Versioned:
    """A tensor of TVM FFI, as the libraries here ask for it."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, *, stream, max_version):
        return self.tensor.__dlpack__(max_version=max_version)


LIBRARIES = {"table": Torch, "table without a stream": Unset, "no table": CuPy}
WAITS = ("cuStreamWaitEvent", "cuEventRecord", "cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventSynchronize", "cuStreamSynchronize")


def calls(*names):
    return sum(DRIVER.simulated_cuda_calls(name.encode()) for name in names)


def reports():
    texts = []
    for at in range(DRIVER.simulated_cuda_report_count()):
        text = ctypes.create_string_buffer(1000)
        DRIVER.simulated_cuda_report(ctypes.c_uint64(at), None, text, ctypes.c_uint64(999))
        texts.append(text.value.decode())
    DRIVER.simulated_cuda_clear_reports()
    return texts


@pytest.fixture(autouse=True)
def no_mistakes():
    reports()
    yield
    assert reports() == []


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param()


@pytest.fixture(params=["default stream", "side stream"])
def stream(request, library):
    with library.using(library.new_stream()) if request.param == "side stream" else contextlib.nullcontext():
        yield library.current()


def test_pending_work(f, library, stream):
    """The work before a call is done, and the work after it waits, on any stream."""
    array, target = library.array([0.0] * 6), library.array([0.0] * 6)
    for value in range(1, 20):
        DRIVER.simulated_cuda_spin(stream.ptr)
        array.fill_(value)
        f.scale_(array, 2.0)
        f.scale_into(array, target, 3.0)
        array.fill_(-1)
        assert target.tolist() == [6.0 * value] * 6


def test_new_arrays(f, library, stream):
    array = library.array([1.0, 2.0, 3.0])
    for _ in range(5):
        DRIVER.simulated_cuda_spin(stream.ptr)
        array.fill_(4.0)
        result = f.scaled(array, 2.0)
        if not isinstance(result, library.Array):
            assert isinstance(result, tvm_ffi.Tensor)
            result = library.from_dlpack(Versioned(result))
        assert result.tolist() == [8.0] * 3
        del result


def test_driver_calls_on_a_known_stream(f):
    library = Torch()
    with library.using(library.new_stream()):
        array, target = library.array([1.0] * 6), library.array([0.0] * 6)
        f.scale_(array, 2.0)
        f.scale_into(array, target, 2.0)
        DRIVER.simulated_cuda_reset_calls()
        f.scale_(array, 2.0)
        in_place, waits = calls("cuPointerGetAttributes", "cuLaunchKernel"), calls(*WAITS)
        assert (in_place, waits) == (2, 0) and DRIVER.simulated_cuda_calls(None) <= 5
        DRIVER.simulated_cuda_reset_calls()
        f.scale_into(array, target, 2.0)
        assert calls(*WAITS) == 0 and DRIVER.simulated_cuda_calls(None) <= 7
        assert target.tolist() == [8.0] * 6


def test_an_unknown_stream_is_ordered_and_not_trusted(f):
    library = CuPy()
    with library.using(library.new_stream()):
        array = library.array([1.0] * 6)
        assert not f.has_stream()
        DRIVER.simulated_cuda_reset_calls()
        f.scale_(array, 2.0)
        assert calls("cuCtxRecordEvent", "cuCtxWaitEvent") > 0
        assert array.tolist() == [2.0] * 6


def test_a_capture(f):
    library = Torch()
    array, target = library.array([1.0] * 6), library.array([0.0] * 6)
    with library.capture(GLOBAL) as graph:
        f.scale_(array, 2.0)
        # An error inside leaves the capture valid.
        for arguments in ((array,), (array, "x"), (library.array([1, 2], "int32"), 1.0)):
            with pytest.raises(TypeError):
                f.scale_(*arguments)
        f.scale_into(array, target, 3.0)
    for value in range(1, 4):
        array.fill_(value)
        graph.replay(library.current())
        assert target.tolist() == [6.0 * value] * 6


def test_a_capture_of_a_library_whose_stream_the_caller_names(f):
    library = CuPy()
    array = library.array([1.0] * 6)
    tensor = tvm_ffi.from_dlpack(array)
    with library.capture(GLOBAL) as graph, tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), library.current().ptr):
        f.scale_(tensor, 2.0)
    for value in range(1, 4):
        array.fill_(value)
        graph.replay(library.current())
        assert array.tolist() == [2.0 * value] * 6


def test_an_unknown_stream_in_a_capture_is_an_error(f):
    """Nothing tells which stream captures, so the capture is lost, with an error."""
    library = CuPy()
    array = library.array([1.0] * 6)
    tensor, stream, graph = tvm_ffi.from_dlpack(array), library.new_stream(), ctypes.c_uint64()
    call("cuStreamBeginCapture_v2", stream.ptr, GLOBAL)
    with pytest.raises(RuntimeError, match=r"stream is capturing.*from `scale_`"):
        f.scale_(tensor, 2.0)
    assert DRIVER.cuStreamEndCapture(ctypes.c_uint64(stream.ptr), ctypes.byref(graph)) != 0
    assert "spoils the capture" in reports()[0]


def test_bad_memory(f):
    library = Torch()
    array = library.array([1.0] * 6)
    longer = library.Array.__new__(library.Array)
    longer.__dict__.update(array.__dict__, shape=(1 << 20,))
    with pytest.raises(ValueError, match="found .*allowed"):
        f.scale_(longer, 2.0)
    on_host = (ctypes.c_float * 6)(*[1.0] * 6)
    wrong = library.Array.__new__(library.Array)
    wrong.__dict__.update(array.__dict__, address=ctypes.addressof(on_host))
    with pytest.raises(ValueError, match="which the driver does not know: a plain host address"):
        f.scale_(wrong, 2.0)
    with pytest.raises(ValueError, match="`device`: found CUDA.*allowed: CPU"):
        f.scale_row_(array, 2.0)
    assert f.cuda_len(array) == 6 and list(on_host) == [1.0] * 6
    for write in (lambda: f.scale_into(array, array, 2.0),):
        with pytest.raises(ValueError, match="array"):
            write()
    assert array.tolist() == [1.0] * 6


def test_threads_on_streams_of_their_own(f):
    library, wrong = Torch(), []

    def run(number):
        with library.using(library.new_stream()):
            array = library.array([0.0] * 4)
            for _ in range(50):
                array.fill_(number)
                f.scale_(array, 2.0)
                if array.tolist() != [2.0 * number] * 4:
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
