//! The Python module `interop_rows`: kernels in which a team of threads owns a row, for benches and tests beside `PyTorch`.
#![expect(unsafe_code, reason = "promises that the PTX is that of the kernels")]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use interop_core::kernel::half::bf16;
use interop_core::kernel::{Arguments, Kernel, KernelElement, View, ViewMut};
use interop_core::python::{import, import_as};
use interop_core::{CudaArray, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut, dispatch};
use interop_row_kernels as kernels;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

type Any<'a> = &'a Bound<'a, PyAny>;

/// The kernels, after `load`.
static KERNELS: OnceLock<KernelModule> = OnceLock::new();

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

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
    #[cuda_array(strides)]
    strides: Option<[isize; 1]>,
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], device = "cpu", python)]
struct HostMatrix<S> {
    #[cuda_array(data)]
    values: S,
    rows: usize,
    columns: usize,
}

/// The blocks, the threads of a team, and the teams of a block that a test asks for.
type Asked = Option<(u32, u32, u32)>;

/// Launches a kernel on the grid that a test asks for, or on that of the library.
fn launch<T: KernelElement, K: Kernel>(
    scope: &LaunchScope<'_>,
    (rows, columns): (usize, usize),
    asked: Asked,
    arguments: Arguments<'_, K>,
) -> PyResult<()> {
    let size = asked.map_or_else(
        || LaunchSize::for_rows::<T>(rows, columns),
        |(blocks, threads, teams)| LaunchSize { grid: (blocks, 1, 1), block: (threads, teams, 1) },
    );
    let kernels = KERNELS.get().ok_or_else(|| PyRuntimeError::new_err("call `load` first"))?;
    Ok(scope.launch(kernels, size, arguments)?)
}

/// Computes a value for the element type of an array.
macro_rules! by_type {
    ($array:expr, $type:ident => $value:expr) => {
        dispatch!(import($array, None)?.info().dtype(), [f32, bf16], $type => $value)?
    };
}

/// Kernels of rows. All functions write to a tensor that they get, and take a launch for tests.
#[pymodule]
#[expect(
    clippy::type_complexity,
    clippy::needless_pass_by_value,
    reason = "a tensor is a `Matrix` of a lease; PyO3 makes values"
)]
mod interop_rows {
    use super::{
        Any, Asked, CudaArray, HostMatrix, KERNELS, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut,
        Matrix, PathBuf, PyResult, Row, View, ViewMut, bf16, dispatch, fs, import, import_as, kernels,
        launch, pyfunction,
    };

    /// Loads the PTX of the kernels from a file.
    #[pyfunction]
    fn load(file: PathBuf) -> PyResult<()> {
        let text = Box::leak(fs::read_to_string(file)?.into_boxed_str());
        // SAFETY: the bundle has the PTX of the kernels that this module is built with.
        KERNELS.get_or_init(|| unsafe { KernelModule::new(text) });
        Ok(())
    }

    #[pyfunction]
    #[pyo3(signature = (x, weight, out, eps, asked = None))]
    fn rms_norm(x: Any<'_>, weight: Any<'_>, out: Any<'_>, eps: f32, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (x, weight, mut out): (Matrix<Lease<T>>, Row<Lease<T>>, Matrix<LeaseMut<T>>) =
                (import_as(x)?, import_as(weight)?, import_as(out)?);
            let scope = LaunchScope::new();
            let arguments =
                kernels::rms_norm::<T>::try_with(scope.read(&x), scope.read(&weight), scope.write(&mut out), eps)?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    #[pyfunction]
    #[pyo3(signature = (x, out, asked = None))]
    fn softmax(x: Any<'_>, out: Any<'_>, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (x, mut out): (Matrix<Lease<T>>, Matrix<LeaseMut<T>>) = (import_as(x)?, import_as(out)?);
            let scope = LaunchScope::new();
            let arguments = kernels::softmax::<T>::try_with(scope.read(&x), scope.write(&mut out))?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    #[pyfunction]
    #[pyo3(signature = (x, out, asked = None))]
    fn online_softmax(x: Any<'_>, out: Any<'_>, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (x, mut out): (Matrix<Lease<T>>, Matrix<LeaseMut<T>>) = (import_as(x)?, import_as(out)?);
            let scope = LaunchScope::new();
            let arguments = kernels::online_softmax::<T>::try_with(scope.read(&x), scope.write(&mut out))?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    #[pyfunction]
    #[pyo3(signature = (x, chains, asked = None))]
    fn chain(x: Matrix<Lease<f32>>, mut chains: Row<LeaseMut<f32>>, asked: Asked) -> PyResult<()> {
        let scope = LaunchScope::new();
        let arguments = kernels::chain::try_with(scope.read(&x), scope.write(&mut chains))?;
        launch::<f32, _>(&scope, (x.rows, x.columns), asked, arguments)?;
        Ok(scope.finish()?)
    }

    /// Returns what `chain` computes on the CPU, with teams of so many threads.
    #[pyfunction]
    fn chain_on_cpu(x: HostMatrix<Lease<f32>>, threads: u32) -> PyResult<Vec<f32>> {
        let (numbers, mut chains) = (x.to_vec::<f32>()?, vec![0.0; x.rows]);
        let view = View::new(&numbers, [x.rows, x.columns]);
        let size = LaunchSize::for_teams(x.rows, threads);
        kernels::chain::run(size, view, ViewMut::new(&mut chains, [x.rows]));
        Ok(chains)
    }

    #[pyfunction]
    #[pyo3(signature = (x, weight, bias, out, eps, asked = None))]
    fn layer_norm(
        x: Any<'_>,
        weight: Any<'_>,
        bias: Any<'_>,
        out: Any<'_>,
        eps: f32,
        asked: Asked,
    ) -> PyResult<()> {
        by_type!(x, T => {
            let (x, mut out): (Matrix<Lease<T>>, Matrix<LeaseMut<T>>) = (import_as(x)?, import_as(out)?);
            let (weight, bias): (Row<Lease<T>>, Row<Lease<T>>) = (import_as(weight)?, import_as(bias)?);
            let scope = LaunchScope::new();
            let (weights, biases) = (scope.read(&weight), scope.read(&bias));
            let arguments =
                kernels::layer_norm::<T>::try_with(scope.read(&x), weights, biases, scope.write(&mut out), eps)?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    #[pyfunction]
    #[pyo3(signature = (x, sums, asked = None))]
    fn row_sum(x: Any<'_>, sums: Any<'_>, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (x, mut sums): (Matrix<Lease<T>>, Row<LeaseMut<T>>) = (import_as(x)?, import_as(sums)?);
            let scope = LaunchScope::new();
            let arguments = kernels::row_sum::<T>::try_with(scope.read(&x), scope.write(&mut sums))?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    #[pyfunction]
    #[pyo3(signature = (x, values, columns, asked = None))]
    fn row_max(x: Any<'_>, values: Any<'_>, columns: Any<'_>, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (x, mut values): (Matrix<Lease<T>>, Row<LeaseMut<T>>) = (import_as(x)?, import_as(values)?);
            let mut columns: Row<LeaseMut<i64>> = import_as(columns)?;
            let scope = LaunchScope::new();
            let (values, columns) = (scope.write(&mut values), scope.write(&mut columns));
            let arguments = kernels::row_max::<T>::try_with(scope.read(&x), values, columns)?;
            launch::<T, _>(&scope, (x.rows, x.columns), asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    /// In place.
    #[pyfunction]
    #[pyo3(signature = (x, means, asked = None))]
    fn center_(x: Any<'_>, means: Any<'_>, asked: Asked) -> PyResult<()> {
        by_type!(x, T => {
            let (mut x, mut means): (Matrix<LeaseMut<T>>, Row<LeaseMut<f32>>) = (import_as(x)?, import_as(means)?);
            let shape = (x.rows, x.columns);
            let scope = LaunchScope::new();
            let arguments = kernels::center::<T>::try_with(scope.write(&mut x), scope.write(&mut means))?;
            launch::<T, _>(&scope, shape, asked, arguments)?;
            Ok(scope.finish()?)
        })
    }

    /// Returns the sums of rows that the CPU computes, with teams of so many threads.
    #[pyfunction]
    fn sum_on_cpu(x: HostMatrix<Lease<f32>>, threads: u32) -> PyResult<Vec<f32>> {
        let (numbers, mut sums) = (x.to_vec::<f32>()?, vec![0.0; x.rows]);
        let view = View::new(&numbers, [x.rows, x.columns]);
        let size = LaunchSize::for_teams(x.rows, threads);
        kernels::row_sum::<f32>::run(size, view, ViewMut::new(&mut sums, [x.rows]));
        Ok(sums)
    }

    /// Returns the threads of a team that the library chooses for an element of this many bytes.
    #[pyfunction]
    fn threads(columns: usize, bytes: usize) -> u32 {
        let of = if bytes == 2 { LaunchSize::for_rows::<bf16> } else { LaunchSize::for_rows::<f32> };
        of(1, columns).block.0
    }
}
