//! The Python module `interop_demo`: passes derived structs to Python and back, in place.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `image.rs` | `#[cuda_array(python)]`: a struct as argument and return value |
//! | `array.rs` | `#[cuda_array(pyclass)]`: a Python class of arrays, with slicing |
//! | `manual_export.rs` | a class that implements `__dlpack__` itself |
//! | `describe.rs` | imports by hand: `describe` and `parse_cai` |
//! | `matrix.rs` | minimal functions that take an array |
//! | `kernels.rs` | operations on arrays whose element type is known only at run time |
//! | `cuda.rs` | kinds of CUDA memory, the stream that last wrote it, settings for streams and releases |
//! | `launch.rs` | kernels on arrays from any library |
//! | `twice.rs` | results of the caller's kind, in memory of the caller's library |
//! | `results.rs` | results as arrays of a library that is chosen by name |
//! | `arguments.rs` | structs of NumPy, other buffers, and arguments that are converted |
//! | `array_classes.rs` | classes that inherit from a class of arrays |

mod arguments;
mod array;
mod array_classes;
mod cuda;
mod describe;
mod image;
mod kernels;
mod launch;
mod manual_export;
mod matrix;
mod parts;
mod results;
mod twice;

use pyo3::prelude::*;

/// Arrays that Rust structs and Python libraries share in place.
#[pymodule]
mod interop_demo {
    use interop_core::python::{array_error_type, stream_error_type};
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::{Array, asarray};
    #[pymodule_export]
    use super::cuda::{
        HoldReleases, finish_releases, order, pending_releases, poll_releases, set_release_limit,
        set_release_policy, set_unordered,
    };
    #[pymodule_export]
    use super::describe::{describe, parse_cai};
    #[pymodule_export]
    use super::image::{blur_, edges};
    #[pymodule_export]
    use super::kernels::{checksum, scale_};
    #[pymodule_export]
    use super::manual_export::Recording;
    #[pymodule_export]
    use super::matrix::{interface_nbytes, is_square, is_square_trusted, trace};
    #[pymodule_export]
    use super::twice::twice;
    #[pymodule_export]
    use super::{live_allocations, live_exports};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        for class in [array_error_type(py)?, stream_error_type(py)?] {
            class.setattr("__module__", module.name()?)?;
            module.add(class.name()?, class)?;
        }
        super::arguments::add(module)?;
        super::array_classes::add(module)?;
        super::results::add(module)
    }
}

/// Returns the number of allocations that Rust has made for arrays and not freed yet.
#[pyfunction]
fn live_allocations(py: Python<'_>) -> usize {
    interop_core::cuda::poll_releases();
    interop_core::python::release_deferred_refs(py);
    interop_core::live_allocations()
}

/// Returns the number of exports that their consumers have not released yet.
#[pyfunction]
fn live_exports() -> usize {
    interop_core::live_exports()
}
