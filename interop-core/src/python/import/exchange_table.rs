//! Calls the functions of a C exchange table.
#![expect(unsafe_code, reason = "calls the functions of foreign tables")]

use core::ffi::CStr;
use core::ptr::NonNull;

use pyo3::exceptions::PySystemError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::protocols::dlpack::abi::{
    DLPackExchangeAPI, DLPackExchangeAPIHeader, EXCHANGE_ATTRIBUTES, MAJOR_VERSION, Versioned,
};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::import::package::Package;
use crate::python::interpreter::{capsule_pointer, ignore_exception, imported};

/// A table of the supported major version. It lives until the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeTable(NonNull<DLPackExchangeAPI>);

// SAFETY: the table does not change.
unsafe impl Send for ExchangeTable {}

// SAFETY: as above.
unsafe impl Sync for ExchangeTable {}

/// What a table says of the stream on which its library works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkStream {
    Handle(StreamHandle),
    /// The null pointer: nobody has set a stream (TVM FFI outside of a call), or the library knows none (`cuda.core`).
    Null,
    /// The table does not tell.
    Absent,
}

impl ExchangeTable {
    /// The functions of the table. Some may be absent.
    pub(crate) fn functions(self) -> DLPackExchangeAPI {
        // SAFETY: this is a table of this major version, which lives until the program ends and does not change.
        unsafe { self.0.read() }
    }

    /// Returns the exchange table of a class, unless a `__dlpack__` or a `__torch_function__` of a subclass takes precedence.
    pub(crate) fn from_class(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        for name in EXCHANGE_ATTRIBUTES.into_iter().filter(|_| in_use()) {
            let value = ignore_exception(py, class.getattr(PyString::intern(py, name)))?;
            if let Some(table) = value.and_then(|value| Self::from_attribute(&value)) {
                let is_overruled = ignore_exception(py, has_method_below(class, name))?.unwrap_or(false);
                return Ok((!is_overruled).then_some(table));
            }
        }
        Ok(None)
    }

    /// Returns the table of the supported major version in an attribute, which must be a capsule of this name.
    ///
    /// An int is not accepted, although some libraries stored the address as one at first. Any class can have an
    /// int, and following one that is not an address crashes the process. Such a library is imported by its `__dlpack__`.
    fn from_attribute(value: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: the object is alive.
        let mut header = unsafe { capsule_pointer(value.as_ptr(), CAPSULE_NAME) }.map(NonNull::cast);
        // A chain of older tables has one table for each major version. A circular chain must end too.
        for _ in 0..16 {
            // SAFETY: the pointer is not null, so it points to a table, as the protocol requires of the attribute.
            let DLPackExchangeAPIHeader { version, prev_api } =
                unsafe { header?.cast::<DLPackExchangeAPIHeader>().read() };
            if version.major == MAJOR_VERSION {
                return header.map(|header| Self(header.cast()));
            }
            header = NonNull::new(prev_api);
        }
        None
    }

    /// Asks a table for the current stream of its library.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception of the table is ignored: the
    /// caller then uses `__dlpack__`, whose error explains the reason.
    pub(crate) fn current_stream(
        self,
        package: Package,
        py: Python<'_>,
        device: Device,
    ) -> PyResult<WorkStream> {
        let Some(current) = self.functions().current_work_stream else { return Ok(WorkStream::Absent) };
        let mut stream = core::ptr::null_mut();
        // SAFETY: the thread is attached, and the pointer is valid for writing the stream.
        let failed = unsafe { current(device.device_type.0, device.device_id, &raw mut stream) } != 0;
        if failed || PyErr::occurred(py) {
            ignore_exception(py, PyErr::take(py).map_or(Ok(()), Err))?;
            return Ok(WorkStream::Absent);
        }
        // In `PyTorch`, null is the legacy default stream.
        if stream.is_null() && package != Package::PyTorch {
            return Ok(WorkStream::Null);
        }
        // SAFETY: the stream is the current one of the library.
        Ok(WorkStream::Handle(unsafe { StreamHandle::from_raw(stream.addr()) }))
    }

    /// Gets an owned tensor of the object.
    ///
    /// Returns `None` if the table does not support it, or fails without an exception, as that of `cuda.core` for some element
    /// types.
    ///
    /// # Errors
    ///
    /// Exceptions of the table.
    pub(crate) fn tensor_from(self, object: &Bound<'_, PyAny>) -> PyResult<Option<ManagedTensor<Versioned>>> {
        let Some(from_object) = self.functions().managed_tensor_from_py_object_no_sync else {
            return Ok(None);
        };
        let mut tensor = core::ptr::null_mut();
        // SAFETY: the object's type has this table, the thread is attached, and the pointer is valid for writing the
        // tensor.
        let failed = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) } != 0;
        if failed || tensor.is_null() || PyErr::occurred(object.py()) {
            let error = PyErr::take(object.py());
            if !failed && !tensor.is_null() {
                // The table set an exception but reported success. The exception would surface in an unrelated call.
                // SAFETY: as below.
                drop(unsafe { ManagedTensor::from_raw(tensor) });
            }
            return error.map_or(Ok(None), Err);
        }
        // SAFETY: the table transfers a tensor that nobody else releases.
        Ok(Some(unsafe { ManagedTensor::from_raw(tensor) }))
    }

    /// Returns whether the table can create Python objects from tensors.
    pub(crate) fn makes_objects(self) -> bool {
        self.functions().managed_tensor_to_py_object_no_sync.is_some()
    }

    /// Creates an object of the table's library from a tensor. The library takes ownership of the tensor.
    ///
    /// # Errors
    ///
    /// Exceptions of the library. The protocol does not state whether the tensor is released then, so the caller must find
    /// out.
    ///
    /// # Safety
    ///
    /// `tensor` is a live struct that nobody else releases.
    pub(crate) unsafe fn object_of(
        self,
        py: Python<'_>,
        tensor: *mut Versioned,
    ) -> PyResult<Bound<'_, PyAny>> {
        let Some(to_object) = self.functions().managed_tensor_to_py_object_no_sync else {
            return Err(PySystemError::new_err(
                "the exchange table has no `managed_tensor_to_py_object_no_sync`",
            ));
        };
        let mut object = core::ptr::null_mut();
        // SAFETY: the thread is attached, the caller transfers an owned tensor, and the pointer is valid for writing the
        // object.
        let failed = unsafe { to_object(tensor, &raw mut object) } != 0;
        let raised = PyErr::take(py);
        if failed || object.is_null() {
            // `PyErr::fetch` would panic in a debug build.
            let unraised = || PySystemError::new_err("the exchange table failed and raised no exception");
            return Err(raised.unwrap_or_else(unraised));
        }
        // SAFETY: the table returned a new reference.
        let object = unsafe { Bound::from_owned_ptr(py, object.cast()) };
        raised.map_or(Ok(object), Err)
    }
}

/// The name of the capsule that contains a table.
pub(crate) const CAPSULE_NAME: &CStr = c"dlpack_exchange_api";

/// Returns whether tables are used. `INTEROP_SKIP_DLPACK_C_EXCHANGE_API=1` in the environment disables them.
fn in_use() -> bool {
    std::env::var_os("INTEROP_SKIP_DLPACK_C_EXCHANGE_API").is_none_or(|skip| skip.is_empty() || skip == "0")
}

/// Returns whether a subclass of the class with the table decides itself what `__dlpack__` does: it defines the method, or a
/// `__torch_function__`, which `PyTorch` calls in its place. Such a class does not intend the inherited table.
fn has_method_below(class: &Bound<'_, PyType>, table: &str) -> PyResult<bool> {
    let mut decides = false;
    for class in class.getattr("__mro__")?.try_iter()? {
        let own = class?.getattr("__dict__")?;
        if own.contains(table)? {
            return Ok(decides);
        }
        decides |= own.contains("__dlpack__")? || overrides_functions(&own)?;
    }
    Ok(false)
}

/// Returns whether a class has a `__torch_function__` other than the one by which parameters say that they override nothing.
fn overrides_functions(own: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = "__torch_function__";
    if !own.contains(name)? {
        return Ok(false);
    }
    let Some(torch) = imported(intern!(own.py(), "torch")) else { return Ok(true) };
    let nothing = torch.getattr("_C")?.getattr("_disabled_torch_function_impl")?;
    Ok(!own.get_item(name)?.is(&nothing))
}
