//! Type hints of derived structs for `maturin generate-stubs` (feature `stubs`). They use the types of
//! `interop_core-stubs`.

use pyo3::inspect::PyStaticExpr;
use pyo3::{type_hint_identifier, type_hint_subscript};

/// The type of an argument.
pub const ANY_ARRAY: PyStaticExpr = type_hint_identifier!("interop_core", "AnyArray");

/// The type of a return value.
pub const EXPORTED_ARRAY: PyStaticExpr = type_hint_identifier!("interop_core", "ExportedArray");

/// The type of an argument that is converted.
pub const ARRAY_LIKE: PyStaticExpr = type_hint_identifier!("interop_core", "AnyArrayLike");

/// The type of the constant `ArrayError` of a module.
pub const ARRAY_ERROR: PyStaticExpr = type_hint_subscript!(
    type_hint_identifier!("builtins", "type"),
    type_hint_identifier!("interop_core", "ArrayError")
);

/// The type of the constant `StreamError` of a module.
pub const STREAM_ERROR: PyStaticExpr = type_hint_subscript!(
    type_hint_identifier!("builtins", "type"),
    type_hint_identifier!("interop_core", "StreamError")
);

/// The type of an interface dict.
pub const INTERFACE_DICT: PyStaticExpr = type_hint_subscript!(
    type_hint_identifier!("builtins", "dict"),
    type_hint_identifier!("builtins", "str"),
    ANYTHING
);

/// The type of a result whose library depends on the argument.
pub const ANYTHING: PyStaticExpr = type_hint_identifier!("typing", "Any");

/// The type of a [`NumPy`](crate::python::NumPy) result.
pub const NUMPY_ARRAY: PyStaticExpr =
    type_hint_subscript!(type_hint_identifier!("numpy.typing", "NDArray"), ANYTHING);

/// The type of a [`PyTorch`](crate::python::PyTorch) result.
pub const TORCH_TENSOR: PyStaticExpr = type_hint_identifier!("torch", "Tensor");

/// The type of a [`CuPy`](crate::python::CuPy) result.
pub const CUPY_ARRAY: PyStaticExpr = type_hint_identifier!("cupy", "ndarray");

/// The type of a [`Jax`](crate::python::Jax) result.
pub const JAX_ARRAY: PyStaticExpr = type_hint_identifier!("jax", "Array");
