//! `ArrayLike`: an argument that is only read, and that `NumPy` converts where it does not fit.

use core::ops::Deref;

use pyo3::exceptions::{PyBufferError, PyNotImplementedError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString};

use crate::array::device::Device;
use crate::array::dtype::{DType, FLOAT, INT, UINT};
use crate::array::element::ElementType;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::derive::from_array::FromArray;
use crate::error::{Error, ErrorKind, text};
use crate::memory::extraction::DataField;
use crate::memory::import::ImportSlot;
use crate::order::array_info::ArrayInfo;
use crate::order::memory_check::Verification;
use crate::python::convert::{device, extract_integer};
use crate::python::errors::{Failure, origin, set_first_cause, with_origin};
use crate::python::import::caveats::Caveat;
use crate::python::import::object::{assemble, import_to};
use crate::python::import::type_cache::type_info;
use crate::python::interpreter::{NestedCall, attribute, ignore_exception};

/// An argument that is only read, and that is converted if it does not fit: a list, a scalar, an array of another element
/// type or memory order.
///
/// An array that fits is used as it is, without a copy. Otherwise `numpy.asarray` makes an array of the object, and
/// `astype` converts it:
///
/// | from | to | |
/// | --- | --- | --- |
/// | integers, bools | integers | if all values fit |
/// | integers, bools, floats | floats, complex numbers | rounded; a finite value must stay finite |
/// | floats | integers | refused |
/// | complex numbers | floats | refused |
/// | an empty array | any type | always |
///
/// It dereferences to the struct, for reading only, because a write to a converted copy would be lost. So a struct with
/// a `LeaseMut` or a raw pointer does not compile here. A copy of your own is `HostVec<T>` or `Vec<T>`.
///
/// Arrays on a GPU are not copied to the host, and masked arrays and structs are not converted: they must fit. `NumPy`
/// has no `bfloat16` and no floats of 8 bits to convert to.
///
/// # Errors
///
/// The extraction fails with the reason why the conversion failed. Its cause (`__cause__`) is the reason why the object
/// did not fit.
///
/// ```no_run
/// use interop_core::python::ArrayLike;
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// `mean([1, 2, 3])`, `mean(np.arange(3))`, `mean(array.array("f", [1.0]))`.
/// #[pyfunction]
/// fn mean(samples: ArrayLike<Samples<Lease<f64>>>) -> PyResult<f64> {
///     Ok(samples.fold(0.0, |sum, value: f64| sum + value)? / samples.len as f64)
/// }
/// ```
///
/// An array that is written is an argument without `ArrayLike`:
///
/// ```compile_fail,E0080
/// use interop_core::python::ArrayLike;
/// use interop_core::{CudaArray, LeaseMut};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// #[pyfunction]
/// fn clear(samples: ArrayLike<Samples<LeaseMut<f64>>>) {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArrayLike<A>(pub A);

impl<A: FromArray> ArrayLike<A> {
    /// Evaluated by every extraction.
    #[doc(hidden)]
    pub const ONLY_READ: () = check_only_read(A::DATA_FIELD.is_written);
}

/// # Panics
///
/// At compile time, if the struct writes to the memory of the caller.
#[track_caller]
const fn check_only_read(is_written: bool) {
    assert!(
        !is_written,
        "an `ArrayLike` is only read, because a write to a converted copy would be lost; \
         help: write `Lease<T>`, `HostVec<T>` or `Vec<T>` as its data, or take the array without `ArrayLike`"
    );
}

impl<A> Deref for ArrayLike<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<'a, 'py, A: FromArray> FromPyObject<'a, 'py> for ArrayLike<A> {
    type Error = PyErr;
    crate::__python_hint! { INPUT_TYPE ARRAY_LIKE }

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let () = Self::ONLY_READ;
        import_like(&object).map(Self)
    }
}

/// Imports an object as it is, or what `NumPy` makes of it.
fn import_like<A: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<A> {
    let _nested = NestedCall::enter()?;
    let py = object.py();
    let DataField { element, order, .. } = A::DATA_FIELD;
    let element = element();
    let failure = match import_exactly(object, element) {
        Ok(array) => return Ok(array),
        Err(failure) => failure,
    };
    let is_curable = is_curable(py, &failure);
    let error = failure.with_origin(object);
    if !is_curable || !ignore_exception(py, is_convertible(object))?.unwrap_or(false) {
        return Err(error);
    }
    let imported = convert(object, A::struct_name(), element, order).and_then(|converted| {
        import_exactly(&converted, None).map_err(|failure| failure.with_origin(object))
    });
    imported.inspect_err(|why| set_first_cause(py, why, error))
}

/// Returns whether `NumPy` may read an array that was not imported: another element type or layout would help, or no protocol
/// expresses it. Any other error says that the array is not as it states, or cannot be used at all.
fn is_curable(py: Python<'_>, failure: &Failure) -> bool {
    match failure {
        Failure::Invalid(error) => {
            matches!(error.kind(), ErrorKind::DType | ErrorKind::Strides | ErrorKind::Alignment)
        }
        Failure::Raised(error) => {
            error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyBufferError>(py)
                || error.is_instance_of::<PyNotImplementedError>(py)
        }
    }
}

/// Imports an array for reading only, without a conversion. The array is aligned for the scalars of `element`.
fn import_exactly<A: FromArray>(
    object: &Bound<'_, PyAny>,
    element: Option<ElementType>,
) -> Result<A, Failure> {
    let mut slot = ImportSlot::new();
    let filled = import_to(object, None, Verification::Full, &mut slot)?;
    let import = slot.import(&filled);
    import.info.description.mutability = Mutability::ReadOnly;
    check_alignment(import.info(), element)?;
    Ok(assemble(import)?)
}

/// Checks that an array is aligned for the scalars of `element`.
fn check_alignment(info: &ArrayInfo, element: Option<ElementType>) -> Result<(), Error> {
    let align = element.map_or(1, |element| element.align.min(element.dtype.packed_bits() / 8));
    let address = info.unwatched_address;
    if info.numel() == 0 || align <= 1 || address % align == 0 {
        return Ok(());
    }
    let (found, allowed) = (text!("{address:#x}"), text!("a multiple of {align}"));
    Err(Error::new(ErrorKind::Alignment, "address", found, allowed))
}

/// Returns whether `NumPy` reads all values of the object and copies none from a device.
fn is_convertible(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if type_info(object)?.caveat == Some(Caveat::Masked) {
        return Ok(false);
    }
    match attribute(object, intern!(py, "__dlpack_device__"))? {
        Some(method) => Ok(device(&method.call0()?, "__dlpack_device__")? == Device::CPU),
        None => Ok(attribute(object, intern!(py, "__cuda_array_interface__"))?.is_none()),
    }
}

/// Makes an aligned array of `NumPy` in this order, with elements of this type.
#[cold]
fn convert<'py>(
    object: &Bound<'py, PyAny>,
    struct_name: &'static str,
    element: Option<ElementType>,
    order: Order,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let dtype = element.map(|element| element.dtype).filter(|dtype| !dtype.is_opaque());
    let order = if order == Order::C { "C" } else { "F" };
    let numpy = py.import("numpy")?;
    let mut array = unmasked(&numpy, object)?;
    if let Some(dtype) = dtype {
        array = Cast { numpy: &numpy, object, struct_name, dtype }.cast(array, order)?;
    }
    numpy.call_method1("require", (array, py.None(), [order, "A"]))
}

/// Returns what `numpy.asarray` makes of the object. Values that are masked, also within a list, are refused.
fn unmasked<'py>(numpy: &Bound<'py, PyModule>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let modules = object.py().import("sys")?.getattr("modules")?;
    if object.is_instance(&numpy.getattr("ndarray")?)? || !modules.contains("numpy.ma")? {
        return numpy.call_method1("asarray", (object,));
    }
    let masked = numpy.getattr("ma")?;
    let array = masked.call_method1("asanyarray", (object,))?;
    if masked.call_method1("is_masked", (&array,))?.is_truthy()? {
        let error = Error::new(ErrorKind::Unsupported, "array", "masked elements", "elements without a mask");
        return Err(with_origin(object, error).into());
    }
    numpy.call_method1("asarray", (array,))
}

/// A conversion of the elements of an array that was made of `object`.
struct Cast<'a, 'py> {
    numpy: &'a Bound<'py, PyModule>,
    object: &'a Bound<'py, PyAny>,
    struct_name: &'static str,
    dtype: DType,
}

impl<'py> Cast<'_, 'py> {
    fn cast(&self, array: Bound<'py, PyAny>, order: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, numpy) = (self.object.py(), self.numpy);
        let typestr = self.dtype.typestr().ok_or_else(|| {
            let allowed = text!("an array of {} as it is: NumPy cannot convert to this type", self.dtype);
            self.refusal(origin(self.object), allowed)
        })?;
        let target = numpy.call_method1("dtype", (typestr,))?;
        let found = array.getattr("dtype")?;
        if found.eq(&target)? {
            return Ok(array);
        }
        if array.getattr("size")?.eq(0)? {
            return numpy.call_method1("empty_like", (array, target));
        }
        let astype = |array: &Bound<'py, PyAny>, casting: &str| {
            let keywords = [("order", order), ("casting", casting)].into_py_dict(py)?;
            array.call_method("astype", (&target,), Some(&keywords))
        };
        let kind = found.getattr("kind")?;
        let kind = kind.cast::<PyString>()?.to_str()?;
        let can_cast = |casting: &str| -> PyResult<bool> {
            numpy.call_method1("can_cast", (&found, &target, casting))?.is_truthy()
        };
        if matches!(kind, "i" | "u") && matches!(self.dtype.code, INT | UINT) {
            if can_cast("safe")? {
                return astype(&array, "safe");
            }
            // A copy, because another thread could change the array after the check.
            let array = array.call_method0("copy")?;
            self.check_range(&array)?;
            return astype(&array, "unsafe");
        }
        // `NumPy` also casts texts, of which every one that is not empty is true. "V" is the kind of `bfloat16`.
        if !matches!(kind, "b" | "i" | "u" | "f" | "c" | "V") || !can_cast("same_kind")? {
            let kinds = match self.dtype.code {
                INT | UINT => "integers or bools",
                FLOAT => "integers, bools or floats",
                _ => "numbers of the same kind",
            };
            let allowed = text!("{kinds}, which become {} without a loss", self.dtype);
            return Err(self.refusal(found, allowed));
        }
        // The check below reports what NumPy would warn of, and rounding to 0 is none of it.
        let before = numpy.call_method("seterr", (), Some(&[("all", "ignore")].into_py_dict(py)?))?;
        let cast = astype(&array, "same_kind");
        numpy.call_method("seterr", (), Some(before.cast::<PyDict>()?))?;
        let cast = cast?;
        let infinite = |array: &Bound<'py, PyAny>| -> PyResult<usize> {
            numpy.call_method1("isinf", (array,))?.call_method0("sum")?.extract()
        };
        let count = infinite(&cast)?;
        if count != 0 && count != infinite(&array)? {
            let allowed = text!("the values of {}", self.dtype);
            return Err(self.refusal("a finite value that becomes infinite", allowed));
        }
        Ok(cast)
    }

    /// Checks that all integers fit.
    fn check_range(&self, array: &Bound<'py, PyAny>) -> PyResult<()> {
        let values = 1_i128 << self.dtype.bits;
        let first = if self.dtype.code == INT { -values / 2 } else { 0 };
        for method in ["min", "max"] {
            let value = extract_integer(&array.call_method0(method)?, "array")?;
            if value < first || value >= first + values {
                let allowed = text!("{first} to {}, the values of {}", first + values - 1, self.dtype);
                return Err(self.refusal(value, allowed));
            }
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, found: impl core::fmt::Display, allowed: impl core::fmt::Display) -> PyErr {
        let error = Error::new(ErrorKind::DType, "array", found, allowed).of_struct(self.struct_name);
        with_origin(self.object, error).into()
    }
}
