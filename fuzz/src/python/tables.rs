//! Exchange tables of foreign types. What their functions do is up to the producer that runs at the time.
#![expect(unsafe_code, reason = "tables are C functions")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use interop_core::dlpack::{DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, Versioned};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::import::{PRODUCER, Producer};
use super::world::World;

/// How a type offers a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Whether it is one that can be used: a capsule of the right name, with a version that is known.
    pub(super) usable: bool,
    /// Whether it hands out tensors.
    pub(super) hands_out: bool,
    /// Whether it names a stream.
    pub(super) names_stream: bool,
}

const fn offer(usable: bool, hands_out: bool, names_stream: bool) -> Offer {
    Offer { usable, hands_out, names_stream }
}

/// The offers, in the order of the values that [`all`] makes.
pub(super) const OFFERS: [Offer; 9] = [
    offer(true, true, true),
    offer(true, true, false),
    offer(true, false, true),
    // Behind a newer one.
    offer(true, true, true),
    // As a number, which is no table.
    offer(false, true, true),
    // A newer one alone, one under another name, and what is no table.
    offer(false, true, true),
    offer(false, true, true),
    offer(false, true, true),
    offer(false, true, true),
];

/// What a function of a table does when it is asked for a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Hands,
    /// Refuses this object, so that its method is asked.
    Refuses,
    Raises(u8),
    /// Fails, and does not say why.
    Fails,
    /// Succeeds, with nothing.
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
    // A table lives as long as the program.
    Box::into_raw(Box::new(table)).cast()
}

/// The values of the attribute.
pub(super) fn all(py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
    let capsule = |table: *mut c_void, name: &'static std::ffi::CStr| {
        // SAFETY: a table and a name that live as long as the program.
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

/// # Safety
///
/// Called with the thread attached, and a place for the tensor.
unsafe extern "C" fn hand(_: *mut c_void, out: *mut *mut Versioned) -> c_int {
    // SAFETY: as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let asked = |producer: &mut Option<Producer>| {
        let producer = producer.as_mut().expect("a producer that is asked");
        match producer.program.conduct {
            Conduct::Hands => match producer.hand::<Versioned>() {
                Some(tensor) => {
                    // SAFETY: as the caller promises.
                    unsafe { out.write(tensor) };
                    return 0;
                }
                None => PyBufferError::new_err("no tensor").restore(py),
            },
            Conduct::Refuses => PyBufferError::new_err("no tensor").restore(py),
            Conduct::Raises(which) => {
                PyErr::from_value(World::of(py).raised(which).expect("an error")).restore(py);
            }
            Conduct::Fails => {}
            Conduct::Nothing => return 0,
        }
        -1
    };
    PRODUCER.with_borrow_mut(asked)
}

/// # Safety
///
/// Called with the thread attached, and a place for the stream.
unsafe extern "C" fn stream(_: c_int, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises: the legacy default stream.
    unsafe { out.write(null_mut()) };
    0
}
