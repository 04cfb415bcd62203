"""`simulated-cuda-driver/python/simulated_cuda.py`, the Python client of the simulated driver, as a program of somebody else uses it.

The program calls the driver by ctypes, as every binding does in the end.
"""

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "simulated-cuda-driver/python"
sys.path.append(str(FOLDER))

try:
    import simulated_cuda
except ImportError as why:
    pytest.skip(f"needs the simulated driver as libcuda.so.1: {why}", allow_module_level=True)

NON_BLOCKING = 1
PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry client_fill(.param .u64 a, .param .u64 b, .param .f32 c) { ret; }\0"


def driver(name, *arguments):
    code = getattr(simulated_cuda.library, name)(*arguments)
    assert code == 0, f"{name} answered {code}"


def created(name, *arguments):
    handle = ctypes.c_uint64()
    driver(name, ctypes.byref(handle), *arguments)
    return handle.value


@pytest.fixture(autouse=True)
def device():
    driver("cuInit", 0)
    context = created("cuDevicePrimaryCtxRetain", 0)
    driver("cuCtxSetCurrent", ctypes.c_uint64(context))
    simulated_cuda.reports()
    yield
    simulated_cuda.assert_no_reports()
    driver("cuDevicePrimaryCtxRelease_v2", 0)


def race():
    """Two sets of the same bytes on two streams that know nothing of each other."""
    memory = created("cuMemAlloc_v2", ctypes.c_size_t(4))
    for _ in range(2):
        stream = created("cuStreamCreate", NON_BLOCKING)
        driver("cuMemsetD8Async", ctypes.c_uint64(memory), 1, ctypes.c_size_t(4), ctypes.c_uint64(stream))
    return memory


def test_a_race_is_reported_with_its_kind():
    race()
    simulated_cuda.run_all()
    (report,) = simulated_cuda.reports()
    assert report.mistake == "Race"
    assert "by cuMemsetD8Async" in report.text
    assert simulated_cuda.reports() == []


def test_an_assertion_names_the_race_that_nothing_has_waited_for():
    race()
    with pytest.raises(AssertionError, match="the driver reports:\nRace: write of 4 bytes"):
        simulated_cuda.assert_no_reports()


def test_calls_are_counted():
    simulated_cuda.reset_calls()
    memory = created("cuMemAlloc_v2", ctypes.c_size_t(4))
    assert simulated_cuda.live("allocations") >= 1
    driver("cuMemFree_v2", ctypes.c_uint64(memory))
    assert simulated_cuda.calls("cuMemAlloc_v2", "cuMemFree_v2") == 2
    assert simulated_cuda.calls() == 2


def test_a_kernel_in_python_runs_on_memory_of_the_device():
    @simulated_cuda.kernel("client_fill", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float)
    def fill(launch, out, count, value):
        assert launch.grid == (2, 1, 1)
        assert launch.block == (32, 1, 1)
        simulated_cuda.write(out, ctypes.c_float, count)[:] = [value] * count

    module = created("cuModuleLoadData", PTX)
    function = created("cuModuleGetFunction", ctypes.c_uint64(module), b"client_fill")
    memory = created("cuMemAlloc_v2", ctypes.c_size_t(12))
    values = ctypes.c_uint64(memory), ctypes.c_size_t(3), ctypes.c_float(2.5)
    places = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values))
    driver("cuLaunchKernel", ctypes.c_uint64(function), 2, 1, 1, 32, 1, 1, 0, None, places, None)
    driver("cuCtxSynchronize")
    assert list(simulated_cuda.read(memory, ctypes.c_float, 3)) == [2.5] * 3
    driver("cuMemFree_v2", ctypes.c_uint64(memory))


def test_memory_that_may_not_be_read_is_an_error_with_a_report():
    with pytest.raises(ValueError, match="4 bytes at 0x10 may not be read"):
        simulated_cuda.read(0x10, ctypes.c_float, 1)
    assert [report.mistake for report in simulated_cuda.reports()] == ["OutOfBounds"]


def test_a_call_can_be_made_to_fail():
    simulated_cuda.fail_next("cuMemAlloc", 2)
    memory = ctypes.c_uint64()
    assert simulated_cuda.library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4)) == 2


def test_waits_can_be_forbidden_and_work_held_back():
    stream = created("cuStreamCreate", NON_BLOCKING)
    spin = simulated_cuda.spin(stream)
    assert spin.is_pending()
    with simulated_cuda.no_waits():
        driver("cuStreamSynchronize", ctypes.c_uint64(stream))
    assert [report.mistake for report in simulated_cuda.reports()] == ["HostWait"]
    assert not spin.is_pending()


PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def created(name, *arguments):
    handle = ctypes.c_uint64()
    assert getattr(cuda, name)(ctypes.byref(handle), *arguments) == 0
    return handle
cuda.cuInit(0)
cuda.cuCtxSetCurrent(created("cuDevicePrimaryCtxRetain", 0))
memory = created("cuMemAlloc_v2", ctypes.c_size_t(4))
for _ in range(2):
    cuda.cuMemsetD8Async(memory, 1, ctypes.c_size_t(4), created("cuStreamCreate", 1))
print("the program has ended well")
"""


@pytest.mark.parametrize(("setting", "status"), [("", 1), ("off", 0)])
def test_a_program_that_knows_nothing_of_the_client_ends_with_its_reports(setting, status):
    environment = os.environ | {"SIMULATED_CUDA_REPORTS": setting}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (status, "the program has ended well\n"), ended.stderr
    assert ("Race: write of 4 bytes" in ended.stderr) == (status == 1), ended.stderr


def test_another_driver_is_refused_with_the_cure():
    script = "import ctypes; real = ctypes.CDLL; ctypes.CDLL = lambda name: real(None); import simulated_cuda"
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "is not the simulated one: set LD_LIBRARY_PATH" in ended.stderr
