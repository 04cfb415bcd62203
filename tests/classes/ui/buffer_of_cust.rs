use cust::memory::{DeviceBuffer, UnifiedBuffer};
use interop_core::adapters::cust::InContext;
use interop_core::CudaArray;
use pyo3::prelude::*;
use std::sync::Arc;

#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Bare {
    #[cuda_array(data)]
    values: DeviceBuffer<f32>,
    len: usize,
}

#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Shared {
    #[cuda_array(data)]
    values: Arc<DeviceBuffer<f32>>,
    len: usize,
}

// Freed in their context.
#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Freed {
    #[cuda_array(data)]
    values: InContext<UnifiedBuffer<f32>>,
    len: usize,
}

fn main() {}
