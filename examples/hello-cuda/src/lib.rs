//! A Python module with its own CUDA kernel, which works on tensors of any library.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use interop_core::python::{FromCaller, SameKind};
use interop_core::{CudaArray, LeaseMut, Storage, StreamHandle};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The PTX of `kernels/double.cu`. The driver compiles it for its device when it loads the module.
const PTX: &str = include_str!("../kernels/ptx/double.ptx");

/// A row of numbers in device memory.
///
/// The storage type `S` determines who owns the memory: `LeaseMut<f32>` borrows the caller's memory, and
/// `CudaSlice<f32>` owns new memory.
#[derive(CudaArray)]
#[cuda_array(shape = [len], device = "cuda", python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
    /// The stream on which the row was last used. Imports are ready on the legacy default stream, where `launch` runs.
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// Returns the kernel for a device. The module is loaded once per device.
fn kernel(ordinal: usize) -> Result<CudaFunction, DriverError> {
    static LOADED: Mutex<BTreeMap<usize, CudaFunction>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kernel) = loaded.get(&ordinal) {
        return Ok(kernel.clone());
    }
    let module = CudaContext::new(ordinal)?.load_module(Ptx::from_src(PTX))?;
    Ok(loaded.entry(ordinal).or_insert(module.load_function("double_elements")?).clone())
}

/// Queues the kernel on the default stream of the row's device.
fn launch<S: Storage>(row: &mut Row<S>) -> PyResult<()> {
    let ordinal = usize::try_from(row.info()?.device().device_id)?;
    let Some(len) = u32::try_from(row.len).ok().filter(|len| *len > 0) else { return Ok(()) };
    let view = row.kernel_view_mut::<f32, 1>()?;
    let launched = CudaContext::new(ordinal).and_then(|context| {
        let (stream, kernel) = (context.default_stream(), kernel(ordinal)?);
        // SAFETY: the kernel takes exactly this view. The lease or `CudaSlice` frees the memory only after the work
        // queued here.
        unsafe { stream.launch_builder(&kernel).arg(&view).launch(LaunchConfig::for_num_elems(len)) }
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
        launch(&mut row)
    }

    /// Returns a new tensor of the caller's library with every element doubled. The argument is a `CudaSlice`, which
    /// is a copy of the caller's tensor.
    #[pyfunction]
    fn double(mut row: FromCaller<Row<CudaSlice<f32>>>) -> PyResult<SameKind<Row<CudaSlice<f32>>>> {
        launch(&mut row)?;
        Ok(row.into_same_kind())
    }
}
