//! Arguments that come by the buffer protocol.
#![expect(clippy::needless_pass_by_value, reason = "arguments of Python functions are handles")]

use interop_core::{CudaArray, Element, Lease, LeaseMut};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// As a structured type of NumPy: `np.dtype([("detector", "u1"), ("energy", "f8")], align=True)`.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Hit {
    detector: u8,
    energy: f64,
}

/// Returns the energy of all hits, and the address of the first.
#[pyfunction]
fn energy(hits: Row<Lease<Hit>>) -> PyResult<(f64, usize)> {
    let energy = hits.fold(0.0, |sum, hit: Hit| sum + hit.energy * f64::from(hit.detector))?;
    Ok((energy, hits.info()?.address()))
}

/// Adds to the energy of each hit, in place.
#[pyfunction]
fn heat(mut hits: Row<LeaseMut<Hit>>, by: f64) -> PyResult<()> {
    Ok(hits.map_inplace(|hit: Hit| Hit { energy: hit.energy + by, ..hit })?)
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr("_energy", wrap_pyfunction!(energy, module)?)?;
    module.setattr("_heat", wrap_pyfunction!(heat, module)?)?;
    Ok(())
}
