//! Exchange tables of foreign types. The current producer determines what their functions do.
#![expect(unsafe_code, reason = "tables are C functions")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use interop_core::protocols::dlpack::{DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, Versioned};
use pyo3::IntoPyObjectExt as _;
use pyo3::ffi;
use pyo3::prelude::*;

use super::import::{PRODUCER, Producer};
use super::world::World;

/// How a type offers a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Whether the table is usable: a capsule of the right name, with a known version.
    pub(super) usable: bool,
    /// Whether it exports tensors.
    pub(super) hands_out: bool,
    /// Whether it reports a stream.
    pub(super) names_stream: bool,
}

const fn offer(usable: bool, hands_out: bool, names_stream: bool) -> Offer {
    Offer { usable, hands_out, names_stream }
}

/// The offers, in the order of the values that [`all`] creates.
pub(super) const OFFERS: [Offer; 9] = [
    offer(true, true, true),
    offer(true, true, false),
    offer(true, false, true),
    // Behind a newer table.
    offer(true, true, true),
    // A number, which is not a table.
    offer(false, true, true),
    // Only a newer table, a table under another name, and values that are not tables.
    offer(false, true, true),
    offer(false, true, true),
    offer(false, true, true),
    offer(false, true, true),
];

/// What the table function for tensors does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Hands,
    /// Rejects this object, so that its method is called.
    Refuses,
    Raises(u8),
    /// Fails without an exception.
    Fails,
    /// Succeeds without a result.
    Nothing,
}

fn table(
    major: u32,
    prev_api: *mut DLPackExchangeAPIHeader,
    hands_out: bool,
    names_stream: bool,
) -> *mut c_void {
    let table = DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader { version: DLPackVersion { major, minor: 3 }, prev_api },
        managed_tensor_allocator: None,
        managed_tensor_from_py_object_no_sync: hands_out.then_some(hand as _),
        managed_tensor_to_py_object_no_sync: None,
        dltensor_from_py_object_no_sync: None,
        current_work_stream: names_stream.then_some(stream as _),
    };
    // A table is static.
    Box::into_raw(Box::new(table)).cast()
}

/// Returns the values of the attribute.
pub(super) fn all(py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
    let capsule = |table: *mut c_void, name: &'static std::ffi::CStr| {
        // SAFETY: the table and the name are static.
        let capsule = unsafe { ffi::PyCapsule_New(table, name.as_ptr(), None) };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
    };
    let name = c"dlpack_exchange_api";
    let whole = || table(1, null_mut(), true, true);
    Ok(vec![
        capsule(whole(), name)?,
        capsule(table(1, null_mut(), true, false), name)?,
        capsule(table(1, null_mut(), false, true), name)?,
        capsule(table(2, whole().cast(), true, true), name)?,
        whole().expose_provenance().into_py_any(py)?,
        capsule(table(2, null_mut(), true, true), name)?,
        capsule(whole(), c"dltensor")?,
        "a table".into_py_any(py)?,
        8_i32.into_py_any(py)?,
    ])
}

/// The number of the own error by which a table refuses: a `BufferError`.
pub(super) const REFUSAL: u8 = 1;

/// # Safety
///
/// The thread is attached, and `out` is valid for the write of the tensor.
unsafe extern "C" fn hand(_: *mut c_void, out: *mut *mut Versioned) -> c_int {
    // SAFETY: forwarded to the caller.
    let py = unsafe { Python::assume_attached() };
    let asked = |producer: &mut Option<Producer>| {
        let producer = producer.as_mut().expect("a producer that is asked");
        let raise = |which| PyErr::from_value(World::of(py).raised(which).expect("an error")).restore(py);
        match producer.program.conduct {
            Conduct::Hands => match producer.hand::<Versioned>() {
                Some(tensor) => {
                    // SAFETY: forwarded to the caller.
                    unsafe { out.write(tensor) };
                    return 0;
                }
                None => raise(REFUSAL),
            },
            Conduct::Refuses => raise(REFUSAL),
            Conduct::Raises(which) => raise(which),
            Conduct::Fails => {}
            Conduct::Nothing => return 0,
        }
        -1
    };
    PRODUCER.with_borrow_mut(asked)
}

/// # Safety
///
/// The thread is attached, and `out` is valid for the write of the stream.
unsafe extern "C" fn stream(_: c_int, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: forwarded to the caller. Null says that no stream is known.
    unsafe { out.write(null_mut()) };
    0
}
