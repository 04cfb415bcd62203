//! A Python module whose functions take and return arrays of any library.
//!
//! `Array1` is a row of numbers. Its storage determines who owns the memory: `Lease<f32>` and `LeaseMut<f32>` borrow the
//! caller's memory, for reading and for writing. `HostVec<f32>` owns new memory.

use interop_core::arrays::Array1;
use interop_core::python::WithLibrary;
use interop_core::{CudaArray, HostVec, Lease, LeaseMut};
use pyo3::prelude::*;

/// A class of one's own whose instances are arrays.
#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
    #[pyo3(get)]
    rate: u32,
}

#[pymethods]
impl Samples {
    #[new]
    fn new(len: usize, rate: u32) -> PyResult<Self> {
        Ok(Self { values: HostVec::try_zeroed(len)?, len, rate })
    }

    fn __len__(&self) -> usize {
        self.len
    }
}

/// Arrays from Rust.
#[pymodule]
mod hello_python {
    use super::*;

    #[pymodule_export]
    use super::Samples;

    /// Doubles every element of the caller's array, in place.
    #[pyfunction]
    fn double_(mut row: Array1<LeaseMut<f32>>) -> PyResult<()> {
        Ok(row.map_inplace::<f32>(|value| 2.0 * value)?)
    }

    /// Every element halved, as a new array of the caller's library: NumPy in, NumPy out.
    #[pyfunction]
    fn halved(row: WithLibrary<Array1<Lease<f32>>>) -> PyResult<WithLibrary<Array1<HostVec<f32>>>> {
        let values: HostVec<f32> = row.to_vec::<f32>()?.into_iter().map(|value| value / 2.0).collect();
        Ok(row.like(values.into()))
    }

    /// A new array with every element doubled.
    #[pyfunction]
    fn double(row: Array1<Lease<f32>>) -> PyResult<Array1<HostVec<f32>>> {
        let mut doubled = Array1::from(HostVec::<f32>::try_zeroed(row.len)?);
        doubled.zip_map_inplace(&row, |_: f32, value: f32| 2.0 * value)?;
        Ok(doubled)
    }
}
