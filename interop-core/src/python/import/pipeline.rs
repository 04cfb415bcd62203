//! Any object that speaks a protocol, as an [`Import`].
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::verify::Verification;
use crate::error::{Error, ErrorKind};
use crate::memory::import::Import;
use crate::python::capsule::{CapsuleTensor, take_from};
use crate::python::errors::{Failure, not_an_array, of};
use crate::python::import::cuda_array_interface::from_cai;
use crate::python::import::dlpack_call::{DlpackMethod, has_method, lacks_method, request};
use crate::python::import::dlpack_method::from_method;
use crate::python::import::exchange_table::{Table, tensor_of, wait_for_table_stream};
use crate::python::import::legacy_writable::believe_interface;
use crate::python::import::protocol::{ImportedArray, Protocol};
use crate::python::import::receive::ImportSlot;
use crate::python::import::type_cache::{CachedType, TypeInfo, type_info};
use crate::python::py_owner::release_deferred_refs;

/// Imports any object that speaks a protocol, for work on `stream`.
///
/// `__dlpack__` is preferred to `__cuda_array_interface__`, which is read all the same where the tensor has strides that no
/// array has: `CuPy` loses the sign of those that go backwards, and has them right in its dict.
///
/// The producer is told the stream where its memory has one: nothing for CPU memory, a number otherwise, the legacy default
/// stream if `stream` is `None`. Some producers take it and order nothing (the arrays of nanobind, TVM FFI and `cuda.core`):
/// there the caller orders the work before the call.
///
/// A tensor of PyTorch's whose values are conjugated or negated only when somebody asks for them is refused, and a masked array
/// of NumPy's with masked elements. A tensor that requires a gradient is taken, because its exchange table does not say so: who
/// changes it looks at `requires_grad`.
///
/// A legacy capsule cannot say whether its memory may be written, and counts as read-only, unless an interface dict of the
/// object (`__cuda_array_interface__`, or `__array_interface__` for memory of the host) says so of the same address: Warp's does.
///
/// The array keeps the object alive, or what it handed out, where Python's collector does not see it, as NumPy's do that come
/// by DLPack. An object that holds an array imported from itself is released when it lets go of that array, and not before.
///
/// # Errors
///
/// `TypeError` for an object that speaks neither protocol, or answers with something of another type than its protocol has;
/// `ArrayError` (a `BufferError` and a `ValueError`) for an array that cannot be used; both with its class in the text. What
/// the producer raises is passed on as it is.
///
/// ```no_run
/// use interop_core::python::{extract_stream, import};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// #[pyo3(signature = (array, stream=None))]
/// fn describe(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
///     let imported = import(array, stream.map(extract_stream).transpose()?)?;
///     let info = imported.import.info();
///     Ok(format!("{} {:?} on {} by {}", info.dtype(), info.shape(), info.device(), imported.protocol.name()))
/// }
/// ```
pub fn import(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<ImportedArray> {
    import_with(object, stream, Verification::Full)
}

/// As [`import`], but what a DLPack tensor says of its memory is believed: the driver is not asked where the address is and
/// how far the allocation goes, which saves one call for memory of CUDA. An interface dict says too little to be believed.
/// Memory that a graph allocates while it is captured comes in this way only, because the driver knows it when the graph has
/// run.
///
/// # Errors
///
/// As [`import`], for what can be seen without the driver.
///
/// # Safety
///
/// The object tells the truth about the device and the extent of its memory, and work on it is in primary contexts
/// ([`Import::from_dlpack_unchecked`]). Objects of a library of which that is known are the only ones to be imported this way.
pub unsafe fn import_unchecked(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<ImportedArray> {
    import_with(object, stream, Verification::Skipped)
}

fn import_with(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    trust: Verification,
) -> PyResult<ImportedArray> {
    let mut import = Import::EMPTY;
    let protocol = import_to(&mut ImportSlot { import: &mut import, trust }, object, stream)?;
    Ok(ImportedArray { import, protocol })
}

/// As [`import`], to where the array will stay.
fn import_to(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    let mut early = EarlyTensor::default();
    let cached_type = first_steps(object, &mut early)?;
    remaining_steps(to, object, &cached_type, early, stream)
}

/// A tensor that came without a word about streams, if one did, and from where.
#[derive(Default)]
pub(crate) struct EarlyTensor {
    pub(crate) taken: Option<CapsuleTensor>,
    /// The exchange table of the type; otherwise the type has promised host memory.
    table: Option<Table>,
}

/// What is known of an object's type; and, in its place, the tensor of an object that hands one out at once: returned, it
/// would be moved as soon as it was stored, which stalls.
pub(crate) fn first_steps(object: &Bound<'_, PyAny>, early: &mut EarlyTensor) -> PyResult<CachedType> {
    release_deferred_refs(object.py());
    let cached_type = type_info(object)?;
    if let Some(table) = cached_type.exchange {
        if let Some(owned) = tensor_of(table, object)? {
            (early.taken, early.table) = (Some(CapsuleTensor::Versioned(owned)), Some(table));
            return Ok(cached_type);
        }
    }
    if cached_type.method.expected_device.device() == Some(Device::CPU) {
        match request(object, &cached_type.method, None) {
            Ok(capsule) => early.taken = Some(take_from(object, capsule)?),
            // What else it has is seen to later.
            Err(error) if lacks_method(object, &error)? => {}
            Err(error) => return Err(error),
        }
    }
    Ok(cached_type)
}

/// As [`import_to`], of an object that was met.
pub(crate) fn remaining_steps(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    cached_type: &TypeInfo,
    early: EarlyTensor,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    let protocol = match import_memory(to, object, cached_type, early, stream) {
        Err(Failure::Invalid(error)) if lost_negative_strides(&error) => {
            fall_back_to_cai(to, object, stream, error.into())?
        }
        answer => answer?,
    };
    if protocol == Protocol::Dlpack {
        believe_interface(object, &cached_type.method, to.import)?;
    }
    cached_type.values.check(object, to.import.info())?;
    Ok(protocol)
}

/// Whether a tensor was refused for strides such as `CuPy` writes for arrays that go backwards, which it divides as if they
/// had no sign.
fn lost_negative_strides(error: &Error) -> bool {
    error.kind() == ErrorKind::Overflow && error.location() == "strides"
}

/// By the interface dict, in which `CuPy` has the strides right; what is wrong with the tensor if that does not do, with what
/// is wrong with the dict as its cause.
#[cold]
fn fall_back_to_cai(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    refused: PyErr,
) -> PyResult<Protocol> {
    let py = object.py();
    match from_cai(to, object, stream) {
        Ok(Some(protocol)) => return Ok(protocol),
        Ok(None) => {}
        Err(why) if why.is_instance_of::<PyException>(py) => refused.set_cause(py, Some(why)),
        Err(interrupt) => return Err(interrupt),
    }
    Err(refused)
}

/// As [`remaining_steps`], whatever the values in the memory are.
fn import_memory(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    cached_type: &TypeInfo,
    early: EarlyTensor,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Failure> {
    let EarlyTensor { taken, table } = early;
    if let Some(taken) = taken {
        let by_capsule = to.receive_taken(taken).map_err(|error| of(object, error))?;
        let protocol = if table.is_some() { Protocol::ExchangeTable } else { by_capsule };
        if is_ordered(to, object, &cached_type.method, table, stream)? {
            return Ok(protocol);
        }
    }
    import_asked(to, object, &cached_type.method, stream)
}

/// Whether the array that came without a word about streams can be used on ours; otherwise it is given back.
fn is_ordered(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    table: Option<Table>,
    stream: Option<StreamHandle>,
) -> PyResult<bool> {
    if to.import.info().device() == Device::CPU {
        return Ok(true);
    }
    match table {
        Some(table) if wait_for_table_stream(to, object, table, stream)? => return Ok(true),
        Some(_) => {}
        None => method.expected_device.give_up(),
    }
    *to.import = Import::EMPTY;
    Ok(false)
}

/// As [`import_to`], by the methods and attributes that the object has.
fn import_asked(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Failure> {
    if method.has_method {
        match from_method(to, object, method, stream) {
            Err(Failure::Raised(error)) if lacks_method(object, &error)? => {}
            answer => return answer,
        }
    } else if has_method(object)? {
        return from_method(to, object, method, stream);
    }
    Ok(from_cai(to, object, stream)?.ok_or_else(|| not_an_array(object))?)
}
