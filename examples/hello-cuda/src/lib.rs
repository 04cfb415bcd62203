//! A Python module with its own kernels, which run where the tensors are: on the CPU or on a GPU. The tensors may be of any library.

use hello_cuda_kernels::{PTX, add_elements, double_elements, doubled_elements, normalized_rows};
use interop_core::kernel::half::bf16;
use interop_core::kernel::{Compiled, Real};
use interop_core::python::{NewArray, WithLibrary, import, import_as};
use interop_core::{
    CudaArray, Element, FromArray, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut, dispatch,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

/// The kernels. The first launch on a GPU loads them.
// SAFETY: the PTX is compiled from the functions of the crate in `kernels`.
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

/// A row of numbers. `Lease<f32>` borrows the caller's memory for reading, `LeaseMut<f32>` for writing.
#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// Rows of numbers, which may be a part of a larger tensor.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], python)]
struct Matrix<S> {
    #[cuda_array(data)]
    values: S,
    rows: usize,
    columns: usize,
    #[cuda_array(strides)]
    strides: Option<[isize; 2]>,
}

/// As `rms_norm` of the module, for one element type.
fn normalized<T: Element + Real>(
    py: Python<'_>,
    x: &WithLibrary<Matrix<Lease<T>>>,
    weight: &Row<Lease<T>>,
    eps: f32,
) -> PyResult<NewArray<Matrix<LeaseMut<T>>>>
where
    normalized_rows<T>: Compiled,
{
    let mut out: NewArray<Matrix<LeaseMut<T>>> = x.new_like(py)?;
    let size = LaunchSize::for_rows::<T>(x.rows, x.columns);
    let scope = LaunchScope::new();
    let arguments =
        normalized_rows::<T>::with(scope.read(&**x)?, scope.read(weight)?, scope.write(&mut *out)?, eps);
    scope.launch(&KERNELS, size, arguments)?;
    scope.finish()?;
    Ok(out)
}

/// Functions that run kernels from Rust.
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
    pub(super) fn add_(mut row: Row<LeaseMut<f32>>, other: Row<Lease<f32>>) -> PyResult<()> {
        let size = LaunchSize::for_units(row.len);
        let scope = LaunchScope::new();
        let arguments = add_elements::with(scope.write(&mut row)?, scope.read(&other)?);
        scope.launch(&KERNELS, size, arguments)?;
        Ok(scope.finish()?)
    }

    /// Returns a new tensor of the caller's library: each row divided by the root of the mean of its squares, times a weight. The
    /// elements are `float32` or `bfloat16`.
    #[pyfunction]
    #[pyo3(signature = (x, weight, eps = 1e-6))]
    fn rms_norm<'py>(
        x: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        eps: f32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, array) = (x.py(), import(x, None)?);
        dispatch!(array.info().dtype(), [f32, bf16], T => {
            let rows = WithLibrary::new(x, Matrix::<Lease<T>>::from_import(array)?)?;
            normalized(py, &rows, &import_as(weight)?, eps)?.into_bound_py_any(py)
        })?
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use interop_core::cuda::{CudaBuffer, MemoryKind};
    use interop_core::{HostVec, SharedBuffer};

    use super::*;

    /// On the simulated driver, which runs the functions of the crate in `kernels`, and reports accesses that nothing orders.
    #[test]
    fn rows_are_added_without_a_gpu() -> PyResult<()> {
        let sim = simulated_cuda::sim();
        sim.register::<add_elements>();
        let row = |values| CudaBuffer::from_slice(MemoryKind::Device, 0, values).map(SharedBuffer::new);
        assert_added(row(&[1.0, 2.0, 3.0])?, row(&[10.0, 20.0, 30.0])?)?;
        sim.assert_no_reports();
        Ok(())
    }

    /// The same function runs the same kernel on the CPU.
    #[test]
    fn rows_of_the_cpu_are_added() -> PyResult<()> {
        let row = |values: [f32; 3]| SharedBuffer::new(HostVec::from(values.to_vec()));
        assert_added(row([1.0, 2.0, 3.0]), row([10.0, 20.0, 30.0]))
    }

    /// Adds rows of three numbers, as a library passes them.
    fn assert_added(sums: SharedBuffer, others: SharedBuffer) -> PyResult<()> {
        let row = |values: &SharedBuffer| Row { values: values.clone(), len: 3 };
        let lent = |values| row(values).into_dlpack();
        hello_cuda::add_(Row::from_dlpack(lent(&sums)?)?, Row::from_dlpack(lent(&others)?)?)?;
        assert_eq!(row(&sums).to_vec::<f32>()?, [11.0, 22.0, 33.0]);
        Ok(())
    }
}
