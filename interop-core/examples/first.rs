//! The shortest program: an array goes out as a DLPack tensor and comes back in place. It needs no GPU and no Python.

use interop_core::{CudaArray, FromArray, HostVec, LeaseMut};

/// Samples in memory that `S` owns or borrows.
#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn main() -> interop_core::Result<()> {
    let samples = Samples { values: HostVec::from([1.0_f32, 2.0, 3.0]), len: 3 };
    let tensor = samples.into_dlpack()?;
    let mut samples: Samples<LeaseMut<f32>> = Samples::from_dlpack(tensor)?;
    samples.map_inplace(|value: f32| value * 2.0)?;
    println!("first: {} elements in place, {:?}", samples.len, samples.to_vec::<f32>()?);
    Ok(())
}
