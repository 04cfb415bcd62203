"""The buffer protocol of array objects: the results of `memoryview`, `bytes` and NumPy for host-accessible memory."""

import ctypes
import gc
import hashlib
import io
import struct
import sys
import threading

import interop_demo
import numpy as np
import pytest

Array, ArrayError = interop_demo.Array, interop_demo.ArrayError

# Typestrs and the native formats of `struct`, which NumPy has, too.
FORMATS = {
    "|b1": "?",
    "|i1": "b",
    "<i2": "h",
    "<i4": "i",
    "<i8": np.dtype("<i8").char,
    "|u1": "B",
    "<u2": "H",
    "<u4": "I",
    "<u8": np.dtype("<u8").char,
    "<f2": "e",
    "<f4": "f",
    "<f8": "d",
    "<c8": "Zf",
    "<c16": "Zd",
}


def of(array):
    """An `Array` over the memory of a NumPy array."""
    return interop_demo.asarray(array)


@pytest.mark.parametrize(("dtype", "format"), FORMATS.items())
def test_every_type_is_spelled_as_numpy_spells_it(dtype, format):
    source = np.zeros((2, 3), dtype)
    view = memoryview(of(source))
    assert (view.format, view.itemsize, view.nbytes) == (format, source.itemsize, source.nbytes)
    assert view.format == memoryview(source).format
    assert np.asarray(of(source)).dtype.num == source.dtype.num  # `l` and `q` are two types in NumPy


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_types_without_a_format_are_refused(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    jax = pytest.importorskip("jax.numpy")
    array = of(jax.ones(3, getattr(ml_dtypes, dtype)))
    with pytest.raises(BufferError, match="`dtype`: found .*use DLPack"):
        memoryview(array)


CUTS = {
    "whole": (),
    "no axes": (1, 2, 3),
    "every other": (slice(None, None, 2), slice(1, None), slice(None, None, 3)),
    "backwards": (slice(None, None, -1), slice(None), slice(None, None, -2)),
    "one element": (slice(1, 2), slice(2, 3), slice(3, 4)),
    "no elements": (slice(2, 2), slice(None), slice(None)),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_shape_and_strides_are_those_of_the_array(cut):
    source = np.arange(4 * 5 * 6, dtype="<i4").reshape(4, 5, 6)
    expected = np.asarray(source[(*cut, ...)])
    view = memoryview(of(source)[cut] if cut else of(source))
    assert (view.shape, view.tolist()) == (expected.shape, expected.tolist())
    assert view.tobytes() == bytes(of(source)[cut] if cut else of(source)) == expected.tobytes()
    if expected.size:
        assert view.strides == expected.strides
        assert np.asarray(view).ctypes.data == expected.ctypes.data  # in place


def test_a_row_of_bytes():
    """Without a requested shape, as `struct`, files and hashes request it."""
    source = np.arange(6, dtype="<f4").reshape(2, 3)
    assert struct.unpack_from("<6f", of(source)) == tuple(range(6))
    assert io.BytesIO(of(source)).read() == source.tobytes()
    assert io.BytesIO(bytes(range(24))).readinto(of(source)) == 24
    assert source.tobytes() == bytes(range(24))
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(bytes(8)).readinto(of(source)[:, ::2])
    with pytest.raises(BufferError, match="contiguous"):
        np.frombuffer(of(source)[:, ::2], "u1")


class Request(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    )


get_buffer = ctypes.pythonapi.PyObject_GetBuffer
get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(Request), ctypes.c_int]
release_buffer = ctypes.pythonapi.PyBuffer_Release
release_buffer.argtypes = [ctypes.POINTER(Request)]
release_buffer.restype = None

SIMPLE, WRITABLE, FORMAT, ND, STRIDES, C, F, ANY = 0, 1, 4, 8, 0x18, 0x38, 0x58, 0x98
LAYOUTS = {
    "C": np.zeros((2, 3)),
    "F": np.zeros((3, 2)).T,
    "both": np.zeros((1, 3)),
    "neither": np.zeros((4, 6))[::2, ::2],
    "no elements": np.zeros((4, 0, 6))[::2],
    "no axes": np.zeros(()),
}


@pytest.mark.parametrize("flags", [SIMPLE, ND, STRIDES, C, F, ANY], ids=["simple", "nd", "strides", "C", "F", "any"])
@pytest.mark.parametrize("source", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("more", [0, FORMAT, WRITABLE])
def test_what_is_asked_for_is_given_or_refused_as_numpy_does(source, flags, more):
    """Each combination of flags, compared with NumPy's result for the same memory."""

    def ask(array):
        buffer = Request(obj=None if array is source else 1)  # the previous value is not a reference
        try:
            get_buffer(array, buffer, flags | more)
        except (BufferError, ValueError):  # NumPy raises a ValueError, where the protocol says BufferError
            assert buffer.obj is None
            return None
        if array is not source:
            assert buffer.buf  # some consumers treat null as a failure, also for an array without elements
            assert buffer.ndim == (source.ndim if flags else 1)  # NumPy states the number of axes also without a shape
        axes = range(buffer.ndim)
        answer = {
            "len": buffer.len,
            "itemsize": buffer.itemsize,
            "format": buffer.format,
            "shape": [buffer.shape[axis] for axis in axes] if buffer.shape else None,
            "strides": bool(buffer.strides),
            "buf": buffer.buf if array.size else None,
        }
        release_buffer(buffer)
        return answer

    given, expected = ask(of(source)), ask(source)
    assert given == expected


def test_read_only_memory_stays_so():
    readonly = Array.full((2, 2), 1.0, readonly=True)
    view = memoryview(readonly)
    assert view.readonly
    with pytest.raises(TypeError, match="read-only"):
        view[0, 0] = 2.0
    with pytest.raises(BufferError, match="`readonly`: found a read-only array"):
        get_buffer(readonly, Request(), WRITABLE)
    assert not np.asarray(readonly).flags.writeable
    assert not np.frombuffer(readonly, "f4").flags.writeable


def test_writing_goes_through():
    array = Array.full((2, 2), 1.0)
    memoryview(array)[1, 1] = 5.0
    assert interop_demo.checksum(array) == 8.0
    np.asarray(array)[:] = 2.0
    assert interop_demo.checksum(array) == 8.0


def test_a_view_keeps_the_array_and_gives_it_back():
    view = memoryview(Array.full((1000,), 2.0))
    gc.collect()
    assert interop_demo.live_exports() == 1
    assert view[999] == 2.0
    slices = [view[start:] for start in range(5)]
    view.release()
    assert slices[3][0] == 2.0
    del slices
    gc.collect()
    assert interop_demo.live_exports() == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python has no `__buffer__`; 3.12 has")
def test_the_method_of_pep_688():
    array = Array.full((2,), 1.0, readonly=True)
    view = array.__buffer__(STRIDES | FORMAT)
    with pytest.raises(BufferError, match="`readonly`: found a read-only array"):
        array.__buffer__(WRITABLE)
    with pytest.raises(TypeError):
        array.__buffer__("all")
    del array
    gc.collect()
    assert view.tolist() == [1.0, 1.0]


def test_results_of_rust_functions_have_it_too():
    edges = interop_demo.edges(np.ones((3, 4, 3), "f4"))
    view = memoryview(edges)
    assert (view.shape, view.readonly, view.tolist()) == ((3, 4, 3), False, np.zeros((3, 4, 3)).tolist())


def test_bools_that_rust_code_reads_unchecked_are_read_only():
    """A consumer may write other bytes, and the drop of a Rust struct would read them as bools."""
    flags = interop_demo._bools_in_a_vector(np.array([True, False]))
    for view in (np.asarray(flags), np.from_dlpack(flags)):
        assert (view.tolist(), view.flags.writeable) == ([True, False], False)
    with pytest.raises(BufferError, match="a read-only array"):
        get_buffer(flags, Request(), WRITABLE | STRIDES)


def test_what_lies_between_fields_stays_in_the_process():
    """The padding of a struct may hold old data."""
    with pytest.raises(BufferError, match="7 bytes of padding, the first at byte 1 of an element"):
        memoryview(interop_demo._hits())
    packed = np.asarray(interop_demo._packed_hits())
    assert (packed["detector"].tolist(), packed["energy"].tolist(), packed.dtype.itemsize) == ([1], [0.5], 16)


@pytest.mark.parametrize("make", [of, interop_demo._in_a_vector], ids=["Array", "returned"])
@pytest.mark.parametrize("use", [memoryview, lambda array: array.__dlpack__(copy=True)], ids=["buffer", "copy"])
def test_not_while_rust_code_writes(make, use):
    array = make(np.zeros((500, 500, 3), "f4"))
    assert np.asarray(array).shape == (500, 500, 3)
    refusals = []
    work = threading.Thread(target=lambda: [interop_demo.blur_(array, 1) for _ in range(100) if not refusals])
    work.start()
    while work.is_alive() and not refusals:
        try:
            use(array)
        except BufferError as error:
            refusals.append(str(error))
    work.join()
    assert "found a writer of" in refusals[0] and refusals[0].endswith("if one call gets the same array twice")
    use(array)  # the Rust view has ended


def test_not_to_write_to_while_rust_code_reads():
    array = of(np.zeros((1, 1, 3), "f4"))
    view = interop_demo._while_read(array, lambda: memoryview(array).tolist())
    assert view == [[[0.0, 0.0, 0.0]]]
    with pytest.raises(BufferError, match="found a reader of"):
        interop_demo._while_read(array, lambda: get_buffer(array, Request(), WRITABLE | STRIDES))
    memory = Request()
    get_buffer(array, memory, WRITABLE | STRIDES)
    release_buffer(memory)


def test_a_derived_class_has_the_memory_that_it_inherits():
    """Also a class that was created before its base became an array class: up to 3.11 a class copies its base's
    functions.
    """
    ours = interop_demo._Titled("dawn")
    assert (ours.title, memoryview(ours).tolist()) == ("dawn", [1.0, 2.0])


def test_a_derived_class_with_an_array_of_its_own():
    """Each protocol gives the same memory; the buffer protocol used that of the base."""
    ours = interop_demo._Levels()
    view = memoryview(ours)
    assert (view.format, view.tolist()) == ("B", [7, 8, 9])
    assert np.asarray(ours).tolist() == np.from_dlpack(ours).tolist() == [7, 8, 9]
    assert np.shares_memory(np.asarray(view), np.from_dlpack(ours))


def test_an_object_that_keeps_a_buffer_of_its_own_is_collected():
    """From Python 3.12 on the memoryview was of an object that the collector could not traverse."""

    class Mine(interop_demo._Titled):
        pass

    before = interop_demo.live_allocations(), interop_demo.live_exports()
    mine = Mine("song")
    mine.view, mine.part = memoryview(mine), memoryview(mine)[1:]
    gc.collect()
    assert mine.view.tolist() == [1, 2] and interop_demo.live_allocations() == before[0] + 1
    del mine
    gc.collect()
    assert (interop_demo.live_allocations(), interop_demo.live_exports()) == before


@pytest.mark.parametrize(("shape", "strides"), [((0,), (8,)), ((0, 3), (24, 8)), ((3, 0), (8, 8)), ((2, 0, 5), (40, 40, 8))])
@pytest.mark.parametrize("stride", [0, 8, -24, 1 << 40])
def test_arrays_without_elements_are_contiguous(shape, strides, stride):
    """NumPy 2.5 gives them strides of 0, which Python compares."""
    array = of(np.lib.stride_tricks.as_strided(np.empty(0), shape, (stride,) * len(shape)))
    view = memoryview(array)
    assert (view.shape, view.strides) == (shape, strides)
    assert view.c_contiguous and view.f_contiguous and view.contiguous
    # Python casts no other shape with a zero in it.
    assert view.ndim > 1 or view.cast("B").nbytes == 0
    assert bytes(array) == b""
    assert hashlib.sha256(array).digest() == hashlib.sha256(b"").digest()
    assert io.BytesIO().write(array) == 0
    assert np.asarray(array).shape == shape
