//! A struct without `python` as an argument and as a result of a function.

use interop_core::{CudaArray, HostVec, Lease};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

#[pyfunction]
fn len_of(row: Row<Lease<f32>>) -> usize {
    row.len
}

#[pyfunction]
fn zeros(len: usize) -> Row<HostVec<f32>> {
    Row { values: HostVec::zeroed(len), len }
}

#[pyfunction]
fn try_zeros(len: usize) -> PyResult<Row<HostVec<f32>>> {
    Ok(Row { values: HostVec::try_zeroed(len)?, len })
}

#[pyfunction]
fn lens(rows: Vec<Row<Lease<f32>>>) -> Vec<usize> {
    rows.iter().map(|row| row.len).collect()
}

fn main() {}
