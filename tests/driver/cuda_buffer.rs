//! `CudaBuffer`: each memory kind is created, copied, read and freed.

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, stream_wait};
use interop_core::storage::MemoryRegion;
use interop_core::{CudaArray, DType, Device, Element, ErrorKind, Storage, StreamHandle, live_allocations};
use simulated_cuda::{Live, Mistake};

use crate::cuda_program::{Place, current, flags_of};
use crate::exclusive_driver::{first_gpu, turn};
use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::counted_owners::elsewhere;

const KINDS: [MemoryKind; 4] =
    [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];

#[test]
fn every_kind_is_zeroed_and_on_its_device() {
    let _turn = turn();
    for (kind, ordinal) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let buffer = CudaBuffer::zeroed(kind, ordinal, DType::F32, 33).unwrap();
        let device = match kind {
            MemoryKind::Device | MemoryKind::Pool => Device::cuda(ordinal),
            MemoryKind::Pinned => Device::CUDA_HOST,
            MemoryKind::Managed => Device::CUDA_MANAGED,
            other => panic!("{other:?} has no device here"),
        };
        assert_eq!((buffer.kind(), buffer.memory().unwrap().device, live_allocations()), (kind, device, 1));
        assert_eq!((buffer.len(), buffer.is_empty()), (33, false));
        assert_eq!(Array::new(buffer, &[33]).to_vec::<f32>().unwrap(), [0.0; 33], "{kind:?}");
        assert_eq!((finish_releases(), live_allocations(), current()), (0, 0, None));
    }
}

/// Each device can access pinned memory, whichever context allocated it. Empty arrays are not copied.
#[test]
fn pinned_memory_is_portable_and_nothing_is_not_copied() {
    const PORTABLE: u32 = 1;
    let turn = turn();
    let pinned = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::U8, 8).unwrap();
    assert_eq!(flags_of(pinned.memory().unwrap().address), PORTABLE);
    drop(pinned);
    for kind in KINDS {
        let (empty, calls) = turn.count(|| CudaBuffer::from_slice::<u8>(kind, 0, &[]).unwrap());
        assert_eq!((calls, empty.memory().unwrap().address), (0, 0), "{kind:?}");
    }
}

/// The padding between the fields of a struct may hold old data and must not leave the process.
#[test]
#[expect(unsafe_code, reason = "looks at bytes that are in no field")]
fn the_padding_of_structs_is_cleared() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Inner {
        tag: u8,
        value: u16,
    }
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Outer {
        id: u8,
        pairs: [Inner; 2],
        weight: u64,
        last: u8,
    }
    let mut elements = [std::mem::MaybeUninit::<Outer>::uninit(); 3];
    // SAFETY: the bytes belong to the array.
    unsafe { elements.as_mut_ptr().write_bytes(0xFF, 3) };
    // SAFETY: every bit pattern is a value.
    let elements = elements.map(|element| unsafe { element.assume_init() });
    let mut element = vec![0xFF, 0];
    element.extend([0xFF, 0, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF].iter().chain(&[0; 6]));
    element.extend([0xFF; 9].iter().chain(&[0; 7]));
    let _turn = turn();
    for kind in KINDS {
        let buffer = CudaBuffer::from_slice(kind, 0, &elements).unwrap();
        let copy = Array::new(buffer, &[3]).to_vec::<Outer>().unwrap();
        // SAFETY: these are the bytes of the copy, all of which the device wrote.
        let bytes = unsafe { std::slice::from_raw_parts(copy.as_ptr().cast::<u8>(), size_of_val(&*copy)) };
        assert_eq!(bytes, element.repeat(3), "{kind:?}");
    }
    assert_eq!(finish_releases(), 0);
}

/// Memory that is overwritten immediately is not zeroed first, which would take half as long again.
#[test]
fn a_copy_of_a_slice_is_one_copy() {
    let turn = turn();
    for kind in KINDS {
        turn.reset_calls();
        let buffer = CudaBuffer::from_slice(kind, 0, &[1_u8, 2, 3]).unwrap();
        assert_eq!(turn.calls_of(["cuMemsetD8Async", "cuMemcpyAsync"]), [0, 1], "{kind:?}");
        assert_eq!(Array::new(buffer, &[3]).to_vec::<u8>().unwrap(), [1, 2, 3], "{kind:?}");
    }
    assert_eq!(finish_releases(), 0);
}

#[test]
fn what_is_copied_in_comes_out_whatever_the_strides() {
    let _turn = turn();
    let all: Vec<i32> = (0..24).collect();
    let shapes: [(&[usize], &[isize], &[i32]); 7] = [
        (&[2, 3], &[3, 1], &[0, 1, 2, 3, 4, 5]),
        (&[2, 3], &[1, 2], &[0, 2, 4, 1, 3, 5]),
        (&[3], &[7], &[0, 7, 14]),
        (&[2, 2], &[12, 5], &[0, 5, 12, 17]),
        (&[3], &[0], &[0, 0, 0]),
        (&[], &[], &[0]),
        (&[0, 4], &[4, 1], &[]),
    ];
    for kind in KINDS {
        for (shape, strides, expected) in shapes {
            let buffer = CudaBuffer::from_slice(kind, 0, &all).unwrap();
            let array = Array::strided(buffer, shape, strides);
            assert_eq!(array.to_vec::<i32>().unwrap(), expected, "{kind:?} {shape:?} {strides:?}");
        }
    }
    assert_eq!(finish_releases(), 0);
}

/// An import whose first element is the last in memory.
#[test]
fn negative_strides_are_read_from_the_device() {
    use crate::counted_imports::claim;
    use crate::support::foreign_tensors::Claims;
    use interop_core::protocols::dlpack::Versioned;
    use interop_core::{FromArray, Lease};

    let _turn = turn();
    for kind in KINDS {
        let buffer = CudaBuffer::from_slice(kind, 1, &[10_i16, 11, 12, 13, 14, 15]).unwrap();
        let MemoryRegion { address, device, .. } = buffer.memory().unwrap();
        for (start, strides, shape, expected) in [
            (10, vec![-1], vec![6], vec![15_i16, 14, 13, 12, 11, 10]),
            (10, vec![-2], vec![3], vec![15, 13, 11]),
            (4, vec![3, -1], vec![2, 3], vec![12, 11, 10, 15, 14, 13]),
        ] {
            let claims =
                Claims { shape: Some(shape), strides: Some(strides), ..claim(address + start, 0, device) };
            let (ledger, tensor) = claims.send::<Versioned>();
            let array: Array<Lease<i16>> = Array::from_dlpack(tensor).unwrap();
            assert_eq!(array.to_vec::<i16>().unwrap(), expected, "{kind:?}");
            drop(array);
            assert_eq!((finish_releases(), ledger.released()), (0, 1));
        }
    }
    assert_eq!(finish_releases(), 0);
}

/// Imports of any source become memory of the device where the array is; host arrays go to the current device.
#[test]
fn imports_are_copied_to_their_own_device() {
    use interop_core::{FromArray, HostVec};

    fn check<T: Element + PartialEq + std::fmt::Debug>(elements: [T; 6], dtype: DType) {
        let rows_first = [0, 2, 4, 1, 3, 5].map(|at: usize| elements[at]);
        let sources = KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
        for (kind, ordinal) in sources {
            let data = CudaBuffer::from_slice(kind, ordinal, &elements).unwrap();
            let tensor = Array::strided(data, &[2, 3], &[1, 2]).into_dlpack().unwrap();
            let copy: Array<CudaBuffer> = Array::from_dlpack(tensor).unwrap();
            let info = copy.info().unwrap();
            let shared = matches!(kind, MemoryKind::Pinned | MemoryKind::Managed);
            let device = Device::cuda(if shared { 0 } else { ordinal });
            assert_eq!((info.device(), info.dtype(), copy.data.kind()), (device, dtype, MemoryKind::Pool));
            assert_eq!(copy.to_vec::<T>().unwrap(), rows_first, "{kind:?} {ordinal}");
        }
        let tensor = Array::new(HostVec::from(elements), &[6]).into_dlpack().unwrap();
        let copy: Array<CudaBuffer> = Array::from_dlpack(tensor).unwrap();
        assert_eq!(copy.info().unwrap().device(), Device::cuda(0));
        assert_eq!(copy.to_vec::<T>().unwrap(), elements);
    }

    let turn = turn();
    let before = turn.live(Live::Allocations);
    check([1_u8, 2, 3, 4, 5, 6], DType::U8);
    check([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], DType::F32);
    check([true, false, true, true, false, true], DType::BOOL);
    check([1.5_f64, 2.0, 3.0, 4.0, 5.0, 6.0], DType::F64);
    let none = Array::new(CudaBuffer::zeroed(MemoryKind::Device, 1, DType::F32, 0).unwrap(), &[0, 2]);
    let none: Array<CudaBuffer> = Array::from_dlpack(none.into_dlpack().unwrap()).unwrap();
    assert_eq!((none.shape.as_slice(), none.data.len()), (&[0, 2][..], 0));
    let struct_data = HostVec::from([[1_u8; 3]; 2]);
    let rows: Array<CudaBuffer> =
        Array::from_dlpack(Array::new(struct_data, &[2]).into_dlpack().unwrap()).unwrap();
    assert_eq!((rows.shape.as_slice(), rows.to_vec::<[u8; 3]>().unwrap()), (&[2, 3][..], vec![[1; 3]; 2]));
    drop(rows);
    assert_eq!((finish_releases(), turn.live(Live::Allocations)), (0, before));
}

/// A copy waits for the work that is pending on the array, and for no other.
#[test]
fn imports_are_copied_after_pending_work() {
    use interop_core::FromArray;

    let (turn, place) = first_gpu();
    let (producer, other) = (place.non_blocking(), place.non_blocking());
    let source = place.bytes(7, 64);
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let target = source.like(buffer.memory().unwrap().address);
    let (busy, slow) = (other.spin(), producer.spin());
    producer.copy(&target, &source);
    let array = Array { stream: producer.handle(), ..Array::new(buffer, &[64]) };
    let import = interop_core::Import::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    let copy: Array<CudaBuffer> = Array::from_import(import).unwrap();
    assert!(turn.is_pending(busy));
    assert_eq!(copy.to_vec::<u8>().unwrap(), [7; 64]);
    assert_eq!((turn.is_pending(slow), turn.is_pending(busy)), (false, true));
    turn.run_all();
    drop(copy);
    assert_eq!(finish_releases(), 0);
}

#[test]
fn empty_buffers_are_no_memory() {
    let turn = turn();
    let before = turn.live(Live::Allocations);
    for kind in KINDS {
        let buffer = CudaBuffer::zeroed(kind, 0, DType::F64, 0).unwrap();
        assert_eq!((buffer.memory().unwrap().address, turn.live(Live::Allocations)), (0, before), "{kind:?}");
        assert_eq!((buffer.len(), buffer.is_empty()), (0, true));
        assert_eq!(Array::new(buffer, &[3, 0]).to_vec::<f64>().unwrap(), [0.0; 0]);
    }
}

#[test]
fn what_cannot_be_made_says_why_and_leaves_nothing() {
    let turn = turn();
    let before = turn.live(Live::Allocations);
    // The simulated device has 8 GiB. Host memory is not limited.
    for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Managed] {
        let error = CudaBuffer::zeroed(kind, 0, DType::U8, 9 << 30).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        assert!(error.found().contains("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"), "{error}");
        assert_eq!(error.allowed(), "9663676416 bytes of free memory");
    }
    let freed = turn.calls_of(["cuMemFree_v2", "cuMemFreeAsync"]);
    assert_eq!(freed, [0; 2], "what a call that failed left in the place of the address is freed");
    turn.fail_next("cuMemAllocFromPoolAsync", 500);
    let plain = CudaBuffer::zeroed(MemoryKind::Pool, 0, DType::U8, 8).unwrap();
    assert_eq!(plain.kind(), MemoryKind::Device, "an old driver has no pools");
    drop(plain);
    let error = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F64, usize::MAX / 4).unwrap_err();
    assert_told(&error, (ErrorKind::Overflow, "shape", "elements of 8 bytes", "the address space"));
    let error = CudaBuffer::zeroed(MemoryKind::Device, 2, DType::F64, 1).unwrap_err();
    let found = "CUDA_ERROR_INVALID_DEVICE";
    assert_told(&error, (ErrorKind::Driver, "cuDevicePrimaryCtxRetain", found, "not number 2"));
    let error = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F4_E2M1FN, 1).unwrap_err();
    assert_told(&error, (ErrorKind::DType, "dtype", "", "elements of whole bytes"));
    assert_eq!((turn.live(Live::Allocations), live_allocations(), current()), (before, 0, None));
}

#[test]
fn a_buffer_is_freed_in_its_context_wherever_it_is_dropped() {
    let turn = turn();
    let before = turn.live(Live::Allocations);
    let own = Place::foreign(1);
    for kind in KINDS {
        for ordinal in [0, 1] {
            let make = || CudaBuffer::zeroed(kind, ordinal, DType::U8, 64).unwrap();
            let (one, two) = (make(), make());
            drop(make());
            elsewhere(move || {
                drop(one);
                assert_eq!(current(), None);
            });
            own.with(|| {
                drop(two);
                assert_eq!(current(), Some(own));
            });
            assert_eq!(finish_releases(), 0);
            assert_eq!(turn.live(Live::Allocations), before, "{kind:?} on {ordinal}");
        }
    }
    own.destroy();
}

#[test]
fn the_drop_of_pool_memory_waits_for_kernels_that_may_use_it() {
    let (turn, place) = first_gpu();
    let before = turn.live(Live::Allocations);
    let buffer = CudaBuffer::zeroed(MemoryKind::Pool, 0, DType::U8, 64).unwrap();
    let spin = place.non_blocking().spin();
    drop(buffer);
    assert_eq!((turn.live(Live::Allocations), turn.is_pending(spin)), (before + 1, true));
    turn.release(spin);
    assert_eq!((finish_releases(), turn.live(Live::Allocations)), (0, before));
}

/// Reading waits for the array's stream and for no other.
#[test]
fn reading_waits_for_the_work_that_is_pending_on_the_array() {
    let (turn, place) = first_gpu();
    for kind in KINDS {
        let (producer, other) = (place.non_blocking(), place.non_blocking());
        let source = place.bytes(7, 64);
        let buffer = CudaBuffer::zeroed(kind, 0, DType::U8, 64).unwrap();
        let target = source.like(buffer.memory().unwrap().address);
        let (busy, slow) = (other.spin(), producer.spin());
        producer.copy(&target, &source);
        let array = Array { stream: producer.handle(), ..Array::new(buffer, &[64]) };
        assert_eq!(array.to_vec::<u8>().unwrap(), [7; 64], "{kind:?}");
        if array.info().unwrap().device().device_type.is_host_accessible() {
            // The simulated driver itself sees copies of device memory.
            turn.host_reads(target.address, 64);
        }
        assert_eq!((turn.is_pending(slow), turn.is_pending(busy)), (false, true), "{kind:?}");
        turn.run_all();
        drop(array);
        assert_eq!(finish_releases(), 0);
    }
}

/// The counterexample: if the array states that nothing is pending, the old bytes are read.
#[test]
fn without_a_stream_the_old_bytes_are_read() {
    let (turn, place) = first_gpu();
    let producer = place.non_blocking();
    let buffer = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::U8, 8).unwrap();
    let source = place.bytes(7, 8);
    let address = buffer.memory().unwrap().address;
    producer.spin();
    producer.copy(&source.like(address), &source);
    let array = Array::new(buffer, &[8]);
    assert_eq!(array.to_vec::<u8>().unwrap(), [0; 8]);
    turn.host_reads(address as u64, 8);
    turn.run_all();
    turn.expect(Mistake::Race);
    assert_eq!(array.to_vec::<u8>().unwrap(), [7; 8]);
}

#[test]
fn host_views_of_pinned_and_managed_memory_wait() {
    let (turn, place) = first_gpu();
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        for producer in [place.non_blocking(), place.legacy(), place.per_thread(), place.blocking()] {
            let source = place.bytes(9, 16);
            let buffer = CudaBuffer::zeroed(kind, 0, DType::U8, 16).unwrap();
            let target = source.like(buffer.memory().unwrap().address);
            let address = target.address;
            producer.spin();
            producer.copy(&target, &source);
            let mut array = Array { stream: producer.handle(), ..Array::new(buffer, &[16]) };
            {
                let view = array.view::<u8, 1>().unwrap().host_view().unwrap();
                assert_eq!((view.read([0]).unwrap(), view.read([15]).unwrap()), (9, 9), "{kind:?}");
                turn.host_reads(address, 16);
            }
            producer.fill(&target, 11);
            let mut view = array.view_mut::<u8, 1>().unwrap().host_view_mut().unwrap();
            view.as_cells().unwrap().iter().for_each(|byte| byte.set(byte.get() + 1));
            turn.host_writes(address, 16);
            assert!(view.as_view().iter().eq([12; 16]), "{kind:?}");
            assert_eq!(current(), None);
        }
    }
    turn.run_all();
}

#[test]
fn host_views_of_device_memory_are_refused_without_a_call() {
    let turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool] {
        let array = Array::new(CudaBuffer::zeroed(kind, 0, DType::U8, 4).unwrap(), &[4]);
        let (error, calls) = turn.count(|| array.view::<u8, 1>().unwrap().host_view().unwrap_err());
        assert_told(&error, (ErrorKind::Device, "device", "CUDA (2), ordinal 0", "that the host can reach"));
        assert_eq!(calls, 0);
    }
    assert_eq!(finish_releases(), 0);
}

#[test]
fn the_host_writes_and_the_device_reads() {
    let (turn, place) = first_gpu();
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        let mut array = Array::new(CudaBuffer::zeroed(kind, 0, DType::U8, 8).unwrap(), &[8]);
        array.fill(5_u8).unwrap();
        turn.host_writes(array.info().unwrap().address() as u64, 8);
        let consumer = place.non_blocking();
        stream_wait(consumer.handle(), StreamHandle::NothingPending, Device::CUDA_HOST).unwrap();
        let seen = place.bytes(0, 8);
        assert_eq!(consumer.reads(&seen.like(array.info().unwrap().address())), 5, "{kind:?}");
    }
}
