//! Asks the libraries whose arrays were seen whether they capture a graph, before an event that would invalidate it.
#![expect(unsafe_code, reason = "runs with an exception set")]

use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::process::fork::PerProcess;
use crate::python::exception_state::with_saved_exception;
use crate::python::import::exchange_table::{Table, TableStream, ask_stream};
use crate::python::import::package::Package;
use crate::python::unstable_api::is_attached;

/// A library that tells its current stream without one of its arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Table(Table),
    Package(Package),
}

/// The libraries that were seen. A list that grows leaks its predecessor; there are only as many as libraries.
static WATCHED: PerProcess<Mutex<&[Watched]>> = PerProcess::new(|_| Mutex::new(&[]));

/// Makes releases of CUDA memory check whether the library of a class captures a graph.
pub(crate) fn watch(exchange: Option<Table>, package: Package) {
    let library = match (exchange, package) {
        (Some(table), _) => Watched::Table(table),
        (None, Package::PyTorch | Package::CuPy | Package::Warp | Package::TvmFfi) => {
            Watched::Package(package)
        }
        _ => return,
    };
    let mut watched = WATCHED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !watched.contains(&library) {
        *watched = Vec::leak([*watched, &[library]].concat());
    }
    cuda::set_capture_hook(captures);
}

impl Watched {
    /// Returns the current stream of the library on this thread. An exception may be set afterwards.
    fn stream(self, py: Python<'_>, device: Device) -> Option<StreamHandle> {
        match self {
            Self::Table(table) => match ask_stream(table, py, device) {
                TableStream::Handle(handle) => Some(handle),
                TableStream::Null | TableStream::Absent => None,
            },
            Self::Package(package) => package.current_stream(py, device).ok()?.map(|stream| stream.handle),
        }
    }
}

/// Returns whether the current stream of a library captures a graph, for this thread and for one device or all devices.
fn captures(device: Option<i32>) -> bool {
    if !is_attached() {
        return false;
    }
    // SAFETY: the check above found the thread attached.
    let py = unsafe { Python::assume_attached() };
    let watched = *WATCHED.get().lock().unwrap_or_else(PoisonError::into_inner);
    let devices = device.map_or(0..cuda::device_count(), |ordinal| ordinal..ordinal + 1);
    let mut found = false;
    let ask = || {
        found = watched.iter().any(|library| {
            let at_work = |ordinal| {
                let stream = library.stream(py, Device::cuda(ordinal));
                // A release cannot raise an exception. `PyErr::take` would resume a panic that was raised as one.
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
                stream
            };
            devices.clone().filter_map(at_work).any(cuda::captures)
        });
    };
    // A release may run while an exception is set.
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(ask) };
    found
}
