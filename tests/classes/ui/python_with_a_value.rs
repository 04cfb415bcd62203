use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len], python = true)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[pyfunction]
fn pass(samples: Samples) -> Samples {
    samples
}

fn main() {}
