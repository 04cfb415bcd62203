//! Import through the C exchange table of the object's type.
#![expect(unsafe_code, reason = "calls the functions of foreign tables")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyBufferError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::process::fork::PerProcess;
use crate::protocols::dlpack::abi::{MAJOR_VERSION, Versioned};
use crate::protocols::dlpack::exchange_api::{DLPackExchangeAPI, DLPackExchangeAPIHeader};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::exception_state::with_saved_exception;
use crate::python::interpreter::is_attached;

/// A member of a table: a C function, or `None` for null.
macro_rules! member {
    ($table:expr, $member:ident: $function:ty) => {{
        let place = $table
            .0
            .as_ptr()
            .wrapping_byte_add(core::mem::offset_of!($crate::dlpack::DLPackExchangeAPI, $member));
        // SAFETY: the place of a member of a table of our major version; null is `None`.
        unsafe { place.cast::<Option<$function>>().read() }
    }};
}

type ToObject = unsafe extern "C" fn(*mut Versioned, *mut *mut c_void) -> c_int;

/// Whether the table makes Python objects of tensors.
pub(crate) fn makes_objects(table: Table) -> bool {
    member!(table, managed_tensor_to_py_object_no_sync: ToObject).is_some()
}

/// A new object of the table's library around a tensor, which the library takes over.
///
/// # Errors
///
/// What the library raises. Whether it has released the tensor then is not said anywhere: the caller finds out.
///
/// # Safety
///
/// `tensor` is a live struct that nobody else releases.
pub(crate) unsafe fn object_of(
    table: Table,
    py: Python<'_>,
    tensor: *mut Versioned,
) -> PyResult<Bound<'_, PyAny>> {
    let Some(to_object) = member!(table, managed_tensor_to_py_object_no_sync: ToObject) else {
        return Err(PySystemError::new_err("the exchange table makes no objects"));
    };
    let mut object = core::ptr::null_mut();
    // SAFETY: the thread is attached; an owned tensor, as the caller promises, and a place for the object.
    let failed = unsafe { to_object(tensor, &raw mut object) } != 0;
    let raised = if failed || object.is_null() || PyErr::occurred(py) { Some(raised(py)) } else { None };
    if failed || object.is_null() {
        return Err(raised.unwrap_or_else(|| unreachable!("it failed")));
    }
    // SAFETY: a new reference, which the table hands over.
    let object = unsafe { Bound::from_owned_ptr(py, object.cast()) };
    raised.map_or(Ok(object), Err)
}

/// The exception that a table has set; one that says so if it has set none: `PyErr::fetch` would panic in a debug build.
#[cold]
fn raised(py: Python<'_>) -> PyErr {
    PyErr::take(py)
        .unwrap_or_else(|| PySystemError::new_err("the exchange table failed and raised no exception"))
}

/// The stream that the table's library works on; `None` when the table does not say.
pub(crate) fn work_stream(table: Table, py: Python<'_>, device: Device) -> Option<StreamHandle> {
    type CurrentWorkStream = unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int;
    let current = member!(table, current_work_stream: CurrentWorkStream)?;
    let mut stream = core::ptr::null_mut();
    // SAFETY: the thread is attached; a place for the stream.
    let failed = unsafe { current(device.device_type.0, device.device_id, &raw mut stream) } != 0;
    if failed || PyErr::occurred(py) {
        // The method is asked instead, which says what is wrong.
        // Not through PyO3, which lets a panic that travels as an exception loose.
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // Null is the legacy default stream.
    // SAFETY: the stream that the library works on.
    Some(unsafe { StreamHandle::from_raw(stream.addr()) })
}

/// The tables that were met, whose libraries can be asked for the stream that they work on. A list that grows leaves the
/// shorter one behind: there are as many as there are libraries.
static TABLES: PerProcess<Mutex<&[Table]>> = PerProcess::new(|_| Mutex::new(&[]));

/// Has releases of CUDA memory look whether the library of this table captures a graph at the time.
pub(crate) fn watch(table: Table) {
    let mut tables = TABLES.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !tables.iter().any(|known| known.0 == table.0) {
        *tables = Vec::leak([*tables, &[table]].concat());
    }
    cuda::set_capture_hook(captures);
}

/// Whether a stream that a library works on, on this thread and this device or on any, captures a graph.
fn captures(device: Option<i32>) -> bool {
    if !is_attached() {
        return false;
    }
    // SAFETY: the thread is attached, as was just seen.
    let py = unsafe { Python::assume_attached() };
    let tables = *TABLES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let devices = device.map_or(0..cuda::device_count(), |ordinal| ordinal..ordinal + 1);
    let mut found = false;
    let ask = || {
        found = tables.iter().any(|table| {
            let at_work = |ordinal| work_stream(*table, py, Device::cuda(ordinal));
            devices.clone().filter_map(at_work).any(cuda::captures)
        });
    };
    // A release may be on the way of an exception.
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(ask) };
    found
}

/// An owned tensor of the object; `None` when the table does not offer one, or refuses this object with a `BufferError`:
/// its Python method is asked then.
pub(crate) fn tensor_of(
    table: Table,
    object: &Bound<'_, PyAny>,
) -> PyResult<Option<ManagedTensor<Versioned>>> {
    type FromObject = unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int;
    let Some(from_object) = member!(table, managed_tensor_from_py_object_no_sync: FromObject) else {
        return Ok(None);
    };
    let mut tensor = core::ptr::null_mut();
    // SAFETY: an object of the type that offers the table, with the thread attached, and a place for the tensor.
    let failed = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) } != 0;
    if failed || tensor.is_null() || PyErr::occurred(object.py()) {
        // A table that does not say why it fails breaks the rules, but not us.
        let error = raised(object.py());
        if !failed && !tensor.is_null() {
            // It raised and says that it worked: the exception would surface in somebody else's call.
            // SAFETY: as below.
            drop(unsafe { ManagedTensor::from_raw(tensor) });
        }
        return if error.is_instance_of::<PyBufferError>(object.py()) { Ok(None) } else { Err(error) };
    }
    // SAFETY: the table hands over a tensor that nobody else releases.
    Ok(Some(unsafe { ManagedTensor::from_raw(tensor) }))
}

/// The name of the capsule around a table.
pub(crate) const CAPSULE_NAME: &CStr = c"dlpack_exchange_api";

/// Whether tables are offered and used: unless the environment says `INTEROP_SKIP_DLPACK_C_EXCHANGE_API=1`, which is read
/// once.
pub(crate) fn in_use() -> bool {
    static IN_USE: OnceLock<bool> = OnceLock::new();
    *IN_USE.get_or_init(|| {
        std::env::var_os("INTEROP_SKIP_DLPACK_C_EXCHANGE_API")
            .is_none_or(|skip| skip.is_empty() || skip == "0")
    })
}

/// A table of a major version that we know; it lives as long as the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table(pub(crate) NonNull<DLPackExchangeAPI>);

// SAFETY: the table does not change.
unsafe impl Send for Table {}

// SAFETY: as above.
unsafe impl Sync for Table {}

/// The table in an attribute, which is a capsule of this name. Anything else is no table: also an int, as which some libraries
/// had the address before 1.3. Any class can have an int, and to follow one that is no address ends the process; such a library
/// is asked by its `__dlpack__`.
pub(crate) fn table(value: &Bound<'_, PyAny>) -> Option<Table> {
    let name = crate::python::import::exchange_table::CAPSULE_NAME.as_ptr();
    // SAFETY: any object may be asked about.
    if unsafe { ffi::PyCapsule_IsValid(value.as_ptr(), name) } == 0 {
        return None;
    }
    // SAFETY: valid under this name.
    known_version(unsafe { ffi::PyCapsule_GetPointer(value.as_ptr(), name) }.cast())
}

/// The first table of our major version, following the chain of older ones.
fn known_version(header: *mut DLPackExchangeAPIHeader) -> Option<Table> {
    let mut header = NonNull::new(header);
    // A chain has one table a major version; a circle must end too.
    for _ in 0..16 {
        // SAFETY: not null, so a table, as the protocol says of what the attribute holds.
        let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header?.read() };
        if version.major == MAJOR_VERSION {
            return header.map(|header| Table(header.cast()));
        }
        header = NonNull::new(prev_api);
    }
    None
}

pub(crate) use member;
