"""Arrays with more than 2^32 elements, and with larger distances between them: any arithmetic in 32 bits gives wrong
results here.
"""

import ctypes

import driver
import interop_demo
import numpy as np
import pytest

GIB = 1 << 30
MANY = (1 << 32) + 5


def array_of(address, shape):
    """An array of bytes in our own memory."""
    return interop_demo.asarray(driver.Interface(address, shape, typestr="|u1"))


@pytest.fixture
def memory():
    """Returns a function that allocates this many bytes on the GPU, all of one value. Skips the test if memory is
    short.
    """
    driver.library()
    made = []

    def new(bytes, value):
        free = driver.free_memory()
        if free < bytes + GIB:
            pytest.skip(f"{free >> 30} GiB of the GPU are free; this takes {bytes >> 30} GiB")
        address = driver.answer("cuMemAlloc_v2", ctypes.c_size_t(bytes))
        made.append(address)
        driver.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(bytes))
        return address

    yield new
    driver.synchronize()
    for address in made:
        driver.free(address)


def at(address, *places):
    """Returns the bytes at these offsets."""
    return [driver.read(address + place, 1)[0] for place in places]


def test_every_element_is_met(memory):
    address = memory(MANY + 1, 1)
    array = array_of(address, MANY)
    assert (len(array), interop_demo.describe(array)["nbytes"]) == (MANY, MANY)
    assert interop_demo.checksum(array) == MANY
    interop_demo.scale_(array, 3.0)
    assert interop_demo.checksum(array) == 3 * MANY
    assert at(address, 0, 1 << 31, 1 << 32, MANY - 1, MANY) == [3, 3, 3, 3, 1], "the last byte is not the array's"
    with pytest.raises(interop_demo.ArrayError, match="allocation"):
        array_of(address, MANY + 2 * GIB)


def test_strides_of_more_than_32_bits(memory):
    """The corners of a square whose rows are 8 GiB apart, with positive and with negative strides."""
    row = 8 * GIB + 16
    address = memory(row + 12, 0)
    for corner in (0, 8, row, row + 8):
        driver.write(address + corner, bytearray(np.float32(2).tobytes()))
    array = interop_demo.asarray(driver.Interface(address, (2, 2), strides=(row, 8)))
    assert (array.strides, interop_demo.checksum(array)) == ((row, 8), 8)
    turned = interop_demo.asarray(array[::-1, ::-1])
    assert interop_demo.describe(turned)["data"] == address + row + 8
    assert turned.__cuda_array_interface__["strides"] == (-row, -8)
    interop_demo.scale_(turned, 0.5)
    found = [np.frombuffer(driver.read(address + place, 12), np.float32).tolist() for place in (0, row)]
    assert found == [[1, 0, 1]] * 2
    assert interop_demo.checksum(interop_demo.asarray(array)[1]) == 2


def test_parts_that_begin_beyond_32_bits(memory):
    address = memory(MANY, 1)
    rest = array_of(address, MANY)[1 << 32 :]
    interop_demo.scale_(rest, 9.0)
    again = interop_demo.asarray(rest)
    assert (again.shape, interop_demo.describe(again)["data"]) == ((5,), address + (1 << 32))
    assert at(address, 0, (1 << 32) - 1, 1 << 32, MANY - 1) == [1, 1, 9, 9]


def test_copies_to_the_host_are_whole(memory):
    address = memory(MANY, 1)
    array = array_of(address, MANY)
    interop_demo.scale_(array[-1:], 7.0)
    copy = np.from_dlpack(array, device="cpu", copy=True)
    assert (copy.shape, copy[0], copy[1 << 31], copy[-2], copy[-1]) == ((MANY,), 1, 1, 1, 7)
    assert copy.ctypes.data != address


@pytest.mark.parametrize("partner", ["torch", "cupy"])
def test_partners_see_every_element(memory, partner):
    library = pytest.importorskip(partner, exc_type=ImportError)
    address = memory(MANY, 1)
    array = array_of(address, MANY)
    theirs = library.from_dlpack(array)
    theirs[-1] = 7
    if partner == "cupy":
        library.cuda.Device(0).synchronize()
    else:
        library.cuda.synchronize()
    assert (theirs.shape[0], at(address, MANY - 2, MANY - 1)) == (MANY, [1, 7])
    back = interop_demo.asarray(theirs)
    assert interop_demo.describe(back)["data"] == address
    assert interop_demo.checksum(back) == MANY + 6


@pytest.mark.parametrize(
    "shape",
    [(50_000, 49_984, 1), (50_000, 25_000, 2), ((1 << 31) + 8, 16, 1)],
    ids=["many pixels", "two channels", "many rows"],
)
def test_a_blur_of_a_large_image(memory, shape):
    """A blurred image of one colour is unchanged; a pixel next to a changed last pixel is the mean of both."""
    height, width, channels = shape
    bytes = height * width * channels
    source, target = memory(bytes, 9), memory(bytes, 0)
    last = bytes - 1
    driver.write(source + last, bytearray([90]))
    arguments = [driver.View3.of(source, shape), driver.View3.of(target, shape)]
    driver.launch(driver.kernel("blur_u8", "kernels"), 1, arguments, threads=256 * 4096)
    driver.synchronize()
    # Beyond the edges a pixel is repeated: the corner counts four times in its own mean, twice in those beside it,
    # once diagonally.
    row = width * channels
    places = (0, bytes // 2, last - row - channels, last - row, last - channels, last)
    assert at(target, *places) == [9, 9, 18, 27, 27, 45]
    sums = interop_demo.checksum(array_of(target, bytes))
    assert sums == 9 * bytes + 9 + 18 + 18 + 36
