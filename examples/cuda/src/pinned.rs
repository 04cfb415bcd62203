//! Runs a kernel on pinned memory: the device reads and writes host memory in place, without a copy.

use cust::memory::LockedBuffer;
use cust::prelude::{Stream, StreamFlags};
use interop_core::launch::AsStream;
use interop_core::{CudaArray, LaunchScope, StreamHandle};
use interop_demo_kernels::kernels;

use crate::{KERNELS, Outcome};

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
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let numbers: Vec<f32> = (0..len).map(|index| (index % 1000) as f32).collect();
    let values = LockedBuffer::from_slice(&numbers)?;
    let mut samples = Samples { values, len, stream: stream.as_stream() };

    let scope = LaunchScope::on(&stream);
    let array = scope.elementwise((&mut samples,))?;
    scope.launch(&KERNELS, array.launch_size(), kernels::scale_f32::with(array, 2.0))?;
    scope.finish()?;

    // A host view waits for the stream in the struct.
    let device = samples.info()?.device();
    let view = samples.view::<f32, 1>()?.host_view()?;
    let wrong = view.iter().zip(&numbers).filter(|(now, before)| *now != 2.0 * **before).count();
    Ok(format!("pinned: {len} elements doubled in {device}, {wrong} of them wrong\n"))
}
