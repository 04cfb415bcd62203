//! A Python module with its own CUDA kernels, which works on tensors of any library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use interop_core::python::{NewArray, WithLibrary};
use interop_core::{CudaArray, KernelView, KernelViewMut, LaunchScope, Lease, LeaseMut};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// The PTX of `kernels/rows.cu`. The driver compiles it for its device when it loads the module.
const PTX: &str = include_str!("../kernels/ptx/rows.ptx");

/// A row of numbers in device memory. `Lease<f32>` borrows the caller's memory for reading, `LeaseMut<f32>` for writing.
#[derive(CudaArray)]
#[cuda_array(shape = [len], device = "cuda", python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// Returns a kernel for a device. It is loaded once for each device.
fn kernel(context: &Arc<CudaContext>, name: &'static str) -> Result<CudaFunction, DriverError> {
    static LOADED: Mutex<BTreeMap<(usize, &str), CudaFunction>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kernel) = loaded.get(&(context.ordinal(), name)) {
        return Ok(kernel.clone());
    }
    let kernel = context.load_module(Ptx::from_src(PTX))?.load_function(name)?;
    Ok(loaded.entry((context.ordinal(), name)).or_insert(kernel).clone())
}

/// Queues a kernel that reads one row and writes another, on the stream of the scope.
fn launch(
    scope: &LaunchScope<'_>,
    name: &'static str,
    from: KernelView<'_, f32, 1>,
    to: KernelViewMut<'_, f32, 1>,
) -> PyResult<()> {
    let stream: Arc<CudaStream> = scope.stream()?;
    let Some(len) = u32::try_from(to.numel()).ok().filter(|len| *len > 0) else { return Ok(()) };
    let launched = kernel(stream.context(), name).and_then(|kernel| {
        let config = LaunchConfig::for_num_elems(len);
        // SAFETY: the kernels take exactly these views. The scope orders them with all other work on the rows.
        unsafe { stream.launch_builder(&kernel).arg(&from).arg(&to).launch(config) }
    });
    launched.map(drop).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Functions that run CUDA kernels from Rust.
#[pymodule]
mod hello_cuda {
    use super::*;

    /// Doubles every element of the caller's tensor, in place.
    #[pyfunction]
    fn double_(mut row: Row<LeaseMut<f32>>) -> PyResult<()> {
        let scope = LaunchScope::new();
        let row = scope.write::<f32, 1>(&mut row)?;
        launch(&scope, "double_elements", row.as_view(), row)?;
        Ok(scope.finish()?)
    }

    /// Returns a new tensor of the caller's library with every element doubled.
    #[pyfunction]
    fn double(py: Python<'_>, row: WithLibrary<Row<Lease<f32>>>) -> PyResult<NewArray<Row<LeaseMut<f32>>>> {
        let mut doubled: NewArray<Row<LeaseMut<f32>>> = row.new_like(py)?;
        let scope = LaunchScope::new();
        launch(&scope, "double_elements", scope.read(&row)?, scope.write(&mut doubled)?)?;
        scope.finish()?;
        Ok(doubled)
    }

    /// Adds the elements of another tensor, which may belong to another library, to those of the caller's, in place.
    #[pyfunction]
    fn add_(mut row: Row<LeaseMut<f32>>, other: Row<Lease<f32>>) -> PyResult<()> {
        if row.len != other.len {
            let text = format!("`other`: found {} elements, allowed: {}, as in `row`", other.len, row.len);
            return Err(PyValueError::new_err(text));
        }
        let scope = LaunchScope::new();
        launch(&scope, "add_elements", scope.read(&other)?, scope.write(&mut row)?)?;
        Ok(scope.finish()?)
    }
}
