//! What expanded code calls. No stable interface: the derive is pinned to the same version.

pub use core::default::Default;
pub use core::marker::{Copy, PhantomData, Send, Sync};
pub use core::option::Option::{None, Some};
pub use core::result::Result::Ok;

pub use crate::array::CudaArray;
pub use crate::arrival::{Arrival, Wanted};
pub use crate::device::DeviceType;
pub use crate::element::{Element, ElementType};
pub use crate::error::{Error, Result};
pub use crate::facts::Facts;
pub use crate::from_array::FromArray;
pub use crate::gate::{Constant, Gate, IsPart, NoPart, Opened, Part, Unreached, constant, element};
pub use crate::layout::Order;
pub use crate::raw::RawMemory;
pub use crate::record::Field;
pub use crate::roles::{
    AsStream, DeviceField, Extent, FromOwner, FromStream, RawAddress, RawPointer, ShapeField, StridesField,
};
pub use crate::storage::{FromImport, Storage};

#[cfg(feature = "python")]
pub use crate::python::expansion as python;

pub use crate::{__python_class as python_class, __python_conversions as python_conversions};

/// The expansion of `#[cuda_array(python)]`.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_conversions {
    (quiet $($rest:tt)*) => {
        $crate::__python_conversions! { $($rest)* }
    };
    (export: $export:tt, import: $import:tt, generics: [$($generics:tt)*], type: $type:ty, bounds: [$($bounds:tt)*] $(,)?) => {
        $crate::__python_export! { $export [$($generics)*] [$type] [$($bounds)*] }
        $crate::__python_import! { $import [$($generics)*] [$type] [$($bounds)*] }
    };
}

/// The return value half of `python`.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_export {
    (false $($rest:tt)*) => {};
    (true [$($generics:tt)*] [$type:ty] [$($bounds:tt)*]) => {
        #[automatically_derived]
        impl<'py, $($generics)*> $crate::__private::python::IntoPyObject<'py> for $type
        where
            $($bounds)*
            Self: $crate::CudaArray,
        {
            type Target = $crate::__private::python::PyAny;
            type Output = $crate::__private::python::Bound<'py, Self::Target>;
            type Error = $crate::__private::python::PyErr;

            fn into_pyobject(
                self,
                py: $crate::__private::python::Python<'py>,
            ) -> $crate::Result<Self::Output, Self::Error> {
                $crate::__private::python::into_object(py, self)
            }
        }
    };
}

/// The argument half of `python`.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_import {
    (false $($rest:tt)*) => {};
    (true [$($generics:tt)*] [$type:ty] [$($bounds:tt)*]) => {
        #[automatically_derived]
        impl<'a, 'py, $($generics)*> $crate::__private::python::FromPyObject<'a, 'py> for $type
        where
            $($bounds)*
            Self: $crate::FromArray,
        {
            type Error = $crate::__private::python::PyErr;

            fn extract(
                object: $crate::__private::python::Borrowed<'a, 'py, $crate::__private::python::PyAny>,
            ) -> $crate::Result<Self, Self::Error> {
                $crate::__private::python::import_as(&object)
            }
        }
    };
}

/// The expansion of `#[cuda_array(pyclass)]`.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_class {
    (quiet $($rest:tt)*) => {
        $crate::__python_class! { $($rest)* }
    };
    (type: $type:ty $(,)?) => {
        #[automatically_derived]
        impl $crate::__private::python::ArrayMethods for $type {}
        const _: () = $crate::__private::python::class_of_arrays::<$type>();
    };
}

/// Says which feature is missing, unless the word had a message before.
#[cfg(not(feature = "python"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_conversions {
    (quiet $($any:tt)*) => {};
    ($($any:tt)*) => {
        ::core::compile_error!("`python` needs the feature `python` of `interop-core`: write `features = [\"python\"]` in Cargo.toml");
    };
}

/// Says which feature is missing, unless the word had a message before.
#[cfg(not(feature = "python"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_class {
    (quiet $($any:tt)*) => {};
    ($($any:tt)*) => {
        ::core::compile_error!("`pyclass` needs the feature `python` of `interop-core`: write `features = [\"python\"]` in Cargo.toml");
    };
}
