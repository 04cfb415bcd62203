//! The message, and the end of the offer.

#![expect(unsafe_code, reason = "lends the buffer of a `bytes` object")]

use core::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use interop_core::python::extract_stream;
use interop_core::{ErrorKind, Import, StreamHandle};
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::errors::to_exception;

/// How often a wait looks for signals, such as that of Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);

/// The message about an offered array, as plain bytes, and the offer itself. Its pickle is the bytes alone.
///
/// The offer does not end with this object, so that it can be sent in one expression. It ends when the array was opened as often as it
/// may be, when its time is over, by `withdraw`, by `take_back`, or with the block of a `with` statement, which calls `take_back`.
#[pyclass(frozen, module = "interop_ipc")]
pub(crate) struct Parcel {
    message: Py<PyBytes>,
    array: Py<PyAny>,
    time: Duration,
    /// `None` after the array was taken back, and while that waits.
    offer: Mutex<Option<::interop_ipc::Parcel<Import>>>,
}

/// Offers an array to other processes, and returns the message for them: `opens` of them can open it within `seconds`.
///
/// The memory must be that of `empty`, or on a GPU that of `cudaMalloc`, as PyTorch, CuPy and Numba use it by default, or other memory
/// that has a type of handle. With `copy=True` the elements of any array are copied into new memory of that kind, on a GPU in the order of
/// the caller's stream. With `writable=True` the process that opens the array may
/// write to it; only one can open it. The array is kept until the offer has ended and nobody has it open.
#[pyfunction]
#[pyo3(signature = (array, *, opens=1, seconds=60.0, copy=false, writable=false))]
pub(crate) fn share(
    array: &Bound<'_, PyAny>,
    opens: u32,
    seconds: f64,
    copy: bool,
    writable: bool,
) -> PyResult<Parcel> {
    let (py, time) = (array.py(), duration(seconds)?);
    if writable && (copy || opens != 1) {
        return Err(PyValueError::new_err("with `writable=True`, `opens` is 1 and `copy` is False"));
    }
    let mut import = interop_core::python::import(array, None)?;
    if !writable {
        import = import.read_only();
    }
    if !copy {
        import.settle()?;
    }
    let offer = if copy {
        py.detach(|| ::interop_ipc::copy_import(&import, opens, time))
    } else {
        // Not detached: nothing waits, and what is refused is dropped here.
        let is_read_only = import.info().is_read_only();
        ::interop_ipc::lend_import(import, is_read_only, opens, time).map_err(|refused| refused.error)
    };
    let offer = offer.map_err(to_exception)?;
    Ok(Parcel {
        message: PyBytes::new(py, offer.bytes()).unbind(),
        array: array.clone().unbind(),
        time,
        offer: Mutex::new(Some(offer)),
    })
}

fn duration(seconds: f64) -> PyResult<Duration> {
    let fault = |_| PyValueError::new_err(format!("`seconds`: found {seconds}, allowed: 0 or more"));
    // More than a century is as long as for ever. `min` would hide a NaN.
    Duration::try_from_secs_f64(if seconds > 4e9 { 4e9 } else { seconds }).map_err(fault)
}

impl Parcel {
    /// Accesses the offer. No code of Python runs under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Option<::interop_ipc::Parcel<Import>>) -> T) -> T {
        change(&mut self.offer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wait(&self, py: Python<'_>, time: Duration, stream: Option<StreamHandle>) -> PyResult<()> {
        let Some(offer) = self.change(Option::take) else {
            return Err(PyRuntimeError::new_err("the array was taken back, or another thread does it now"));
        };
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let Err(error) = py.detach(|| offer.end_use(stream, left.min(SIGNALS))) else { return Ok(()) };
            let interrupted = py.check_signals();
            let is_late = error.kind() == ErrorKind::AlreadyBorrowed;
            if interrupted.is_ok() && is_late && start.elapsed() < time {
                continue;
            }
            self.change(|place| *place = Some(offer));
            interrupted?;
            return Err(if is_late { still_open(time) } else { to_exception(error) });
        }
    }
}

#[cold]
fn still_open(time: Duration) -> PyErr {
    let after = time.as_secs_f64();
    PyTimeoutError::new_err(format!(
        "another process still has the array open after {after} s; `interop_ipc.leases()` tells which"
    ))
}

#[pymethods]
impl Parcel {
    /// Ends the offer: nobody can open the array from now on. Who has it open keeps it.
    fn withdraw(&self, py: Python<'_>) {
        py.detach(|| {
            // While `take_back` waits, the offer has ended already.
            self.change(|offer| offer.as_ref().map(::interop_ipc::Parcel::withdraw));
        });
    }

    /// Ends the offer, waits until nobody has the array open, and returns it. After that this process may write to it.
    ///
    /// It waits for as long as the array was offered for, or for `seconds`, and then raises a `TimeoutError`; `leases` tells who has
    /// it open. A process that has ended has nothing open.
    ///
    /// On a GPU, it also waits for the work of the other processes, or with a `stream` makes that wait: use the array on this stream, an
    /// integer as that of `__dlpack__`, or an object with `__cuda_stream__`.
    #[pyo3(signature = (seconds=None, *, stream=None))]
    fn take_back(
        &self,
        py: Python<'_>,
        seconds: Option<f64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let stream = stream.map(extract_stream).transpose()?;
        self.wait(py, seconds.map_or(Ok(self.time), duration)?, stream)?;
        Ok(self.array.clone_ref(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Takes the array back; after an exception only ends the offer.
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if exception.is_none() {
            return self.wait(py, self.time, None);
        }
        self.withdraw(py);
        Ok(())
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.message.clone_ref(py)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.message.bind(py).as_bytes().len()
    }

    /// Other processes get the bytes, which is all that they need.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (Py<PyBytes>,)) {
        (py.get_type::<PyBytes>(), (self.message.clone_ref(py),))
    }

    /// Without the bytes: who knows them can open the array.
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<Parcel of {} bytes>", self.__len__(py))
    }

    #[expect(unsafe_op_in_unsafe_fn, reason = "PyO3 calls unsafe methods without a block of their own")]
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the object is alive, and the caller passes a buffer structure to fill. Its owner becomes the `bytes` object,
        // which releases it.
        let status = ffi::PyObject_GetBuffer(slf.get().message.as_ptr(), view, flags);
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
