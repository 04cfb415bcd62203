//! The methods `relabel_as_device()` and `relabel_as_host()`: the same memory under another device type.
#![expect(
    unsafe_code,
    reason = "a method is a C function that Python calls; passes on the promises of the array inside"
)]

use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::PendingWork;
use crate::cuda::handover::synchronize_if_available;
use crate::derive::cuda_array::CudaArray;
use crate::error::Result;
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::exported_array::new_object;
use crate::python::class::instance::Instance;
use crate::python::export::dlpack::waiting;
use crate::python::unstable_api::with_attached;

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
pub(crate) unsafe extern "C" fn relabel_as_device<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        if struct_of(array).info()?.device().device_type == DeviceType::CUDA {
            return Ok(array.clone().into_any().unbind());
        }
        let relabeled =
            Instance(array.clone().unbind()).relabel_as_device().map_err(|refused| refused.error)?;
        Ok(new_object(array.py(), relabeled)?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// # Safety
///
/// As [`relabel_as_device`].
pub(crate) unsafe extern "C" fn relabel_as_host<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // The array itself is returned, so that repeated calls do not nest views.
        if struct_of(array).info()?.device() == Device::CPU {
            return Ok(array.clone().into_any().unbind());
        }
        let relabeled =
            Instance(array.clone().unbind()).relabel_as_host().map_err(|refused| refused.error)?;
        Ok(new_object(array.py(), OnHost(relabeled.into_inner()))?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// [`Relabeled`](crate::Relabeled) as host memory. Detaches from the interpreter while it waits for work.
struct OnHost<T: ArrayClass>(Instance<T>);

// SAFETY: 1 to 4: as for the instance. The host can access its memory, which was checked when this was created.
unsafe impl<T: ArrayClass> CudaArray for OnHost<T> {
    fn info(&self) -> Result<ArrayInfo> {
        let info = self.0.info()?;
        if info.device() != Device::CPU {
            let wait = || synchronize_if_available(&info);
            // After the end of the interpreter no lock is held.
            with_attached(|py| waiting(py, &info, wait)).unwrap_or_else(wait)?;
        }
        Ok(ArrayInfo { device: Device::CPU, pending: PendingWork::NOTHING, ..info })
    }
}
