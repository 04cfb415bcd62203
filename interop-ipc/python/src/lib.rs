//! The Python module `interop_ipc`: arrays of any library in other processes, without a copy.
//!
//! | file | what it has |
//! | --- | --- |
//! | `array.rs` | arrays of any library on their way in and out, and memory that can be shared |
//! | `parcel.rs` | the message, and the end of the offer |
//! | `errors.rs` | exceptions |

mod array;
mod errors;
mod parcel;

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors::to_exception;

/// Arrays between processes without a copy: a message of plain bytes over any channel.
#[pymodule]
mod interop_ipc {
    use interop_core::python::{array_error_type, drop_deferred_refs_soon};
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::{empty, is_alive, open};
    #[pymodule_export]
    use super::parcel::{Parcel, share};
    #[pymodule_export]
    use super::{Lease, leases, listen_at};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Other processes wait for the arrays that this one drops.
        drop_deferred_refs_soon();
        // With the name of this module, its exceptions can be pickled.
        let class = array_error_type(module.py())?;
        class.setattr("__module__", module.name()?)?;
        module.add("ArrayError", class)
    }
}

/// An array of this process that another one has open.
#[pyclass(frozen, get_all, module = "interop_ipc")]
struct Lease {
    /// The other process; 0 if it is in a container that hides its number.
    process: i32,
    /// How long it has had the array open.
    seconds: f64,
}

#[pymethods]
impl Lease {
    fn __repr__(&self) -> String {
        format!("<Lease process={} seconds={:.1}>", self.process, self.seconds)
    }
}

/// Lists the arrays of this process that others have open. Their memory is kept for as long.
#[pyfunction]
fn leases(py: Python<'_>) -> PyResult<Vec<Lease>> {
    let leases = py.detach(::interop_ipc::leases).map_err(to_exception)?;
    let lease = |lease: ::interop_ipc::Lease| Lease {
        process: lease.process,
        seconds: lease.since.elapsed().as_secs_f64(),
    };
    Ok(leases.into_iter().map(lease).collect())
}

/// Also listens at a path, which the messages of this process name from now on: for processes in containers that share a folder.
#[pyfunction]
fn listen_at(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(move || ::interop_ipc::listen_at(&path)).map_err(to_exception)
}
