//! Owned imports of device arrays: each layout is copied on the device, with as few calls as possible.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers of elements are small"
)]

use core::fmt::Debug;
use core::ptr::null_mut;

use cudarc::driver::CudaSlice;
use cust::memory::{DeviceBuffer, DeviceCopy};
use cust::sys::{self, CUcontext};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::storage::FromImport;
use interop_core::{CudaArray, Element, FromArray, HostVec, Import, Order, SharedBuffer, StreamHandle};
use simulated_cuda::{Sim, find};

use crate::random_layouts::{Random, RandomLayout};
use crate::support::{ReadyOn, Streamed, Strided, numbers, send, simulated, turn};

/// The calls that copy on the device, and the calls that a copy through the host would make.
const ON_DEVICE: [&str; 2] = ["cuMemcpyAsync", "cuLaunchKernel"];
const OTHER_COPIES: [&str; 6] = [
    "cuMemcpy",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoD_v2",
];

fn calls<const N: usize>(sim: &Sim, names: [&str; N]) -> [u64; N] {
    names.map(|name| sim.calls(name))
}

/// Imports a part of these elements on the device.
fn part<T: Element>(elements: &[T], kind: MemoryKind, layout: &RandomLayout) -> Import {
    let buffer = CudaBuffer::from_slice(kind, 0, elements).unwrap();
    let first = (layout.first * size_of::<T>()).try_into().unwrap();
    let data = SharedBuffer::new(buffer).byte_offset(first).unwrap();
    send(Strided { data, shape: layout.shape.clone(), strides: layout.strides.clone() })
}

#[test]
fn random_layouts_are_copied_on_the_device() {
    fn check<T: Element + DeviceCopy + Default + PartialEq + Debug>(seed: u64, make: impl Fn(usize) -> T) {
        let random = &mut Random::new(seed);
        let layout = RandomLayout::new(random);
        let elements: Vec<T> = (0..layout.len).map(make).collect();
        let kind = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Managed][random.below(3)];
        let (order, is_column_major) = [(Order::C, false), (Order::F, true)][random.below(2)];
        let mut import = part(&elements, kind, &layout);
        if let Ok(sim) = find() {
            sim.reset_calls();
        }
        let copy = DeviceBuffer::<T>::from_import(&mut import, order).unwrap();
        if let Ok(sim) = find() {
            let counts = calls(sim, ON_DEVICE);
            // An array with more than six axes that cannot be merged takes one launch for each index of the other
            // axes.
            let is_short = layout.shape.len() <= 5;
            assert!(!is_short || counts.iter().sum::<u64>() == 1, "{counts:?} for {layout:?}");
            assert_eq!(calls(sim, OTHER_COPIES), [0; 6], "{layout:?}");
        }
        let expected: Vec<T> = layout.offsets(is_column_major).into_iter().map(|at| elements[at]).collect();
        assert_eq!(copy.as_host_vec().unwrap(), expected, "{seed}: {layout:?} {order:?} {kind:?}");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    for seed in 0..60 {
        let seed = 10 * seed;
        check(seed, |at| at as u8);
        check(seed + 1, |at| at as u16);
        check(seed + 2, |at| at as f32);
        check(seed + 3, |at| at as u64);
        check(seed + 4, |at| [at as u64, !at as u64]);
        check(seed + 5, |at| [at as u8, 1, 2]);
        check(seed + 6, |at| [at as f32, 0.5, -1.0]);
    }
}

#[test]
fn slices_of_cudarc_are_copied_by_the_same_kernels() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    for seed in 1000..1100 {
        let layout = RandomLayout::new(&mut Random::new(seed));
        let elements: Vec<f32> = (0..layout.len).map(|at| at as f32).collect();
        let copy = CudaSlice::<f32>::from_import(&mut part(&elements, MemoryKind::Device, &layout), Order::C)
            .unwrap();
        let expected: Vec<f32> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
        assert_eq!(copy.stream().clone_dtoh(&copy).unwrap(), expected, "{seed}: {layout:?}");
    }
}

#[test]
fn sim_only_each_layout_is_copied_by_what_is_made_for_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    let cases: [(&[usize], &[isize], [u64; 2]); 8] = [
        (&[6, 512], &[512, 1], [1, 0]),
        (&[6, 512], &[520, 1], [0, 1]),
        (&[2, 6, 512], &[4160, 520, 1], [0, 1]),
        (&[6, 20], &[24, 1], [0, 1]),
        (&[60, 70], &[1, 60], [0, 1]),
        (&[20, 30], &[60, 2], [0, 1]),
        (&[6, 7, 8, 9], &[1, 432, 6, 48], [0, 1]),
        (&[500, 512], &[0, 1], [0, 1]),
    ];
    for (shape, strides, expected) in cases {
        let len = 1 + shape
            .iter()
            .zip(strides)
            .map(|(extent, stride)| (extent - 1) * stride.unsigned_abs())
            .sum::<usize>();
        let layout = RandomLayout { shape: shape.to_vec(), strides: strides.to_vec(), first: 0, len };
        let elements: Vec<f32> = (0..len).map(|at| at as f32).collect();
        let mut import = part(&elements, MemoryKind::Device, &layout);
        sim.reset_calls();
        let copy = CudaSlice::<f32>::from_import(&mut import, Order::C).unwrap();
        assert_eq!(calls(sim, ON_DEVICE), expected, "{layout:?}");
        let expected: Vec<f32> = layout.offsets(false).into_iter().map(|at| elements[at]).collect();
        assert_eq!(copy.stream().clone_dtoh(&copy).unwrap(), expected, "{layout:?}");
    }
}

/// Creates a new context, in which no module is loaded, and a stream in it.
fn own_context() -> (CUcontext, StreamHandle) {
    let (mut own, mut stream, mut popped) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the pointer is valid for a write of a context. The call makes the new context current.
    assert_eq!(unsafe { sys::cuCtxCreate_v2(&raw mut own, 0, 0) } as u32, 0);
    // SAFETY: the pointer is valid for a write of a stream.
    assert_eq!(unsafe { sys::cuStreamCreate(&raw mut stream, 1) } as u32, 0);
    // SAFETY: the pointer is valid for a write of a context.
    assert_eq!(unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) } as u32, 0);
    // SAFETY: the test keeps the stream alive.
    (own, unsafe { StreamHandle::from_raw(stream as usize) })
}

type Copied = Streamed<InContext<DeviceBuffer<f32>>, StreamHandle>;

/// The error is `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`, as a driver before 535 returns it. The load is tried once.
#[test]
fn sim_only_a_driver_that_does_not_take_the_kernel_copies_run_by_run() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    let (own, stream) = own_context();
    let layout = RandomLayout { shape: vec![3, 4], strides: vec![1, 3], first: 0, len: 12 };
    let expected: Vec<f32> = layout.offsets(false).into_iter().map(|at| at as f32).collect();
    for loads in [1, 0] {
        let import = part(&numbers(12), MemoryKind::Device, &layout).ready_on(stream);
        sim.reset_calls();
        if loads == 1 {
            sim.fail_next("cuModuleLoadData", 222);
        }
        let copy = Copied::from_import(import).unwrap();
        assert_eq!(calls(sim, ["cuModuleLoadData", "cuMemcpyAsync", "cuLaunchKernel"]), [loads, 12, 0]);
        assert_eq!(copy.to_vec::<f32>().unwrap(), expected);
    }
    // SAFETY: nothing uses the context any more.
    assert_eq!(unsafe { sys::cuCtxDestroy_v2(own) } as u32, 0);
}

/// Other errors may be temporary: the next copy tries again.
#[test]
fn sim_only_a_kernel_that_cannot_be_loaded_now_is_loaded_later_and_then_kept() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    let (own, stream) = own_context();
    let layout = RandomLayout { shape: vec![3, 4], strides: vec![1, 3], first: 0, len: 12 };
    let import = || part(&numbers(12), MemoryKind::Device, &layout).ready_on(stream);
    sim.fail_next("cuModuleLoadData", 2);
    assert_eq!(Copied::from_import(import()).err().unwrap().error.location(), "cuModuleLoadData");
    sim.fail_next("cuModuleGetFunction", 2);
    assert_eq!(Copied::from_import(import()).err().unwrap().error.location(), "cuModuleGetFunction");
    let again = [import(), import()];
    sim.reset_calls();
    for import in again {
        Copied::from_import(import).unwrap();
    }
    assert_eq!(calls(sim, ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"]), [0, 1, 2]);
    // SAFETY: nothing uses the context any more.
    assert_eq!(unsafe { sys::cuCtxDestroy_v2(own) } as u32, 0);
}

/// The copy goes through pinned chunks of four mebibytes, not through other memory of the process.
#[test]
fn large_arrays_of_the_host() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let [planes, rows, columns] = [5, 700, 1030_usize];
    let len = 2 * planes * rows * columns;
    let elements: Vec<u32> = (0..len).map(|at| at as u32).collect();
    let flags: Vec<bool> = (0..len).map(|at| at % 3 == 0).collect();
    let layouts: [(Vec<usize>, Vec<isize>, usize); 5] = [
        (vec![rows, columns, planes], vec![1, 700, 700 * 1030], 0),
        (vec![planes, rows, columns], vec![2 * 700 * 1030, 2 * 1030, 2], 1),
        (vec![planes, rows, columns], vec![700 * 1030, -1030, -1], 700 * 1030 - 1),
        (vec![2, 4_000_000], vec![0, 1], 7),
        (vec![planes * rows * columns], vec![1], 3),
    ];
    for (shape, strides, first) in layouts {
        let layout = RandomLayout { shape, strides, first, len };
        for (order, is_column_major) in [(Order::C, false), (Order::F, true)] {
            let data =
                SharedBuffer::new(HostVec::from(&elements[..])).byte_offset(4 * first as isize).unwrap();
            let mut import =
                send(Strided { data, shape: layout.shape.clone(), strides: layout.strides.clone() });
            let offsets = layout.offsets(is_column_major);
            let copy = DeviceBuffer::<u32>::from_import(&mut import, order).unwrap().as_host_vec().unwrap();
            assert!(copy.iter().zip(&offsets).all(|(copied, at)| *copied == elements[*at]), "{layout:?}");
            let data = SharedBuffer::new(HostVec::from(&flags[..])).byte_offset(first as isize).unwrap();
            let mut import =
                send(Strided { data, shape: layout.shape.clone(), strides: layout.strides.clone() });
            let copy = CudaSlice::<bool>::from_import(&mut import, order).unwrap();
            let copy = copy.stream().clone_dtoh(&copy).unwrap();
            assert!(copy.iter().zip(&offsets).all(|(copied, at)| *copied == flags[*at]), "{layout:?}");
        }
    }
}

/// Memory of another device is compacted on that device and moved in one copy.
#[test]
fn strided_arrays_of_a_second_device() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    if !crate::support::has_second_device() {
        return;
    }
    let (own, stream) = own_context();
    let buffer = CudaBuffer::from_slice(MemoryKind::Device, 1, &numbers(12)).unwrap();
    let array = send(Strided { data: buffer, shape: vec![3, 4], strides: vec![1, 3] });
    if let Ok(sim) = find() {
        sim.reset_calls();
    }
    let copy = Copied::from_import(array.ready_on(stream)).unwrap();
    if let Ok(sim) = find() {
        // The intermediate memory is on the second device, so one copy follows.
        assert_eq!(calls(sim, ["cuMemAllocFromPoolAsync", "cuLaunchKernel", "cuMemcpyAsync"]), [1, 1, 1]);
    }
    let expected = [0.0, 3.0, 6.0, 9.0, 1.0, 4.0, 7.0, 10.0, 2.0, 5.0, 8.0, 11.0];
    assert_eq!(copy.to_vec::<f32>().unwrap(), expected);
    drop(copy);
    // SAFETY: nothing uses the context any more.
    assert_eq!(unsafe { sys::cuCtxDestroy_v2(own) } as u32, 0);
}
