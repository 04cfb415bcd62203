//! The same small program with both crates: allocate, copy, launch on two streams with an event between them, read
//! back.
//!
//! It is one test, because both crates share the driver of the process and the test compares its counters.

#![expect(unsafe_code, reason = "launches of kernels are unsafe in both crates")]

use std::ffi::c_void;

use simulated_cuda::{Arguments, Live, sim};

const PTX: &str = include_str!("scale.ptx");
const COUNT: usize = 1000;

/// `scale(float *data, size_t count, float factor)`
extern "C" fn scale(_: *const u32, _: *const u32, _: u32, parameters: *const *const c_void) {
    // SAFETY: these are the parameters that the driver passed.
    let arguments = unsafe { Arguments::new(parameters) };
    // SAFETY: the parameters are registered below, with these types.
    let data = unsafe { arguments.get::<u64>(0) };
    // SAFETY: as above.
    let count = unsafe { arguments.get::<usize>(1) };
    // SAFETY: as above.
    let factor = unsafe { arguments.get::<f32>(2) };
    let Some(data) = sim().write::<f32>(data, count) else { return };
    // SAFETY: the simulator allows writes of `count` elements there, and nothing else runs on the device meanwhile.
    let data = unsafe { std::slice::from_raw_parts_mut(data, count) };
    for value in data {
        *value *= factor;
    }
}

fn numbers() -> Vec<f32> {
    (0..1000_u16).map(f32::from).collect()
}

fn with_cust() -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    use cust::event::{Event, EventFlags};
    use cust::launch;
    use cust::memory::{AsyncCopyDestination, CopyDestination, DeviceBuffer, LockedBuffer};
    use cust::module::Module;
    use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};

    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let first = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let second = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let event = Event::new(EventFlags::DISABLE_TIMING)?;
    let host = LockedBuffer::from_slice(&numbers())?;
    let mut device = DeviceBuffer::from_slice(&vec![0.0_f32; COUNT])?;
    // SAFETY: both buffers live until the streams have been synchronized.
    unsafe { device.async_copy_from(&host, &first) }?;
    event.record(&first)?;
    second.wait_event(event, StreamWaitEventFlags::DEFAULT)?;
    // SAFETY: the kernel takes these parameters and stays within the buffer.
    unsafe {
        launch!(module.scale<<<4, 256, 0, second>>>(device.as_device_ptr(), COUNT, 2.0_f32))?;
    }
    second.synchronize()?;
    let mut result = vec![0.0; COUNT];
    device.copy_to(&mut result)?;
    Ok(result)
}

fn with_cudarc() -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};

    let context = CudaContext::new(1)?;
    let module = context.load_module(cudarc::nvrtc::Ptx::from_src(PTX))?;
    let kernel = module.load_function("scale")?;
    let first = context.new_stream()?;
    let second = context.new_stream()?;
    let mut device = first.clone_htod(&numbers())?;
    second.wait(&first.record_event(None)?)?;
    let (count, factor) = (COUNT, 2.0_f32);
    let mut launch = second.launch_builder(&kernel);
    launch.arg(&mut device).arg(&count).arg(&factor);
    // SAFETY: the kernel takes these parameters and stays within the buffer.
    unsafe { launch.launch(LaunchConfig::for_num_elems(1000)) }?;
    let result = second.clone_dtoh(&device)?;
    second.synchronize()?;
    Ok(result)
}

#[test]
fn both_crates_run_unchanged() {
    let sim = sim();
    sim.register_kernel("scale", &[8, 8, 4], scale);
    let expected: Vec<_> = numbers().iter().map(|value| value * 2.0).collect();
    assert_eq!(with_cust().expect("cust"), expected);
    assert_eq!(with_cudarc().expect("cudarc"), expected);
    assert_eq!(sim.calls("cuLaunchKernel"), 2);
    sim.run_all();
    sim.assert_no_reports();
    for what in [Live::Allocations, Live::Streams, Live::Events, Live::Modules, Live::Operations] {
        assert_eq!(sim.live(what), 0, "{what:?}");
    }
}
