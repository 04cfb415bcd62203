//! Type hints of derived structs for `maturin generate-stubs` (feature `stubs`). They use the types of
//! `interop_core-stubs`.

use core::marker::PhantomData;

use pyo3::inspect::{PyStaticConstant, PyStaticExpr};
use pyo3::prelude::*;
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::python::class::array_class::ArrayClass;
use crate::python::class::install::install;

/// The type of an argument.
pub const ANY_ARRAY: PyStaticExpr = type_hint_identifier!("interop_core", "AnyArray");

/// The type of a return value.
pub const EXPORTED_ARRAY: PyStaticExpr = type_hint_identifier!("interop_core", "ExportedArray");

/// The type of an attribute.
pub trait Hint {
    const HINT: PyStaticExpr;
}

macro_rules! hints {
    ($($name:ident = $hint:expr;)*) => {
        $(
            #[derive(Debug)]
            pub enum $name {}

            impl Hint for $name {
                const HINT: PyStaticExpr = $hint;
            }
        )*
    };
}

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

const ELLIPSIS: PyStaticExpr = PyStaticExpr::Constant { value: PyStaticConstant::Ellipsis };

const INT: PyStaticExpr = type_hint_identifier!("builtins", "int");

hints! {
    Anything = ANYTHING;
    Extents = type_hint_subscript!(type_hint_identifier!("builtins", "tuple"), INT, ELLIPSIS);
    Method = type_hint_subscript!(type_hint_identifier!("collections.abc", "Callable"), ELLIPSIS, ANYTHING);
    Number = INT;
    Text = type_hint_identifier!("builtins", "str");
}

/// A method or attribute that a class has because it is an array.
///
/// It is declared as a constant of the class, so that stubs contain it. Converting it returns the existing attribute,
/// so the class does not change.
#[derive(Debug)]
pub struct CachedType<T, H>(pub &'static str, pub PhantomData<fn() -> (T, H)>);

impl<'py, T: ArrayClass, H: Hint> IntoPyObject<'py> for CachedType<T, H> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    const OUTPUT_TYPE: PyStaticExpr = H::HINT;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let own = py.get_type::<T>().getattr("__dict__")?;
        if !own.contains(self.0)? {
            install::<T>(py)?;
        }
        // A mapping has no iteration by index. `None` in place of the method states that.
        if own.contains(self.0)? { own.get_item(self.0) } else { Ok(py.None().into_bound(py)) }
    }
}

/// Declares the attributes of an array class for stubs.
#[doc(hidden)]
#[macro_export]
macro_rules! __python_class_hints {
    ([$type:ty] $pyo3:literal) => {
        $crate::__python_class_hints! {
            [$type] $pyo3
            __INTEROP_DLPACK_METHOD = "__dlpack__" Method,
            __INTEROP_DLPACK_DEVICE_METHOD = "__dlpack_device__" Method,
            __INTEROP_ARRAY_METHOD = "__array__" Method,
            __INTEROP_ARRAY_UFUNC_METHOD = "__array_ufunc__" Method,
            __INTEROP_GETITEM_METHOD = "__getitem__" Method,
            __INTEROP_SETITEM_METHOD = "__setitem__" Method,
            __INTEROP_LEN_METHOD = "__len__" Method,
            __INTEROP_ITER_METHOD = "__iter__" Method,
            __INTEROP_CONTAINS_METHOD = "__contains__" Method,
            __INTEROP_COPY_METHOD = "__copy__" Method,
            __INTEROP_DEEPCOPY_METHOD = "__deepcopy__" Method,
            __INTEROP_FLOAT_METHOD = "__float__" Method,
            __INTEROP_INT_METHOD = "__int__" Method,
            __INTEROP_COMPLEX_METHOD = "__complex__" Method,
            __INTEROP_BOOL_METHOD = "__bool__" Method,
            __INTEROP_ADD_METHOD = "__add__" Method,
            __INTEROP_RADD_METHOD = "__radd__" Method,
            __INTEROP_SUB_METHOD = "__sub__" Method,
            __INTEROP_RSUB_METHOD = "__rsub__" Method,
            __INTEROP_MUL_METHOD = "__mul__" Method,
            __INTEROP_RMUL_METHOD = "__rmul__" Method,
            __INTEROP_TRUEDIV_METHOD = "__truediv__" Method,
            __INTEROP_RTRUEDIV_METHOD = "__rtruediv__" Method,
            __INTEROP_FLOORDIV_METHOD = "__floordiv__" Method,
            __INTEROP_RFLOORDIV_METHOD = "__rfloordiv__" Method,
            __INTEROP_MOD_METHOD = "__mod__" Method,
            __INTEROP_RMOD_METHOD = "__rmod__" Method,
            __INTEROP_MATMUL_METHOD = "__matmul__" Method,
            __INTEROP_RMATMUL_METHOD = "__rmatmul__" Method,
            __INTEROP_POW_METHOD = "__pow__" Method,
            __INTEROP_RPOW_METHOD = "__rpow__" Method,
            __INTEROP_AND_METHOD = "__and__" Method,
            __INTEROP_RAND_METHOD = "__rand__" Method,
            __INTEROP_OR_METHOD = "__or__" Method,
            __INTEROP_ROR_METHOD = "__ror__" Method,
            __INTEROP_XOR_METHOD = "__xor__" Method,
            __INTEROP_RXOR_METHOD = "__rxor__" Method,
            __INTEROP_LSHIFT_METHOD = "__lshift__" Method,
            __INTEROP_RLSHIFT_METHOD = "__rlshift__" Method,
            __INTEROP_RSHIFT_METHOD = "__rshift__" Method,
            __INTEROP_RRSHIFT_METHOD = "__rrshift__" Method,
            __INTEROP_DIVMOD_METHOD = "__divmod__" Method,
            __INTEROP_RDIVMOD_METHOD = "__rdivmod__" Method,
            __INTEROP_NEG_METHOD = "__neg__" Method,
            __INTEROP_POS_METHOD = "__pos__" Method,
            __INTEROP_ABS_METHOD = "__abs__" Method,
            __INTEROP_INVERT_METHOD = "__invert__" Method,
            __INTEROP_LT_METHOD = "__lt__" Method,
            __INTEROP_LE_METHOD = "__le__" Method,
            __INTEROP_GT_METHOD = "__gt__" Method,
            __INTEROP_GE_METHOD = "__ge__" Method,
            __INTEROP_AS_DEVICE = "relabel_as_device" Method,
            __INTEROP_AS_HOST = "relabel_as_host" Method,
            __INTEROP_TRANSPOSE = "transpose" Method,
            __INTEROP_RESHAPE = "reshape" Method,
            __INTEROP_ALL = "all" Method,
            __INTEROP_ANY = "any" Method,
            __INTEROP_ARGMAX = "argmax" Method,
            __INTEROP_ARGMIN = "argmin" Method,
            __INTEROP_ARGSORT = "argsort" Method,
            __INTEROP_ASTYPE = "astype" Method,
            __INTEROP_CLIP = "clip" Method,
            __INTEROP_CONJ = "conj" Method,
            __INTEROP_CUMPROD = "cumprod" Method,
            __INTEROP_CUMSUM = "cumsum" Method,
            __INTEROP_DIAGONAL = "diagonal" Method,
            __INTEROP_DOT = "dot" Method,
            __INTEROP_FLATTEN = "flatten" Method,
            __INTEROP_ITEM = "item" Method,
            __INTEROP_MAX = "max" Method,
            __INTEROP_MEAN = "mean" Method,
            __INTEROP_MIN = "min" Method,
            __INTEROP_NONZERO = "nonzero" Method,
            __INTEROP_PROD = "prod" Method,
            __INTEROP_RAVEL = "ravel" Method,
            __INTEROP_REPEAT = "repeat" Method,
            __INTEROP_ROUND = "round" Method,
            __INTEROP_SQUEEZE = "squeeze" Method,
            __INTEROP_STD = "std" Method,
            __INTEROP_SUM = "sum" Method,
            __INTEROP_SWAPAXES = "swapaxes" Method,
            __INTEROP_TAKE = "take" Method,
            __INTEROP_TOBYTES = "tobytes" Method,
            __INTEROP_TOLIST = "tolist" Method,
            __INTEROP_TRACE = "trace" Method,
            __INTEROP_VAR = "var" Method,
            __INTEROP_IADD_METHOD = "__iadd__" Method,
            __INTEROP_ISUB_METHOD = "__isub__" Method,
            __INTEROP_IMUL_METHOD = "__imul__" Method,
            __INTEROP_ITRUEDIV_METHOD = "__itruediv__" Method,
            __INTEROP_IFLOORDIV_METHOD = "__ifloordiv__" Method,
            __INTEROP_IMOD_METHOD = "__imod__" Method,
            __INTEROP_IMATMUL_METHOD = "__imatmul__" Method,
            __INTEROP_IPOW_METHOD = "__ipow__" Method,
            __INTEROP_ILSHIFT_METHOD = "__ilshift__" Method,
            __INTEROP_IRSHIFT_METHOD = "__irshift__" Method,
            __INTEROP_IAND_METHOD = "__iand__" Method,
            __INTEROP_IOR_METHOD = "__ior__" Method,
            __INTEROP_IXOR_METHOD = "__ixor__" Method,
            __INTEROP_ARRAY_INTERFACE = "__array_interface__" Anything,
            __INTEROP_CUDA_ARRAY_INTERFACE = "__cuda_array_interface__" Anything,
            __INTEROP_SHAPE = "shape" Extents,
            __INTEROP_NDIM = "ndim" Number,
            __INTEROP_SIZE = "size" Number,
            __INTEROP_NBYTES = "nbytes" Number,
            __INTEROP_ITEMSIZE = "itemsize" Anything,
            __INTEROP_STRIDES = "strides" Anything,
            __INTEROP_DTYPE = "dtype" Anything,
            __INTEROP_T = "T" Anything,
            __INTEROP_DEVICE = "device" Text,
        }
    };
    ([$type:ty] $pyo3:literal $($constant:ident = $name:literal $hint:ident,)*) => {
        #[$crate::__private::python::pyo3::pymethods]
        #[pyo3(crate = $pyo3)]
        #[allow(dead_code)]
        impl $type {
            $(
                #[classattr]
                #[pyo3(name = $name)]
                const $constant: $crate::__private::python::hints::CachedType<$type, $crate::__private::python::hints::$hint> =
                    $crate::__private::python::hints::CachedType($name, $crate::__private::PhantomData);
            )*
        }
    };
}
