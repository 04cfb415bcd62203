//! Runs a kernel on pinned memory: the device reads and writes host memory in place, without a copy.
#![expect(unsafe_code, reason = "a kernel does what its source says")]

use cust::memory::LockedBuffer;
use cust::prelude::{Module, Stream, StreamFlags, launch};
use interop_core::{AsStream, CudaArray, LaunchScope, LaunchSize, StreamHandle};
use interop_demo_kernels::{Arrays, SCALE_PTX};

use crate::Outcome;

/// Samples in pinned host memory, which devices can access.
#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data)]
    values: LockedBuffer<f32>,
    len: usize,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// Doubles `len` elements.
///
/// # Errors
///
/// Returns an error if a driver call fails.
pub fn run(len: usize) -> Outcome {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(SCALE_PTX, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let numbers: Vec<f32> = (0..len).map(|index| (index % 1000) as f32).collect();
    let values = LockedBuffer::from_slice(&numbers)?;
    let mut samples = Samples { values, len, stream: stream.as_stream() };

    let scope = LaunchScope::on(&stream);
    let array: Arrays<'_, 1> = Arrays::new([&scope.write::<f32, 1>(&mut samples)?])?;
    let LaunchSize { grid, block } = array.launch_size();
    // SAFETY: `scale_f32` takes this array and a factor. The samples live until they have been read, which waits for
    // the kernel.
    unsafe { launch!(module.scale_f32<<<grid, block, 0, stream>>>(array, 2.0_f64))? };
    scope.finish()?;

    // A host view waits for the stream in the struct.
    let device = samples.info()?.device();
    let view = samples.view::<f32, 1>()?.host_view()?;
    let wrong = view.to_vec()?.iter().zip(&numbers).filter(|(now, before)| **now != 2.0 * **before).count();
    Ok(format!("pinned: {len} elements doubled in {device}, {wrong} of them wrong\n"))
}
