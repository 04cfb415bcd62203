//! A generic struct without its storage.

use interop_core::{CudaArray, Lease};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

#[pyfunction]
fn len_of(row: Row) -> usize {
    row.len
}

#[pyfunction]
fn len_of_element(row: Row<f32>) -> usize {
    row.len
}

#[pyfunction]
fn generic<S>(row: Row<S>) -> usize {
    row.len
}

fn main() {}
