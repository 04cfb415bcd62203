//! Copies of device arrays to the host: the device compacts them first, whatever the layout.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers of elements are small"
)]

use core::fmt::Debug;

use std::thread;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::{CudaArray, Element, FromArray, SharedBuffer};
use simulated_cuda::Live;

use crate::cuda_program::Place;
use crate::exclusive_driver::turn;
use crate::random_layouts::{Random, RandomLayout};
use crate::support::arrays::Array;

/// The calls of a copy: allocate intermediate memory, launch the kernel, copy to the host, free.
const STEPS: [&str; 4] = ["cuMemAllocFromPoolAsync", "cuLaunchKernel", "cuMemcpyAsync", "cuMemFreeAsync"];

fn part<T: Element>(elements: &[T], layout: &RandomLayout) -> Array<SharedBuffer> {
    let buffer = CudaBuffer::from_slice(MemoryKind::Device, 0, elements).unwrap();
    let first = (layout.first * size_of::<T>()).try_into().unwrap();
    Array::strided(SharedBuffer::new(buffer).byte_offset(first).unwrap(), &layout.shape, &layout.strides)
}

#[test]
fn random_layouts_come_to_the_host() {
    fn check<T: Element + PartialEq + Debug>(seed: u64, make: impl Fn(usize) -> T) {
        let layout = RandomLayout::new(&mut Random::new(seed));
        let elements: Vec<T> = (0..layout.len).map(make).collect();
        let found = part(&elements, &layout).to_vec::<T>().unwrap();
        let expected: Vec<T> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
        assert_eq!(found, expected, "{seed}: {layout:?}");
    }
    let _turn = turn();
    for seed in 0..80 {
        check(seed, |at| at % 3 == 0);
        check(seed, |at| at as u16);
        check(seed, |at| at as i32);
        check(seed, |at| [at as u8; 5]);
        check(seed, |at| [at as f64, 0.5]);
    }
    assert_eq!(finish_releases(), 0);
}

#[test]
fn what_has_gaps_is_compact_before_it_comes() {
    let turn = turn();
    let cases: [(&[usize], &[isize], [u64; 4]); 5] = [
        (&[6, 300], &[300, 1], [0, 0, 1, 0]),
        (&[6, 300], &[301, 1], [1, 1, 1, 1]),
        (&[2, 6, 300], &[2107, 301, 1], [1, 1, 1, 1]),
        (&[6, 300], &[1, 6], [1, 1, 1, 1]),
        (&[6, 300], &[-600, 2], [1, 1, 1, 1]),
    ];
    for (shape, strides, expected) in cases {
        let first = if strides[0] < 0 { 3000 } else { 0 };
        let layout = RandomLayout { shape: shape.to_vec(), strides: strides.to_vec(), first, len: 6000 };
        let elements: Vec<f32> = (0..6000_u16).map(f32::from).collect();
        let array = part(&elements, &layout);
        turn.reset_calls();
        let found = array.to_vec::<f32>().unwrap();
        assert_eq!(turn.calls_of(STEPS), expected, "{layout:?}");
        let expected: Vec<f32> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
        assert_eq!(found, expected, "{layout:?}");
    }
}

/// A reset of the primary context unloads the kernels, and the next copy loads them again.
#[test]
fn kernels_that_went_with_their_context_are_loaded_again() {
    let mut turn = turn();
    let layout = RandomLayout { shape: vec![3, 4], strides: vec![1, 3], first: 0, len: 12 };
    let elements: Vec<u8> = (0..12).collect();
    let expected: Vec<u8> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
    assert_eq!(part(&elements, &layout).to_vec::<u8>().unwrap(), expected);
    assert_eq!(finish_releases(), 0);
    Place::reset_primary(0);
    turn.expect_what_is_live_now();
    turn.reset_calls();
    for loads in [1, 1] {
        assert_eq!(part(&elements, &layout).to_vec::<u8>().unwrap(), expected);
        assert_eq!(turn.calls_of(["cuModuleLoadData"]), [loads]);
    }
}

/// During a capture the copy uses a stream of the core, and the kernel is loaded.
#[test]
fn strided_arrays_are_read_while_streams_capture() {
    let turn = turn();
    let place = Place::foreign(0);
    let layout = RandomLayout { shape: vec![3, 4], strides: vec![1, 3], first: 0, len: 12 };
    let elements: Vec<u8> = (0..12).collect();
    let expected: Vec<u8> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
    place.with(|| {
        for captures in [place.blocking(), place.non_blocking()] {
            let array = part(&elements, &layout);
            assert_eq!(array.to_vec::<u8>().unwrap(), expected);
            let streams = turn.live(Live::Streams);
            captures.begin();
            assert_eq!(array.to_vec::<u8>().unwrap(), expected);
            assert!(captures.end(), "the capture is spoiled");
            assert_eq!(turn.live(Live::Streams), streams);
            captures.destroy();
        }
    });
    place.destroy();
    assert_eq!(finish_releases(), 0);
}

/// Both uploads go through pinned memory, each through that of its own context.
#[test]
fn an_upload_to_one_device_does_not_wait_for_one_to_another() {
    fn upload(ordinal: i32, rows: usize) {
        let host = Array::strided(vec![7_u8; 2 * rows], &[rows], &[2]);
        let tensor = host.into_dlpack().unwrap();
        let copy = Place::primary(ordinal).with(|| Array::<CudaBuffer>::from_dlpack(tensor).unwrap());
        assert_eq!(copy.info().unwrap().device().device_id, ordinal);
    }
    let mut turn = turn();
    turn.reset_calls();
    let is_long_done = thread::scope(|scope| {
        let long = scope.spawn(|| upload(0, 24 << 20));
        while turn.calls_of(["cuMemcpyAsync"]) == [0] && !long.is_finished() {
            thread::yield_now();
        }
        upload(1, 1 << 20);
        long.is_finished()
    });
    assert!(!is_long_done, "the short upload waited for the long one");
    assert_eq!(finish_releases(), 0);
    turn.expect_what_is_live_now();
}
