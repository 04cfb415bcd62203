//! Bug 179: a view that is made once and launched many times costs no more than the bare arguments.

use std::time::{Duration, Instant};

use cust::function::Function;
use cust::launch;
use cust::memory::{DeviceBuffer, DeviceCopy};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use interop_core::{CudaArray, LaunchSize};
use interop_demo_kernels::{self as kernels, Arrays};
use simulated_cuda::find;

use crate::support::{Matrix, numbers, turn};

const ROWS: usize = 3;
const COLUMNS: usize = 4;
/// The launches in a round. A device queues more than that, so no launch waits for a kernel.
const LAUNCHES: u32 = 200;
const ROUNDS: usize = 41;

/// The kernel's argument as plain integers, without a type of this library.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bare([u64; WORDS]);

const WORDS: usize = size_of::<Arrays<'_, 1>>() / 8;

// SAFETY: the fields are integers, one of which is an address on the device.
unsafe impl DeviceCopy for Bare {}

/// Launches a kernel that multiplies by one with this argument, `LAUNCHES` times. Returns the time of the launches.
///
/// # Safety
///
/// The argument is what the kernel takes for a view of memory that lives until this function returns.
unsafe fn round<A: Copy + DeviceCopy>(function: &Function<'_>, stream: &Stream, argument: A) -> Duration {
    let launch = LaunchSize::for_units(ROWS * COLUMNS);
    let start = Instant::now();
    for _ in 0..LAUNCHES {
        let (grid, block) = (launch.grid, launch.block);
        // SAFETY: as the caller promises; the stream is synchronized below.
        unsafe { launch!(function<<<grid, block, 0, stream>>>(argument, 1.0_f64)) }.unwrap();
    }
    let took = start.elapsed();
    stream.synchronize().unwrap();
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_view_is_launched_again_and_again_like_bare_arguments() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let module = Module::from_ptx(kernels::KERNELS_PTX, &[]).unwrap();
    let function = module.get_function("scale_f32").unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let data = DeviceBuffer::from_slice(&numbers(12)).unwrap();
    let mut matrix = Matrix { data, rows: ROWS, columns: COLUMNS };
    let view: Arrays<'_, 1> =
        Arrays::new([&matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap()]).unwrap();
    // SAFETY: the view consists of integers without padding between them.
    let bare = Bare(unsafe { core::mem::transmute::<Arrays<'_, 1>, [u64; WORDS]>(view) });
    // SAFETY: the argument is a view of memory that lives to the end of the test.
    let with_view = || unsafe { round(&function, &stream, view) };
    // SAFETY: the argument has the bytes of that view.
    let with_bare = || unsafe { round(&function, &stream, bare) };
    if let Ok(sim) = find() {
        sim.reset_calls();
        with_view();
        // The additional call is the synchronization at the end.
        assert_eq!(
            (sim.calls("cuLaunchKernel"), sim.all_calls()),
            (LAUNCHES.into(), u64::from(LAUNCHES) + 1)
        );
        with_bare();
    } else {
        let (mut views, mut bares) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            views.push(with_view());
            bares.push(with_bare());
        }
        let (view, bare) = (median(views), median(bares));
        println!("{LAUNCHES} launches: {view:?} with a view, {bare:?} with bare arguments");
        assert!(view * 10 <= bare * 11, "more than 10 % slower: {view:?} with a view, {bare:?} without");
    }
    assert_eq!(matrix.to_vec::<f32>().unwrap(), numbers(12));
}
