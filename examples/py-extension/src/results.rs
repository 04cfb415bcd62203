//! Results as arrays of a named library. The module contains the functions under private names, for its tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use half::bf16;
use interop_core::arrays::{Array1, Array2};
use interop_core::python::{CuPy, Jax, NewArray, NumPy, PyTorch, WithLibrary, import_as};
use interop_core::{CudaArray, Element, HostVec, Lease, LeaseMut};
use pyo3::prelude::*;

use crate::array::{Argument, Array};

/// Returns the memory of any array as a NumPy array.
#[pyfunction]
fn as_numpy(obj: &Bound<'_, PyAny>) -> PyResult<NumPy<Array>> {
    Ok(NumPy(import_as(obj)?))
}

/// Returns it as a PyTorch tensor.
#[pyfunction]
fn as_torch(obj: &Bound<'_, PyAny>) -> PyResult<PyTorch<Array>> {
    Ok(PyTorch(import_as(obj)?))
}

/// Returns it as a CuPy array.
#[pyfunction]
fn as_cupy(obj: &Bound<'_, PyAny>) -> PyResult<CuPy<Array>> {
    Ok(CuPy(import_as(obj)?))
}

/// Returns it as a JAX array.
#[pyfunction]
fn as_jax(obj: &Bound<'_, PyAny>) -> PyResult<Jax<Array>> {
    Ok(Jax(import_as(obj)?))
}

/// Returns an array of the same kind as the argument, in the same memory.
#[pyfunction]
fn as_it_came(obj: WithLibrary<Argument>) -> WithLibrary<Argument> {
    obj
}

/// Returns new memory of the caller's library, filled with ones. Its previous contents are not used.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as functions of users take it")]
fn ones_like(
    py: Python<'_>,
    obj: WithLibrary<Array2<Lease<f32>>>,
) -> PyResult<NewArray<Array2<LeaseMut<f32>>>> {
    let mut ones = obj.new_like::<Array2<LeaseMut<f32>>>(py)?;
    ones.fill(1.0_f32)?;
    Ok(ones)
}

/// The same for `bfloat16`, which `NumPy` has from `ml_dtypes`.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as functions of users take it")]
fn ones_like_bf16(
    py: Python<'_>,
    obj: WithLibrary<Array2<Lease<bf16>>>,
) -> PyResult<NewArray<Array2<LeaseMut<bf16>>>> {
    let mut ones = obj.new_like::<Array2<LeaseMut<bf16>>>(py)?;
    ones.fill(bf16::ONE)?;
    Ok(ones)
}

/// Returns a matrix with every element doubled, in memory that Rust owns.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as functions of users take it")]
fn doubled(obj: WithLibrary<Array2<Lease<f32>>>) -> PyResult<WithLibrary<Array2<HostVec<f32>>>> {
    let view = obj.view::<f32, 2>()?.host_view()?;
    let [rows, columns] = view.shape();
    let mut values = HostVec::try_zeroed(rows * columns)?;
    for (place, value) in values.as_mut_slice()?.iter_mut().zip(&view) {
        *place = value + value;
    }
    drop(view);
    Ok(obj.like(Array2 { values, rows, columns }))
}

type InNumPy<S> = NumPy<Array1<S>>;

fn row<T: Element>(values: &[T]) -> Array1<HostVec<T>> {
    HostVec::from(values).into()
}

/// A struct without padding.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    label: i32,
    place: [f32; 3],
}

#[pyfunction]
fn points() -> InNumPy<HostVec<Point>> {
    NumPy(row(&[Point { label: 1, place: [0.5, 1.5, 2.5] }, Point { label: 2, place: [0.0; 3] }]))
}

/// Returns flags that NumPy may change and that Rust must validate before reading, and flags in a `Vec`.
#[pyfunction]
fn flags() -> (InNumPy<HostVec<bool>>, InNumPy<Vec<bool>>) {
    (NumPy(row(&[true, false])), NumPy(vec![true, false].into()))
}

type Floats = InNumPy<HostVec<f32>>;

/// Returns results in a tuple, a list, a dict, and an optional one.
#[pyfunction]
fn in_containers(there: bool) -> (Floats, Vec<Floats>, BTreeMap<&'static str, Floats>, Option<Floats>) {
    let make = || NumPy(row(&[1.0_f32, 2.0]));
    (make(), vec![make(), make()], BTreeMap::from([("key", make())]), there.then(make))
}

/// Returns a vector that only NumPy owns, and one that Rust shares.
#[pyfunction]
fn vectors() -> (InNumPy<Vec<f64>>, InNumPy<Arc<Vec<f64>>>) {
    let values = vec![1.0, 2.0];
    (NumPy(values.clone().into()), NumPy(Array1 { values: values.into(), len: 2 }))
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr("_as_numpy", wrap_pyfunction!(as_numpy, module)?)?;
    module.setattr("_as_torch", wrap_pyfunction!(as_torch, module)?)?;
    module.setattr("_as_cupy", wrap_pyfunction!(as_cupy, module)?)?;
    module.setattr("_as_jax", wrap_pyfunction!(as_jax, module)?)?;
    module.setattr("_as_it_came", wrap_pyfunction!(as_it_came, module)?)?;
    module.setattr("_ones_like", wrap_pyfunction!(ones_like, module)?)?;
    module.setattr("_ones_like_bf16", wrap_pyfunction!(ones_like_bf16, module)?)?;
    module.setattr("_doubled", wrap_pyfunction!(doubled, module)?)?;
    module.setattr("_points", wrap_pyfunction!(points, module)?)?;
    module.setattr("_flags", wrap_pyfunction!(flags, module)?)?;
    module.setattr("_in_containers", wrap_pyfunction!(in_containers, module)?)?;
    module.setattr("_vectors", wrap_pyfunction!(vectors, module)?)
}
