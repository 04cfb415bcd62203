//! Vector add with `cust`: buffers in derived structs, structs in `launch!`, the sum handed on as a DLPack tensor.
#![expect(unsafe_code, reason = "a kernel does what its source says")]

use cust::memory::DeviceBuffer;
use cust::prelude::{Module, Stream, StreamFlags, launch};
use interop_core::{AsStream, CudaArray, FromArray, LaunchSize, Lease, StreamHandle};
use interop_demo_kernels::{Arrays, VECTOR_ADD_PTX};

use crate::Outcome;

/// A vector in memory of any kind, and the stream on which it was last written.
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
/// Those of the driver.
pub fn run(len: usize) -> Outcome {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(VECTOR_ADD_PTX, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let numbers: Vec<f32> = (0..len).map(|index| (index % 1000) as f32).collect();
    let (left, right) = (Vector::new(&numbers)?, Vector::new(&numbers)?);
    let mut sum = Vector::new(&vec![0.0; len])?;

    // The stream of the kernel waits for what is pending on its arguments. No event where it is the same stream.
    for vector in [&left, &right, &sum] {
        vector.make_stream_wait(stream.as_stream())?;
    }
    let (a, b, c) =
        (left.kernel_view::<f32, 1>()?, right.kernel_view::<f32, 1>()?, sum.kernel_view_mut::<f32, 1>()?);
    // Together, the output first: one kernel adds arrays of any rank and any strides.
    let arrays: Arrays<'_, 3> = Arrays::new([&c, &a, &b])?;
    let LaunchSize { grid, block } = arrays.launch_size();
    // SAFETY: `vector_add` takes these three arrays; all vectors live until the sum was read, which waits for it.
    unsafe { launch!(module.vector_add<<<grid, block, 0, stream>>>(arrays))? };
    sum.stream = stream.as_stream();

    // To another library, and back: the same memory, ordered after the kernel, released when `borrowed` is dropped.
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
