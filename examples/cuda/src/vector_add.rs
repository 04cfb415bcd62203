//! Adds vectors with `cust`: derived structs hold the buffers, `launch!` takes them, and the sum is exported through
//! DLPack.
#![expect(unsafe_code, reason = "a kernel does what its source says")]

use cust::memory::DeviceBuffer;
use cust::prelude::{Module, Stream, StreamFlags, launch};
use interop_core::{CudaArray, FromArray, LaunchScope, LaunchSize, Lease, StreamHandle};
use interop_demo_kernels::{Arrays, VECTOR_ADD_PTX};

use crate::Outcome;

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
    let module = Module::from_ptx(VECTOR_ADD_PTX, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let numbers: Vec<f32> = (0..len).map(|index| (index % 1000) as f32).collect();
    let (left, right) = (Vector::new(&numbers)?, Vector::new(&numbers)?);
    let mut sum = Vector::new(&vec![0.0; len])?;

    // The stream of the scope waits for each array, and at the end of the scope the arrays' streams wait for it.
    let scope = LaunchScope::on(&stream);
    let (a, b, c) =
        (scope.read::<f32, 1>(&left)?, scope.read::<f32, 1>(&right)?, scope.write::<f32, 1>(&mut sum)?);
    // All arrays form one argument, the output first. The kernel adds arrays of any rank and any strides.
    let arrays: Arrays<'_, 3> = Arrays::new([&c, &a, &b])?;
    let LaunchSize { grid, block } = arrays.launch_size();
    // SAFETY: `vector_add` takes these three arrays. All vectors live until the sum has been read, which waits for the
    // kernel.
    unsafe { launch!(module.vector_add<<<grid, block, 0, stream>>>(arrays))? };
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
