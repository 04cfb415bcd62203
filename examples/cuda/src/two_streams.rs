//! Passes data from a producer to a consumer on another stream. The export makes that stream wait; the host never
//! waits.
#![expect(unsafe_code, reason = "a kernel does what its source says")]

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use interop_core::launch::AsStream;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, FromArray, Import, LaunchScope, LeaseMut};
use interop_demo_kernels::ORDER_PTX;

use crate::Outcome;

/// Numbers, and the stream on which they were last written.
#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Numbers<S = CudaSlice<u32>> {
    #[cuda_array(data)]
    data: S,
    len: usize,
    #[cuda_array(stream)]
    stream: Arc<CudaStream>,
}

/// A count: an array with no axes.
#[derive(CudaArray)]
#[cuda_array(shape = [], export)]
struct Count {
    #[cuda_array(data)]
    count: CudaSlice<u64>,
}

/// The kernels. `spin` delays the producer, so that a consumer without a stream wait would see old numbers.
struct Kernels {
    spin: CudaFunction,
    produce: CudaFunction,
    consume: CudaFunction,
}

/// Lets a consumer read what a slow producer writes, `rounds` times. `cycles` sets the delay of the producer.
///
/// # Errors
///
/// Returns an error if a driver call fails.
pub fn run(len: usize, rounds: u32, cycles: u64) -> Outcome {
    let context = interop_core::adapters::cudarc::context(0)?;
    let module = context.load_module(Ptx::from_src(ORDER_PTX))?;
    let function = |name| module.load_function(name);
    let kernels =
        Kernels { spin: function("spin")?, produce: function("produce")?, consume: function("consume")? };
    let (producer, consumer) = (context.new_stream()?, context.new_stream()?);
    let mut old = Count { count: consumer.alloc_zeros::<u64>(1)? };
    for round in 1..=rounds {
        let data = producer.alloc_zeros::<u32>(len)?;
        let mut numbers = Numbers { data, len, stream: producer.clone() };
        kernels.write(&mut numbers, round, cycles)?;
        // The export records one event on the producer's stream and queues one wait on the consumer's stream.
        let tensor = numbers.into_dlpack_as::<Versioned>(consumer.as_ref().as_stream())?;
        let import = Import::from_dlpack(tensor)?;
        // SAFETY: the export above has made this stream wait.
        let import = unsafe { import.assume_ready_on(consumer.as_ref().as_stream()) };
        let borrowed = Numbers::<LeaseMut<u32>>::from_import(import)?;
        kernels.count(&borrowed, round, &mut old)?;
        // The consumer's kernel may still be running. The memory is released after it, and the host does not wait.
        drop(borrowed);
    }
    let old = old.to_vec::<u64>()?[0];
    let pending = interop_core::cuda::finish_releases();
    Ok(format!("two streams: {rounds} hand-overs, {old} old numbers seen, {pending} releases pending\n"))
}

impl Kernels {
    /// Queues the delay and the write of one round on the stream of the numbers.
    fn write(
        &self,
        numbers: &mut Numbers,
        value: u32,
        cycles: u64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let config = LaunchConfig::for_num_elems(u32::try_from(numbers.len)?);
        let scope = LaunchScope::new();
        let view = scope.write::<u32, 1>(numbers)?;
        let stream: Arc<CudaStream> = scope.stream()?;
        let single = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: `spin` takes a number of cycles.
        unsafe { stream.launch_builder(&self.spin).arg(&cycles).launch(single)? };
        // SAFETY: `produce` takes this view and a number. The export keeps the numbers alive until the work is done.
        unsafe { stream.launch_builder(&self.produce).arg(&view).arg(&value).launch(config)? };
        Ok(scope.finish()?)
    }

    /// Adds the number of elements that do not have this round's value.
    fn count(
        &self,
        numbers: &Numbers<LeaseMut<u32>>,
        value: u32,
        old: &mut Count,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let config = LaunchConfig::for_num_elems(u32::try_from(numbers.len)?);
        let scope = LaunchScope::new();
        let (view, total) = (scope.read::<u32, 1>(numbers)?, scope.write::<u64, 0>(old)?);
        let stream: Arc<CudaStream> = scope.stream()?;
        let mut launch = stream.launch_builder(&self.consume);
        // SAFETY: `consume` takes these two views and the number. The lease is released only after the work that is
        // queued on it, and the count lives until it has been read.
        unsafe { launch.arg(&view).arg(&value).arg(&total).launch(config)? };
        Ok(scope.finish()?)
    }
}
