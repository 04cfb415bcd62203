//! Adds vectors of `cust` by a kernel in Rust: derived structs hold the buffers, a scope launches the kernel on a stream of
//! `cust`, and the sum is exported through DLPack.

use cust::memory::DeviceBuffer;
use cust::prelude::{Stream, StreamFlags};
use interop_core::{CudaArray, FromArray, LaunchScope, Lease, StreamHandle};
use interop_demo_kernels::kernels;

use crate::{KERNELS, Outcome};

/// A vector in any kind of memory, and the stream on which it was last written.
#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Vector<S = DeviceBuffer<f32>> {
    #[cuda_array(data)]
    values: S,
    len: usize,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

impl Vector {
    fn new(values: &[f32]) -> cust::error::CudaResult<Self> {
        let stream = StreamHandle::LegacyDefault;
        Ok(Self { values: DeviceBuffer::from_slice(values)?, len: values.len(), stream })
    }
}

/// Adds two vectors of `len` elements.
///
/// # Errors
///
/// Returns an error if a driver call fails.
pub fn run(len: usize) -> Outcome {
    let _context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let numbers: Vec<f32> = (0..len).map(|index| (index % 1000) as f32).collect();
    let (left, right) = (Vector::new(&numbers)?, Vector::new(&numbers)?);
    let mut sum = Vector::new(&vec![0.0; len])?;

    // The stream of the scope waits for each array, and at the end of the scope the arrays' streams wait for it.
    let scope = LaunchScope::on(&stream);
    // All arrays form one argument. The kernel adds arrays of any rank and any strides.
    let arrays = scope.elementwise((&mut sum, &left, &right))?;
    scope.launch(&KERNELS, arrays.launch_size(), kernels::vector_add::with(arrays))?;
    scope.finish()?;

    // Exports the sum and imports it again, as another library would: in place, after the kernel, released with
    // `borrowed`.
    let address = sum.info()?.address();
    let borrowed: Vector<Lease<f32>> = Vector::from_dlpack(sum.into_dlpack()?)?;
    let place = if borrowed.info()?.address() == address { "in place" } else { "copied" };
    let wrong = borrowed
        .to_vec::<f32>()?
        .iter()
        .zip(&numbers)
        .filter(|(sum, number)| **sum != 2.0 * **number)
        .count();
    Ok(format!("vector_add: {len} sums, {wrong} of them wrong, {place} through DLPack\n"))
}
