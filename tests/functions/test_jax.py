"""What the functions of `hello-functions` do under `jax.jit`, `vmap` and `grad`, and with errors."""

import jax
import jax.numpy as jnp
import jax_tvm_ffi
import numpy as np
import pytest

from hello_functions.for_jax import scale, scaled

X = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)


def test_vmap_of_each_method():
    for method in ("broadcast_all", "expand_dims", "sequential"):
        result = jax.ShapeDtypeStruct((3, 4), jnp.float32)
        call = jax.ffi.ffi_call("hello_functions.scaled", result, vmap_method=method)
        assert (jax.vmap(lambda x, call=call: call(x, factor=np.float32(2.5)))(X) == 2.5 * X).all()
    assert (jax.jit(jax.vmap(jax.vmap(lambda x: scaled(x, 2.5))))(X) == 2.5 * X).all()


def test_an_argument_in_whose_memory_the_result_is():
    before = np.array(X)
    assert (jax.jit(lambda x: scale(x, 3.0))(X) == 3 * before).all() and (X == before).all()
    donated = jnp.array(before)
    assert (jax.jit(lambda x: scale(x, 3.0), donate_argnums=0)(donated) == 3 * before).all()


def test_gradients():
    assert (jax.jit(jax.grad(lambda x: scaled(x, 2.5).sum()))(X) == 2.5).all()


def test_numbers_of_python():
    """They are arrays without axes, as for functions of JAX; so `jax.grad` passes them."""
    assert scaled(3.0, 2.0) == 6.0 and scale(3.0, 2.0) == 6.0
    assert jax.grad(lambda x: scaled(x, 2.0) * x)(3.0) == 12.0 and jax.grad(jax.grad(lambda x: scaled(x, 2.0) * x))(3.0) == 4.0


def test_errors_arrive():
    for dtype in (jnp.int32, jnp.bfloat16):
        with pytest.raises(Exception, match=r"allowed: float32 \(from argument `from` of `scale_into`\)"):
            jax.block_until_ready(jax.jit(lambda x: scaled(x, 2.0))(X.astype(dtype)))
    assert (scaled(X, 2.0) == 2 * X).all()


def test_an_error_of_python_names_the_function():
    for function, name in ((scaled, "scaled"), (scale, "scale")):
        with pytest.raises(TypeError, match=rf"\b{name}\b(.|\n)*missing"):
            function(X)


def test_a_panic_arrives(f):
    jax_tvm_ffi.register_ffi_target("tests.explode", f.explode, arg_spec=["args"], platform="cpu")
    with pytest.raises(Exception, match="`explode` panicked: row of 4"):
        jax.block_until_ready(jax.ffi.ffi_call("tests.explode", (), has_side_effect=True)(X[0, 0]))


def test_no_elements():
    assert scaled(X[:0], 2.0).shape == (0, 3, 4)


def test_an_array_that_is_passed_directly_is_written():
    """TVM FFI passes the immutable arrays of JAX as writable, and tells nothing else. The page says so."""
    array = jnp.ones(3)
    import hello_functions

    hello_functions.scale_(array, 2.0)
    assert np.asarray(array).tolist() == [2.0] * 3
