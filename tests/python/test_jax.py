"""JAX and Rust on the same memory, in both directions: JAX uses memory in place if it is aligned to 64 bytes (bug
88).
"""

import os

import interop_demo
import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
ml_dtypes = pytest.importorskip("ml_dtypes")

Array = interop_demo.Array
DTYPES = ["|b1", "|i1", "<i2", "<i4", "|u1", "<u2", "<u4", "<f2", "<f4", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (3, 1, 5)], ids=repr)
def test_rust_to_jax(dtype, shape):
    array = Array.full(shape, 1, dtype)
    seen = jax.dlpack.from_dlpack(array)
    assert seen.shape == shape
    assert seen.dtype == (jax.numpy.bfloat16 if dtype == "bfloat16" else np.dtype(dtype))
    assert seen.unsafe_buffer_pointer() == interop_demo.describe(array)["data"]
    assert float(seen.astype("float32").sum()) == interop_demo.checksum(array) == seen.size
    del seen


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (3, 1, 5)], ids=repr)
def test_jax_to_rust(dtype, shape):
    """JAX exports everything as read-only, and its arrays must not be written."""
    source = jax.numpy.ones(shape, "bfloat16" if dtype == "bfloat16" else np.dtype(dtype))
    facts = interop_demo.describe(source)
    assert facts["data"] == source.unsafe_buffer_pointer()
    assert (facts["dtype"], facts["shape"], facts["device"]) == (dtype, shape, (1, 0))
    assert facts["nbytes"] == source.nbytes
    assert facts["readonly"] is True
    assert interop_demo.checksum(source) == source.size
    with pytest.raises(interop_demo.ArrayError):
        interop_demo.scale_(source, 2.0)


def test_there_and_back_again():
    source = jax.numpy.arange(24, dtype="float32").reshape(4, 6)
    array = interop_demo.asarray(source)
    assert interop_demo.describe(array)["data"] == source.unsafe_buffer_pointer()
    again = np.from_dlpack(array[1:, ::2])
    assert again.flags.writeable is False
    assert np.array_equal(again, np.asarray(source)[1:, ::2])
    del array, source
    assert again.sum() == sum(6 * row + column for row in (1, 2, 3) for column in (0, 2, 4))


def test_a_copy_is_made_by_jnp_array():
    """COMPATIBILITY.md says which call copies. If `copy=True` starts to, that entry must go."""
    array = Array.full((1000,), 1.0)
    address = interop_demo.describe(array)["data"]
    assert jax.numpy.array(array).unsafe_buffer_pointer() != address
    shared = jax.numpy.from_dlpack(array, copy=True)
    assert (shared.unsafe_buffer_pointer() == address) == (jax.__version_info__ < (0, 11))
    del shared


CONVERSIONS = {"asarray": jax.numpy.asarray, "stack": lambda array: jax.numpy.stack([array])[0]}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_the_functions_of_jax_numpy(convert, dtype):
    """They ask for `__jax_array__`."""
    array = Array.full((2, 3), 1, dtype)
    for source in (array, array[...], interop_demo.asarray(array)):
        seen = convert(source)
        assert isinstance(seen, jax.Array) and seen.shape == (2, 3) and float(seen.astype("float32").sum()) == 6.0
    assert convert(Array.full((0, 3), 0, dtype)).shape == (0, 3)


def test_writable_memory_is_used_in_place():
    array = Array.full((64,), 1.0)
    address = interop_demo.describe(array)["data"]
    assert jax.numpy.asarray(array).unsafe_buffer_pointer() == address
    assert jax.numpy.asarray(array[:32]).unsafe_buffer_pointer() == address


def test_read_only_memory_is_copied():
    """JAX may overwrite the memory of a donated argument, and before 0.12 it asks for a form without the flag."""
    numbers = np.arange(64, dtype="f4")
    numbers.flags.writeable = False
    lent = interop_demo.asarray(numbers)
    assert interop_demo.describe(lent)["readonly"] is True
    for seen in (jax.numpy.asarray(lent), interop_demo._as_jax(numbers), interop_demo._as_jax(jax.numpy.arange(64.0))):
        assert seen.tolist() == list(range(64))
        assert seen.unsafe_buffer_pointer() != interop_demo.describe(lent)["data"]
    changed = jax.jit(lambda x: x + 1, donate_argnums=0)(jax.numpy.asarray(lent))
    assert changed.tolist() == list(range(1, 65)) and numbers.tolist() == list(range(64))


TRACED = {"jit": jax.jit, "vmap": jax.vmap, "grad": jax.grad}


@pytest.mark.parametrize("trace", TRACED.values(), ids=TRACED)
def test_a_value_that_jax_traces_is_named(trace):
    """JAX says `DynamicJaxprTracer has no attribute __dlpack_device__`."""
    with pytest.raises(TypeError, match="^`array`: found jax.*Tracer, allowed: an array with values.*`jax.pure_callback`"):
        trace(interop_demo.checksum)(jax.numpy.ones(3))


def test_a_deleted_array_is_named():
    """JAX says `object of type 'NoneType' has no len()`."""
    array = jax.numpy.arange(8.0)
    assert interop_demo.checksum(array) == 28
    array.delete()
    with pytest.raises(TypeError, match="^`array`: found an array that JAX has deleted") as caught:
        interop_demo.checksum(array)
    assert caught.value.__cause__ is not None


def test_arrays_with_gaps_are_copied():
    numbers = interop_demo.asarray(np.arange(24, dtype="f4").reshape(4, 6))
    for part in (numbers[:, ::2], numbers[::-1], numbers[1, ::-1], numbers[:, 1:3]):
        assert np.array_equal(jax.numpy.asarray(part), np.asarray(part))


@pytest.mark.parametrize(
    "dtype",
    [
        "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
        "float8_e5m2fnuz", "float8_e8m0fnu", "complex64",
    ],
)
def test_types_that_numpy_does_not_exchange(dtype):
    """Bug 103: they go through Rust and back to JAX."""
    if not hasattr(jax.numpy, dtype):
        pytest.skip(f"this JAX has no {dtype}")
    source = jax.numpy.ones((4,), dtype)
    try:
        facts = interop_demo.describe(source)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        pytest.skip(f"this JAX does not export {dtype}: {error}")
    assert facts["dtype"] == ("<c8" if dtype == "complex64" else dtype)
    assert facts["nbytes"] == source.nbytes
    assert facts["data"] == source.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_padded_elements_go_by_numpy(dtype):
    """The form that JAX asks for before 0.12 has none, and the refusal says what to pass."""
    lent = interop_demo.asarray(np.ones(3, getattr(ml_dtypes, dtype)))
    try:
        seen = jax.numpy.asarray(lent)
    except interop_demo.ArrayError as error:
        assert "as JAX does, pass `numpy.asarray(x)`" in str(error)
        seen = jax.numpy.asarray(np.asarray(lent))
    assert seen.dtype == dtype and seen.astype("float32").tolist() == [1, 1, 1]


def test_empty_arrays():
    assert interop_demo.describe(jax.numpy.zeros((0, 3)))["data"] == 0
    assert jax.dlpack.from_dlpack(Array.full((0, 3), 0.0)).shape == (0, 3)


def test_jax_copies_what_it_cannot_use_in_place():
    """JAX refuses or copies a strided view; either way the numbers are right and nothing leaks."""
    array = Array.full((8, 8), 3.0)[1::2, ::3]
    try:
        seen = jax.dlpack.from_dlpack(array)
    except Exception as error:  # JAX chooses the class
        assert "stride" in str(error).lower() or "layout" in str(error).lower()
    else:
        assert float(seen.sum()) == interop_demo.checksum(array)


def test_a_thousand_trips_leave_nothing():
    array = Array.full((64,), 1.0)
    for _ in range(1000):
        interop_demo.asarray(jax.dlpack.from_dlpack(array))
