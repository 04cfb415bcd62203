//! An argument by reference: an import makes a struct, to which the function would borrow.

use interop_core::{CudaArray, Lease};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Samples {
    #[cuda_array(data)]
    values: Lease<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

#[pyfunction]
fn len_of(samples: &Samples) -> usize {
    samples.len
}

#[pyfunction]
fn len_of_row(row: &Row<Lease<f32>>) -> usize {
    row.len
}

#[pyfunction]
fn change(row: &mut Row<Lease<f32>>) {
    row.len = 0;
}

fn main() {}
