//! `as_device()` and `as_host()` of array classes: the same memory for libraries that do not know its kind.
#![expect(
    unsafe_code,
    reason = "a method is a C function that Python calls; passes on the promises of the array inside"
)]

use pyo3::ffi;
use pyo3::prelude::*;

use super::class::{ArrayClass, body, into_object, struct_of};
use super::export::waiting;
use super::interpreter::with_attached;
use crate::array::CudaArray;
use crate::cuda::wait_for_host;
use crate::descriptor::Writes;
use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::stream::StreamHandle;

/// An instance of an array class that is kept by its Python object.
pub(super) struct Instance<T: ArrayClass>(pub(super) Py<T>);

// SAFETY: 1 to 3: as the instance, which lives as long as its object and which nobody changes, because the class is frozen.
unsafe impl<T: ArrayClass> CudaArray for Instance<T> {
    fn facts(&self) -> Result<Facts> {
        // Where a consumer asks from, a thread is attached already.
        let facts = Python::try_attach(|py| struct_of(self.0.bind(py)).facts()).unwrap_or_else(|| {
            let allowed = "an interpreter that runs";
            Err(Error::new(ErrorKind::Unsupported, "python", "an interpreter at its end", allowed))
        })?;
        // The object stays in other hands: what only its sole owner may write is read-only here.
        let shared = facts.writes() == Writes::WhenOwned;
        Ok(if shared { Facts { writes: Writes::Never, ..facts } } else { facts })
    }
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
pub(super) unsafe extern "C" fn as_device<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        if struct_of(array).facts()?.device().device_type == DeviceType::CUDA {
            return Ok(array.clone().into_any().unbind());
        }
        let recast = Instance(array.clone().unbind()).into_device().map_err(|refused| refused.error)?;
        Ok(into_object(array.py(), recast)?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// # Safety
///
/// As [`as_device`].
pub(super) unsafe extern "C" fn as_host<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // Nothing is to be done, and views of views without end would be.
        if struct_of(array).facts()?.device() == Device::CPU {
            return Ok(array.clone().into_any().unbind());
        }
        let recast = Instance(array.clone().unbind()).into_host().map_err(|refused| refused.error)?;
        Ok(into_object(array.py(), OnHost(recast.into_inner()))?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// [`Recast`](crate::Recast) as host memory, which releases the interpreter's lock while it waits for work.
struct OnHost<T: ArrayClass>(Instance<T>);

// SAFETY: 1 to 3: as the instance, whose memory the host reaches, which was asked when this was made.
unsafe impl<T: ArrayClass> CudaArray for OnHost<T> {
    fn facts(&self) -> Result<Facts> {
        let facts = self.0.facts()?;
        if facts.device() != Device::CPU {
            let wait = || wait_for_host(facts.stream(), facts.device());
            with_attached(|py| waiting(py, &facts, wait))?;
        }
        Ok(Facts { device: Device::CPU, stream: StreamHandle::NothingPending, ..facts })
    }
}
