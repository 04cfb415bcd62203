//! Arguments that come by the buffer protocol, and arguments that are converted.
#![expect(clippy::needless_pass_by_value, reason = "arguments of Python functions are handles")]

use interop_core::arrays::{Array1, Array2};
use interop_core::python::ArrayLike;
use interop_core::view::ReadOnlyCell;
use interop_core::{CudaArray, Element, HostVec, Kept, Lease, LeaseMut, Storage, same_extent};
use pyo3::prelude::*;

/// As a structured type of NumPy: `np.dtype([("detector", "u1"), ("energy", "f8")], align=True)`.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Hit {
    detector: u8,
    energy: f64,
}

/// Returns the energy of all hits, and the address of the first.
#[pyfunction]
fn energy(hits: Array1<Lease<Hit>>) -> PyResult<(f64, usize)> {
    let energy = hits.fold(0.0, |sum, hit: Hit| sum + hit.energy * f64::from(hit.detector))?;
    Ok((energy, hits.info()?.address()))
}

/// Adds to the energy of each hit, in place.
#[pyfunction]
fn heat(mut hits: Array1<LeaseMut<Hit>>, by: f64) -> PyResult<()> {
    Ok(hits.map_inplace(|hit: Hit| Hit { energy: hit.energy + by, ..hit })?)
}

/// Returns the address and the elements of what was converted, or used in place.
fn seen<S: Storage, T: Element>(row: &Array1<S>) -> PyResult<(usize, Vec<T>)>
where
    Array1<S>: CudaArray,
{
    Ok((row.info()?.address(), row.to_vec()?))
}

#[pyfunction]
fn like_f64(obj: ArrayLike<Array1<Lease<f64>>>) -> PyResult<(usize, Vec<f64>)> {
    seen(&obj)
}

#[pyfunction]
fn like_f32(obj: ArrayLike<Array1<HostVec<f32>>>) -> PyResult<(usize, Vec<f32>)> {
    seen(&obj)
}

#[pyfunction]
fn like_i32(obj: ArrayLike<Array1<Lease<i32>>>) -> PyResult<(usize, Vec<i32>)> {
    seen(&obj)
}

#[pyfunction]
fn like_u64(obj: ArrayLike<Array1<Vec<u64>>>) -> Vec<u64> {
    obj.0.values
}

#[pyfunction]
fn like_flags(obj: ArrayLike<Kept<Array1<Lease<bool>>>>) -> PyResult<Vec<bool>> {
    Ok(obj.to_vec()?)
}

#[pyfunction]
fn like_points(obj: ArrayLike<Array1<Lease<[f32; 2]>>>) -> PyResult<Vec<[f32; 2]>> {
    Ok(obj.to_vec()?)
}

#[pyfunction]
fn like_hits(obj: ArrayLike<Array1<Lease<Hit>>>) -> usize {
    obj.len
}

/// A matrix whose columns are contiguous.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], order = "F")]
struct Table {
    #[cuda_array(data)]
    values: Lease<f32>,
    rows: usize,
    columns: usize,
}

#[pyfunction]
fn like_columns(obj: ArrayLike<Table>) -> PyResult<(usize, Vec<f32>)> {
    Ok((obj.info()?.address(), obj.to_vec()?))
}

#[pyfunction]
fn like_bf16(obj: ArrayLike<Array1<Lease<half::bf16>>>) -> usize {
    obj.len
}

/// An array with a value that is not of the array.
#[derive(CudaArray)]
#[cuda_array(python)]
struct Labeled {
    #[cuda_array(inner)]
    table: Table,
    #[cuda_array(default)]
    label: u8,
}

#[pyfunction]
fn like_inner(obj: ArrayLike<Labeled>) -> PyResult<(u8, Vec<f32>)> {
    Ok((obj.label, obj.table.to_vec()?))
}

/// Returns the sum of each row of a matrix of shape (n, k), weighted by an array of shape (k,).
#[pyfunction]
fn weighted(matrix: Array2<Lease<f32>>, weights: Array1<Lease<f32>>) -> PyResult<Vec<f32>> {
    same_extent!(weights.len, matrix.columns)?;
    let (matrix, weights) = (matrix.view::<f32, 2>()?.host_view()?, weights.to_vec::<f32>()?);
    let sum = |row: &[ReadOnlyCell<f32>]| {
        row.iter().zip(&weights).map(|(value, weight)| value.get() * weight).sum()
    };
    Ok(matrix.rows()?.map(sum).collect())
}

/// Returns the number of elements of two matrices.
#[pyfunction]
fn both(first: Array2<Lease<f32>>, second: ArrayLike<Kept<Array2<Lease<f32>>>>) -> usize {
    first.rows * first.columns + second.rows * second.columns
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr("_energy", wrap_pyfunction!(energy, module)?)?;
    module.setattr("_weighted", wrap_pyfunction!(weighted, module)?)?;
    module.setattr("_both", wrap_pyfunction!(both, module)?)?;
    module.setattr("_heat", wrap_pyfunction!(heat, module)?)?;
    module.setattr("_like_f64", wrap_pyfunction!(like_f64, module)?)?;
    module.setattr("_like_f32", wrap_pyfunction!(like_f32, module)?)?;
    module.setattr("_like_i32", wrap_pyfunction!(like_i32, module)?)?;
    module.setattr("_like_u64", wrap_pyfunction!(like_u64, module)?)?;
    module.setattr("_like_flags", wrap_pyfunction!(like_flags, module)?)?;
    module.setattr("_like_points", wrap_pyfunction!(like_points, module)?)?;
    module.setattr("_like_hits", wrap_pyfunction!(like_hits, module)?)?;
    module.setattr("_like_columns", wrap_pyfunction!(like_columns, module)?)?;
    module.setattr("_like_inner", wrap_pyfunction!(like_inner, module)?)?;
    module.setattr("_like_bf16", wrap_pyfunction!(like_bf16, module)?)
}
