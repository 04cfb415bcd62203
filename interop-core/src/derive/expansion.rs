//! Items that expanded code uses. The interface is not stable: the derive is pinned to the same version.

pub use crate::array::device::DeviceType;
pub use crate::array::dispatch::optional::{BF16, Complex64, Complex128, F16};
pub use crate::array::dispatch::{HasDType, unlisted};
pub use crate::array::element::{Element, ElementType, Field};
pub use crate::array::layout::order::Order;
pub use crate::array::stream_handle::StreamHandle;
pub use crate::derive::bare_tensor::BorrowedFor;
pub use crate::derive::cuda_array::CudaArray;
pub use crate::derive::fields::axes::{ComputedExtent, Extent, ShapeField, StridesField};
pub use crate::derive::fields::raw_memory::{DeviceField, FromOwner, RawAddress, RawMemory, RawPointer};
pub use crate::derive::fields::stream::{AsStream, FromStream};
pub use crate::derive::from_array::FromArray;
pub use crate::derive::same_extent::compare_extents;
pub use crate::derive::single_error::{
    AnyContext, Constant, FieldElement, FieldProbe, KnownField, NeverCalled, UnknownField, check_context,
    constant, refuse_reference,
};
pub use crate::error::{Error, Result};
pub use crate::memory::extraction::{CheckedStorage, DataField, Extraction, FromImport, Requirements};
pub use crate::memory::storage::Storage;
pub use crate::order::array_info::ArrayInfo;
pub use crate::{__python_class as python_class, __python_conversions as python_conversions};
pub use core::default::Default;
pub use core::marker::{Copy, PhantomData, Send, Sync};
pub use core::option::Option::{self, None, Some};
pub use core::result::Result::Ok;

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

/// The part of `python` for return values: a conversion to a Python object.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_export {
    (false $($rest:tt)*) => {};
    (true [$($generics:tt)*] [$type:ty] [$($bounds:tt)*]) => {
        #[automatically_derived]
        impl<'py, $($generics)*> $crate::__private::python::pyo3::IntoPyObject<'py> for $type
        where
            $($bounds)*
            Self: $crate::CudaArray,
        {
            type Target = $crate::__private::python::pyo3::PyAny;
            type Output = $crate::__private::python::pyo3::Bound<'py, Self::Target>;
            type Error = $crate::__private::python::pyo3::PyErr;
            $crate::__python_hint! { OUTPUT_TYPE EXPORTED_ARRAY }

            fn into_pyobject(
                self,
                py: $crate::__private::python::pyo3::Python<'py>,
            ) -> $crate::Result<Self::Output, Self::Error> {
                $crate::__private::python::into_object(py, self)
            }
        }
    };
}

/// The part of `python` for arguments: a conversion from a Python object.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_import {
    (false $($rest:tt)*) => {};
    (true [$($generics:tt)*] [$type:ty] [$($bounds:tt)*]) => {
        #[automatically_derived]
        impl<'a, 'py, $($generics)*> $crate::__private::python::pyo3::FromPyObject<'a, 'py> for $type
        where
            $($bounds)*
            Self: $crate::FromArray,
        {
            type Error = $crate::__private::python::pyo3::PyErr;
            $crate::__python_hint! { INPUT_TYPE ANY_ARRAY }

            fn extract(
                object: $crate::__private::python::pyo3::Borrowed<'a, 'py, $crate::__private::python::pyo3::PyAny>,
            ) -> $crate::Result<Self, Self::Error> {
                $crate::__private::python::import_as(&object)
            }
        }

        // Of a reference, PyO3 would advise one to a reference. These say what to write.
        $crate::__python_reference! { [] [$($generics)*] [$type] [$($bounds)*] }
        $crate::__python_reference! { [mut] [$($generics)*] [$type] [$($bounds)*] }
    };
}

/// Refuses a reference to an array as an argument, when the function is built. `cargo check` does not see it.
///
/// ```compile_fail
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], python)]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// #[pyfunction]
/// fn len_of(row: &Row<Lease<f32>>) -> usize { row.len }
///
/// Python::attach(|py| wrap_pyfunction!(len_of, py).map(drop)).unwrap();
/// ```
///
/// Without the `&` it is an argument:
///
/// ```
/// # use interop_core::{CudaArray, Lease};
/// # use pyo3::prelude::*;
/// #
/// # #[derive(CudaArray)]
/// # #[cuda_array(shape = [len], python)]
/// # struct Row<S> { #[cuda_array(data)] values: S, len: usize }
/// #[pyfunction]
/// fn len_of(row: Row<Lease<f32>>) -> usize { row.len }
/// # Python::initialize();
/// # Python::attach(|py| wrap_pyfunction!(len_of, py).map(drop)).unwrap();
/// ```
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_reference {
    ([$($mutable:tt)*] [$($generics:tt)*] [$type:ty] [$($bounds:tt)*]) => {
        #[automatically_derived]
        #[diagnostic::do_not_recommend]
        impl<'a, 'py, $($generics)*> $crate::__private::python::pyo3::FromPyObject<'a, 'py> for &'a $($mutable)* $type
        where
            $($bounds)*
        {
            type Error = $crate::__private::python::pyo3::PyErr;

            fn extract(
                _: $crate::__private::python::pyo3::Borrowed<'a, 'py, $crate::__private::python::pyo3::PyAny>,
            ) -> $crate::Result<Self, Self::Error> {
                $crate::__private::refuse_reference::<Self>()
            }
        }
    };
}

/// Adds the constant of a conversion that states its type for stubs.
#[cfg(feature = "stubs")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_hint {
    ($place:ident $hint:ident) => {
        const $place: $crate::__private::python::pyo3::inspect::PyStaticExpr =
            $crate::__private::python::hints::$hint;
    };
}

/// Adds nothing: without the feature `stubs`, PyO3 has no such constant.
#[cfg(all(feature = "python", not(feature = "stubs")))]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_hint {
    ($($any:tt)*) => {};
}

/// The expansion of `#[cuda_array(pyclass)]`.
#[cfg(feature = "python")]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_class {
    (quiet $($rest:tt)*) => {
        $crate::__python_class! { $($rest)* }
    };
    (type: $type:ty, pyo3: $pyo3:literal $(, storage: $storage:ty)?) => {
        #[automatically_derived]
        impl $crate::__private::python::ArrayMethods for $type {
            #[inline]
            fn of<'a>(object: &'a $crate::__private::python::pyo3::Bound<'_, Self>) -> &'a Self {
                $crate::__private::python::struct_of(object)
            }
        }
        $(
            const _: () = {
                use $crate::__private::AnyContext as _;
                $crate::__private::check_context(<$crate::__private::FieldProbe<$storage>>::NEEDS_CONTEXT);
            };
        )?
        // The receivers are objects, because a borrow of the struct panics on another thread if the class is
        // `unsendable`.
        #[$crate::__private::python::pyo3::pymethods]
        #[pyo3(crate = $pyo3)]
        impl $type {
            // The functions by which C code exchanges tensors with this class.
            #[classattr]
            #[pyo3(name = "__dlpack_c_exchange_api__")]
            fn interop_exchange_api(
                py: $crate::__private::python::pyo3::Python<'_>,
            ) -> $crate::__private::python::MethodResult<'_> {
                $crate::__private::python::exchange_api::<Self>(py)
            }

            /// A DLPack capsule of the array; see the array API standard.
            #[pyo3(name = "__dlpack__", signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
            fn interop_dlpack<'py>(
                slf: &$crate::__private::python::pyo3::Bound<'py, Self>,
                stream: $crate::__private::Option<&$crate::__private::python::pyo3::Bound<'py, $crate::__private::python::pyo3::PyAny>>,
                max_version: $crate::__private::Option<&$crate::__private::python::pyo3::Bound<'py, $crate::__private::python::pyo3::PyAny>>,
                dl_device: $crate::__private::Option<&$crate::__private::python::pyo3::Bound<'py, $crate::__private::python::pyo3::PyAny>>,
                copy: $crate::__private::Option<&$crate::__private::python::pyo3::Bound<'py, $crate::__private::python::pyo3::PyAny>>,
            ) -> $crate::__private::python::MethodResult<'py> {
                $crate::__private::python::dlpack(slf, [stream, max_version, dl_device, copy])
            }

            /// The device type and the ordinal.
            #[pyo3(name = "__dlpack_device__")]
            fn interop_dlpack_device(
                slf: &$crate::__private::python::pyo3::Bound<'_, Self>,
            ) -> $crate::__private::python::pyo3::PyResult<(i32, i32)> {
                $crate::__private::python::dlpack_device(slf.py(), <Self as $crate::__private::python::ArrayMethods>::of(slf))
            }

            /// The CUDA Array Interface, version 3; absent for memory that CUDA cannot reach, and for element types that
            /// it has no code for.
            #[getter]
            #[pyo3(name = "__cuda_array_interface__")]
            fn interop_cuda_array_interface<'py>(
                slf: &$crate::__private::python::pyo3::Bound<'py, Self>,
            ) -> $crate::__private::python::pyo3::PyResult<$crate::__private::python::InterfaceDict<'py>> {
                $crate::__private::python::interface_dict(slf.py(), <Self as $crate::__private::python::ArrayMethods>::of(slf))
            }

            // A getter, so that a method of this name in the author's own `#[pymethods]` compiles. Python adds methods first.
            /// The method that converts to an array of NumPy, where the buffer protocol cannot express this one.
            #[getter]
            #[pyo3(name = "__array__")]
            fn interop_array<'py>(
                slf: &$crate::__private::python::pyo3::Bound<'py, Self>,
            ) -> $crate::__private::python::MethodResult<'py> {
                $crate::__private::python::method_of(slf, "__array__")
            }

            // As `__array__`.
            /// The method that converts to an array of JAX, in place if the memory is writable.
            #[getter]
            #[pyo3(name = "__jax_array__")]
            fn interop_jax_array<'py>(
                slf: &$crate::__private::python::pyo3::Bound<'py, Self>,
            ) -> $crate::__private::python::MethodResult<'py> {
                $crate::__private::python::method_of(slf, "__jax_array__")
            }

            unsafe fn __getbuffer__(
                slf: &$crate::__private::python::pyo3::Bound<'_, Self>,
                buffer: *mut $crate::__private::python::pyo3::ffi::Py_buffer,
                flags: i32,
            ) -> $crate::__private::python::pyo3::PyResult<()> {
                // SAFETY: as Python promises for this slot.
                unsafe { $crate::__private::python::get_buffer(slf, buffer, flags) }
            }

            unsafe fn __releasebuffer__(
                _slf: &$crate::__private::python::pyo3::Bound<'_, Self>,
                buffer: *mut $crate::__private::python::pyo3::ffi::Py_buffer,
            ) {
                // SAFETY: as Python promises for this slot.
                unsafe { $crate::__private::python::release_buffer(buffer) };
            }
        }
    };
}

/// Makes a `#[pyclass(frozen)]` that implements [`CudaArray`](crate::CudaArray) by hand a class of arrays, as
/// `#[cuda_array(pyclass)]` does for a derived struct (feature `python`).
///
/// ```
/// use interop_core::protocols::RawDescriptor;
/// use interop_core::storage::Mutability;
/// use interop_core::{ArrayInfo, CudaArray, DType, Device, Result};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// struct Header(Vec<u8>);
///
/// // SAFETY: 1 to 4: the bytes are owned, initialized host memory that only `&mut self` could move. They are read-only. 5 and 6: no
/// // device uses them.
/// unsafe impl CudaArray for Header {
///     fn info(&self) -> Result<ArrayInfo> {
///         let (address, shape) = (self.0.as_ptr().expose_provenance(), [self.0.len() as i64]);
///         let bytes = RawDescriptor::new(address, Device::CPU, &shape);
///         RawDescriptor { dtype: DType::U8, mutability: Mutability::ReadOnly, ..bytes }.validate()
///     }
/// }
///
/// interop_core::array_class!(Header);
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     let header = Bound::new(py, Header(vec![1, 2, 3]))?;
///     assert_eq!(header.call_method0("__dlpack_device__")?.extract::<(i32, i32)>()?, (1, 0));
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(feature = "python")]
#[macro_export]
macro_rules! array_class {
    ($type:ty) => {
        const _: () = {
            use $crate::__interop_core::python::pyo3 as __interop_pyo3;

            $crate::__python_class! { type: $type, pyo3: "__interop_pyo3" }
        };
    };
}

/// Reports the missing feature, unless the attribute already has an error.
#[cfg(not(feature = "python"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_conversions {
    (quiet $($any:tt)*) => {};
    ($($any:tt)*) => {
        ::core::compile_error!("`python` needs the feature `python` of `interop-core`: write `features = [\"python\"]` in Cargo.toml");
    };
}

/// Reports the missing feature, unless the attribute already has an error.
#[cfg(not(feature = "python"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __python_class {
    (quiet $($any:tt)*) => {};
    ($($any:tt)*) => {
        ::core::compile_error!("`pyclass` needs the feature `python` of `interop-core`: write `features = [\"python\"]` in Cargo.toml");
    };
}
