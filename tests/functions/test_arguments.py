"""Functions with arrays of NumPy and of TVM FFI, values, lists, results and errors."""

import ctypes
import gc
import os
import re
import resource
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tvm_ffi

LIBRARY = os.environ["INTEROP_FUNCTIONS"]


def row(count=6):
    return np.arange(count, dtype=np.float32)


@pytest.mark.parametrize("wrap", [lambda array: array, tvm_ffi.from_dlpack], ids=["numpy", "tvm"])
def test_arrays_are_used_in_place(f, wrap):
    array = row()
    f.scale_row_(wrap(array), 2.0)
    f.scale_named_(wrap(array), 3)
    f.scale_(wrap(array), np.float32(0.5))
    assert array.tolist() == (row() * 3).tolist() and f.shared_len(wrap(array)) == 6
    assert f.nothing() is None


VIEWS = {
    "columns": lambda array: array[:, ::2],
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[::-1, ::-1],
    "empty": lambda array: array[:0],
    "one": lambda array: array[1:2, 1:2],
    "no axes": lambda array: array[1, 2, ...],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_any_layout(f, view):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected, target = array.copy(), np.zeros_like(array)
    view(expected)[...] *= 2
    f.scale_into(view(array), view(target), 2.0)
    f.scale_(view(array), 2.0)
    assert (array == expected).all() and (view(target) == view(expected)).all()
    assert np.count_nonzero(target) == np.count_nonzero(view(target))


def test_a_contiguous_row_is_required(f):
    array = row(8)
    for view in (array[::2], array[::-1]):
        with pytest.raises(ValueError, match=r"strides.*argument `row` of `scale_row_`"):
            f.scale_row_(view, 2.0)
    assert array.tolist() == row(8).tolist()


def test_memory_that_must_not_be_written(f):
    shared = np.lib.stride_tricks.as_strided(row(), (3, 6), (0, 4))
    assert f.sum(shared) == 45.0
    for write in (lambda: f.scale_(shared, 2.0), lambda: f.scale_into(np.zeros((3, 6), np.float32), shared, 2.0)):
        with pytest.raises(ValueError, match="no two indices share an element"):
            write()
    # NumPy itself exports no read-only array to a library that may write to it.
    read_only = row()
    read_only.flags.writeable = False
    with pytest.raises(BufferError):
        f.scale_(read_only, 2.0)
    assert read_only.tolist() == row().tolist()


def test_arguments_that_overlap(f):
    array = row()
    for write in (
        lambda: f.scale_into(array, array, 2.0),
        lambda: f.scale_into(array[:4], array[2:], 2.0),
        lambda: f.assign_((array[:3], array[1:4])),
    ):
        with pytest.raises(ValueError, match="one writer"):
            write()
    assert array.tolist() == row().tolist()
    # Parts of rows have no element in common.
    rows = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    for one, two in (
        (rows[..., :3], rows[..., 3:]),
        (rows[:, :2, :3], rows[:, :2, 3:]),
        (rows[:, :2], rows[:, 2:]),
        (rows[:, :2, :3], rows[:, 2:, :3]),
        (rows[..., ::2], rows[..., 1::2]),
    ):
        expected = one * 2
        f.scale_into(one, two, 2.0)
        assert (two == expected).all()
    with pytest.raises(ValueError, match="one writer"):
        f.scale_into(rows[..., :4], rows[..., 2:], 2.0)
    f.scale_into(array[:3], array[3:], 2.0)
    assert array.tolist() == [0, 1, 2, 0, 2, 4]
    assert f.sum(array, array) == 18.0


WRONG = {
    "dtype": (lambda a: (a.astype("f8"), 1.0), TypeError, "`dtype`: found float64, allowed: float32 (from argument `row` of"),
    "rank": (lambda a: (a.reshape(2, 3), 1.0), ValueError, "found 2 axes"),
    "missing": (lambda a: (a,), TypeError, "`scale_row_`: the argument `factor` is missing"),
    "surplus": (lambda a: (a, 1.0, 2), TypeError, "`scale_row_`: found 3 arguments, allowed: 2"),
    "text": (lambda a: ("x", 1.0), TypeError, "`row`: found a str, allowed: an array (argument of `scale_row_`)"),
    "none": (lambda a: (None, 1.0), TypeError, "`row`: found None, allowed: an array"),
    "list": (lambda a: ([1.0], 1.0), TypeError, "`row`: found a list, allowed: an array"),
    "object": (lambda a: (object(), 1.0), TypeError, "`row`: found an object that exports no DLPack tensor"),
    "factor": (lambda a: (a, "x"), TypeError, "`factor`: found a str, allowed: a float"),
    "array for a number": (lambda a: (a, a), TypeError, "`factor`: found a tensor, allowed: a float"),
}


@pytest.mark.parametrize(("arguments", "kind", "text"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(f, arguments, kind, text):
    array = row()
    with pytest.raises(kind) as error:
        f.scale_row_(*arguments(array))
    assert type(error.value) is kind and text in str(error.value)
    assert array.tolist() == row().tolist()


def test_an_array_on_the_host_for_device_memory(f):
    with pytest.raises(ValueError, match=r"`device`: found CPU.*allowed: CUDA.*argument `row` of `cuda_len`"):
        f.cuda_len(row())


def test_values(f):
    assert f.values(3, 1, 0.5, True, "abc") is True
    assert f.values(8, 1, 0.5, False, "8 bytes!") is False
    assert f.values(20, 255, 1, True, "x" * 20, 7) is True
    assert f.values(0, 0, 0, True, "", None) is True
    with pytest.raises(ValueError, match="`small`: found 256, allowed: 0 to 255"):
        f.values(3, 256, 0.5, True, "abc")
    with pytest.raises(TypeError, match="`flag`: found the int 1, allowed: a bool"):
        f.values(3, 1, 0.5, 1, "abc")
    with pytest.raises(TypeError, match="more than 64 bits"):
        f.values(2**70, 1, 0.5, True, "abc")
    with pytest.raises(RuntimeError, match=r"number 3, small 1, float 0.5, flag true, more Some\(-4\)"):
        f.values(3, 1, 0.5, True, "fail", -4)
    assert f.itemsize(tvm_ffi.dtype("float16"), tvm_ffi.device("cpu", 0)) == 2
    with pytest.raises(RuntimeError, match=r"CUDA \(2\), ordinal 3"):
        f.itemsize(tvm_ffi.dtype("float16"), tvm_ffi.device("cuda", 3))
    with pytest.raises(TypeError, match="`device`: found a dtype, allowed: a device"):
        f.itemsize(tvm_ffi.dtype("float16"), tvm_ffi.dtype("float16"))
    with pytest.raises(TypeError, match="`dtype`: found a device, allowed: a dtype or its name"):
        f.itemsize(tvm_ffi.device("cpu"), tvm_ffi.device("cpu"))
    with pytest.raises(ValueError, match="63 bits"):
        f.huge()
    assert f.has_stream() is False


def test_a_bool_is_an_int_and_a_float(f):
    assert f.values(True, False, True, True, "a", True) is True
    with pytest.raises(RuntimeError, match=r"number 1, small 0, float 1, flag true, more Some\(1\)"):
        f.values(True, False, True, True, "fail", True)
    with pytest.raises(RuntimeError, match="number 0, small 1, float 0, flag false, more None"):
        f.values(False, True, False, False, "fail")
    assert f.lists([row(3)], [True], ("", True)) == 3 + 1


def test_names_of_element_types_and_devices(f):
    """As functions of TVM FFI itself take them."""
    for dtype, size in {"float16": 2, "int64": 8, "bfloat16": 2, "float8_e4m3fn": 1, "bool": 1}.items():
        assert f.itemsize(dtype, "cpu") == f.itemsize(tvm_ffi.dtype(dtype), tvm_ffi.device("cpu")) == size
    for device in ("cuda", "cuda:0", "cuda:3", "rocm:1"):
        with pytest.raises(RuntimeError) as ours:
            f.itemsize("int8", device)
        with pytest.raises(RuntimeError) as theirs:
            f.itemsize("int8", tvm_ffi.device(device))
        assert str(ours.value) == str(theirs.value)
    for dtype, device, text in (
        ("float99", "cpu", '`dtype`: found "float99", allowed: a dtype, such as "float32" (argument of `itemsize`)'),
        ("int8", "gpu", '`device`: found "gpu", allowed: a device, such as "cpu" or "cuda:0" (argument of `itemsize`)'),
        ("int8", "cuda:-1", '`device`: found "cuda:-1"'),
        ("int8", "a" * 40, '`device`: found "aaaa'),
    ):
        with pytest.raises(ValueError) as error:
            f.itemsize(dtype, device)
        assert text in str(error.value)


def test_the_names_of_devices_are_those_of_the_header():
    """The names in `device_name.rs`, compared with the header of the package."""
    with open(os.path.join(tvm_ffi.libinfo.find_include_path(), "tvm/ffi/device.h"), encoding="utf-8") as file:
        lines = re.findall(r"if \((name == .*)\) return", file.read())
    theirs = [name for line in lines for name in re.findall(r'name == "(\w+)"', line)]
    with open("interop-tvm-ffi/src/device_name.rs", encoding="utf-8") as file:
        ours = dict(re.findall(r'\("(\w+)", (\d+)\)', file.read()))
    assert sorted(ours) == sorted(theirs)
    for name, number in ours.items():
        assert tvm_ffi.device(name).dlpack_device_type() == int(number)


def test_lists_and_tuples(f):
    assert f.lists([row(3), row(4)], [1, 0.5], ("ab", 10)) == 3 + 3 + 12
    assert f.lists((), (), ["abcd", None]) == 4
    made = tvm_ffi.List([tvm_ffi.from_dlpack(row(3)), tvm_ffi.from_dlpack(row(4))])
    assert f.lists(made, tvm_ffi.List([1, 0.5]), tvm_ffi.List(["ab", 10])) == 3 + 3 + 12
    assert f.lists(tvm_ffi.List([]), tvm_ffi.List([]), ("", None)) == 0
    first, second = row(3), row(3) + 5
    f.assign_((first, second))
    assert first.tolist() == [5, 6, 7]
    with pytest.raises(TypeError, match=r"`dtype`: found float64.*argument `rows\[1\]` of `lists`"):
        f.lists([row(3), np.zeros(3)], [], ("", None))
    with pytest.raises(TypeError, match=r"`weights\[0\]`: found a str, allowed: a float"):
        f.lists([], ["a"], ("", None))
    with pytest.raises(ValueError, match="`extra`: found a list of 1 items, allowed: 2 items"):
        f.lists([], [], ("",))
    with pytest.raises(TypeError, match="`rows`: found a tensor, allowed: a list or a tuple"):
        f.lists(row(), [], ("", None))
    with pytest.raises(ValueError, match="`extra`: found a list of 1 items, allowed: 2 items"):
        f.lists([], [], tvm_ffi.List([""]))


def test_any_element_type(f):
    for kind in ("u1", "i2", "f4", "f8"):
        assert f.sum_of_any(np.arange(6).astype(kind)) == 15.0
    with pytest.raises(TypeError, match=r"`dtype`: found int64, allowed: uint8, int16, float32, float64 \(from argument `array` of `sum_of_any`\)"):
        f.sum_of_any(np.arange(6))


def test_results(f):
    made = f.ramp(5)
    assert isinstance(made, tvm_ffi.Tensor) and np.from_dlpack(made).tolist() == [0, 1, 2, 3, 4]
    assert f.copied(row(7)) == 21.0
    # NumPy tells TVM FFI of no allocator.
    scaled = np.from_dlpack(f.scaled(row().reshape(2, 3).T, 2.0))
    assert scaled.tolist() == (2 * row().reshape(2, 3).T).tolist() and scaled.flags.writeable
    assert np.from_dlpack(f.scaled(row(0), 2.0)).shape == (0,)


def test_errors(f):
    for kind, error in {"index": IndexError, "memory": MemoryError, "key": KeyError, "other": RuntimeError}.items():
        with pytest.raises(error) as raised:
            f.fail(kind)
        assert type(raised.value) is error
    with pytest.raises(RuntimeError, match=r"a\\0b"):
        f.fail("nul")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="`explode` panicked: row of 6"):
            f.explode(row())


def test_threads_without_the_lock(f):
    f.scale_row_.release_gil = True
    arrays, failures = [row(1000) for _ in range(4)], []

    def run(array):
        for _ in range(300):
            f.scale_row_(array, 2.0)
            f.scale_row_(array, 0.5)
            try:
                f.scale_row_(array.astype("f8"), 2.0)
                failures.append("no error")
            except TypeError:
                pass

    threads = [threading.Thread(target=run, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    f.scale_row_.release_gil = False
    assert not failures and all((array == row(1000)).all() for array in arrays)


def test_nothing_leaks(f):
    large = np.ones(1 << 18, np.float32)

    def once():
        f.scale_row_(large, 1.0)
        np.from_dlpack(f.scaled(large, 2.0))
        with pytest.raises(TypeError):
            f.scale_row_(large.astype("f8"), 1.0)

    for _ in range(20):
        once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        once()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.filterwarnings("ignore:operators")
def test_two_copies_of_the_library(f, tmp_path):
    copy = shutil.copy(LIBRARY, tmp_path / "libcopy.so")
    other, array = tvm_ffi.load_module(str(copy)), row()
    other["scale_row_"](array, 2.0)
    f.scale_row_(array, 2.0)
    with pytest.raises(TypeError, match="float64"):
        other["scale_row_"](array.astype("f8"), 2.0)
    assert array.tolist() == (row() * 4).tolist()


def in_a_process(program):
    return subprocess.run([sys.executable, "-c", program, LIBRARY], capture_output=True, text=True, check=False)


# Calls `fail("x")`, and prints the code and the last error.
CALL = """
import ctypes, sys
class Any(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int32), ("length", ctypes.c_uint32), ("value", ctypes.c_uint64)]
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
text = ctypes.c_char_p(b"x")
argument, result = Any(8, 0, ctypes.cast(text, ctypes.c_void_p).value), Any()
last = library.interop_tvm_ffi_last_error
last.restype = ctypes.c_char_p
call = lambda: library.__getattr__("__tvm_ffi_fail")(None, ctypes.byref(argument), 1, ctypes.byref(result))
"""


def test_a_process_without_tvm_ffi():
    done = in_a_process(CALL + "print(call(), last(None))")
    assert done.stdout == "-1 b'x'\n", done.stderr


def test_tvm_ffi_that_is_loaded_later():
    done = in_a_process(CALL + "print(call()); import tvm_ffi; print(call(), last(None)); print(tvm_ffi.load_module(sys.argv[1])['copied'])")
    assert done.stdout.startswith("-1\n-1 b'x'\n"), done.stderr
    program = CALL + "import tvm_ffi, numpy; call(); m = tvm_ffi.load_module(sys.argv[1])\ntry: m['fail']('late')\nexcept RuntimeError as e: print(e)"
    assert in_a_process(program).stdout == "late\n"


def test_tvm_ffi_with_local_symbols():
    path = tvm_ffi.libinfo.find_libtvm_ffi()
    program = CALL + f"""
tvm = ctypes.CDLL({str(path)!r}, mode=ctypes.RTLD_LOCAL)
code, error = call(), ctypes.c_void_p()
tvm.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
print(code, bool(error), last(None))
"""
    done = in_a_process(program)
    assert done.stdout == "-1 True b''\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="builds a library for Linux")
def test_another_version_of_the_abi(tmp_path):
    """A library that says that it is version 0.2, and fails when its structs are used."""
    source, library = tmp_path / "other.c", tmp_path / "libtvm_ffi.so"
    source.write_text(
        """
        #include <stdint.h>
        #include <stdio.h>
        #include <unistd.h>
        void TVMFFIGetVersion(uint32_t *version) { usleep(200000); version[0] = 0; version[1] = 2; version[2] = 7; }
        void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) { printf("%s: %s\\n", kind, text); fflush(stdout); }
        """
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libtvm_ffi.so", "-o", library, source], check=True)
    load = f"ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)\n"
    refused = "RuntimeError: `tvm_ffi`: found version 0.2.7, allowed: 0.1\n"
    done = in_a_process("import ctypes; " + load + CALL + "print(call())")
    assert done.stdout == refused + "-1\n", done.stderr
    # A second thread waits for the answer of the first one.
    threads = """
import threading
threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    done = in_a_process("import ctypes; " + load + CALL + threads)
    assert done.stdout == refused * 2, done.stderr
    # One that is loaded after the first call, and passes an object.
    done = in_a_process(CALL + "call()\n" + load + "argument.index = 65\nprint(call())")
    assert done.stdout == refused + "-1\n", done.stderr


def test_the_structs_are_those_of_the_header():
    """The numbers in `abi.rs`, compared with the header of the package."""
    header = os.path.join(tvm_ffi.libinfo.find_include_path(), "tvm/ffi/c_api.h")
    names = {
        "NONE": "None", "INT": "Int", "BOOL": "Bool", "FLOAT": "Float", "DATA_TYPE": "DataType", "DEVICE": "Device",
        "DL_TENSOR_PTR": "DLTensorPtr", "RAW_STR": "RawStr", "OBJECT_RVALUE_REF": "ObjectRValueRef", "SMALL_STR": "SmallStr",
        "STR": "Str", "TENSOR": "Tensor", "ARRAY": "Array", "LIST": "List",
        "FIRST_OBJECT": "StaticObjectBegin",
    }
    with open(header, encoding="utf-8") as file:
        numbers = dict(re.findall(r"kTVMFFI(\w+) = (\d+)", file.read()))
    with open("interop-tvm-ffi/src/abi.rs", encoding="utf-8") as file:
        ours = dict(re.findall(r"pub const (\w+): i32 = (\d+);", file.read()))
    assert ours == {ours_name: numbers[name] for ours_name, name in names.items()}
    assert ctypes.sizeof(ctypes.c_void_p) == 8
