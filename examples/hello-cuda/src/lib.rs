//! A Python module with its own CUDA kernels, which works on tensors of any library.

use hello_cuda_kernels::{PTX, add_elements, double_elements, doubled_elements};
use interop_core::python::{NewArray, WithLibrary};
use interop_core::{CudaArray, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut};
use pyo3::prelude::*;

/// The kernels. The first launch on a device loads them.
// SAFETY: the PTX is compiled from the functions of the crate in `kernels`.
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

/// A row of numbers in device memory. `Lease<f32>` borrows the caller's memory for reading, `LeaseMut<f32>` for writing.
#[derive(CudaArray)]
#[cuda_array(shape = [len], device = "cuda", python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// Functions that run CUDA kernels from Rust.
#[pymodule]
mod hello_cuda {
    use super::*;

    /// Doubles every element of the caller's tensor, in place.
    #[pyfunction]
    fn double_(mut row: Row<LeaseMut<f32>>) -> PyResult<()> {
        let size = LaunchSize::for_units(row.len);
        let scope = LaunchScope::new();
        scope.launch(&KERNELS, size, double_elements::with(scope.write(&mut row)?))?;
        Ok(scope.finish()?)
    }

    /// Returns a new tensor of the caller's library with every element doubled.
    #[pyfunction]
    fn double(py: Python<'_>, row: WithLibrary<Row<Lease<f32>>>) -> PyResult<NewArray<Row<LeaseMut<f32>>>> {
        let mut doubled: NewArray<Row<LeaseMut<f32>>> = row.new_like(py)?;
        let size = LaunchSize::for_units(row.len);
        let scope = LaunchScope::new();
        let arguments = doubled_elements::with(scope.read(&row)?, scope.write(&mut doubled)?);
        scope.launch(&KERNELS, size, arguments)?;
        scope.finish()?;
        Ok(doubled)
    }

    /// Adds the elements of another tensor, which may belong to another library, to those of the caller's, in place.
    #[pyfunction]
    fn add_(mut row: Row<LeaseMut<f32>>, other: Row<Lease<f32>>) -> PyResult<()> {
        let size = LaunchSize::for_units(row.len);
        let scope = LaunchScope::new();
        let arguments = add_elements::with(scope.write(&mut row)?, scope.read(&other)?);
        scope.launch(&KERNELS, size, arguments)?;
        Ok(scope.finish()?)
    }
}
