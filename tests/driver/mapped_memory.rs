//! Memory that belongs to no context: memory from a host pool, and pieces that a program maps into reserved
//! addresses, as PyTorch does with `expandable_segments`.
#![expect(unsafe_code, reason = "calls the driver as C code would, and imports dicts")]

use interop_core::cuda::{finish_releases, pointer_attributes};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Import, LeaseMut, StreamHandle};

use crate::counted_imports::{arrive, claim, drained};
use crate::cuda_program::{Place, cu, current, done, set_current};
use crate::exclusive_driver::turn;
use crate::false_descriptions::assert_refused;
use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::foreign_tensors::Claims;
use crate::support::signed;

/// The smallest size that can be mapped.
const PIECE: usize = 2 << 20;
const GPU: Device = Device::cuda(0);
const ASKED: [&str; 2] = ["cuPointerGetAttributes", "cuCtxGetCurrent"];

/// A reserved address range of four pieces, some of which are mapped to memory of these devices.
struct Reserved {
    address: u64,
    mapped: Vec<u64>,
}

impl Reserved {
    fn new(devices: [Option<i32>; 4]) -> Self {
        let (mut address, mut mapped) = (0, Vec::new());
        let size = 4 * PIECE;
        done(cu!(
            "cuMemAddressReserve",
            &raw mut address => *mut u64, size => usize, 0 => usize, 0 => u64, 0 => u64
        ));
        for (at, device) in (address..).step_by(PIECE).zip(devices) {
            let Some(device) = device else { continue };
            // `CUmemAllocationProp`: pinned, without handles, on this device; the other fields are zero.
            let (mut made, properties) = (0, [1, 0, 1, device, 0, 0, 0, 0]);
            done(cu!(
                "cuMemCreate",
                &raw mut made => *mut u64, PIECE => usize, properties.as_ptr() => *const i32, 0 => u64
            ));
            done(cu!("cuMemMap", at => u64, PIECE => usize, 0 => usize, made => u64, 0 => u64));
            done(cu!("cuMemRelease", made => u64));
            mapped.push(at);
        }
        Self { address, mapped }
    }

    /// The address at this offset from the start.
    fn at(&self, offset: usize) -> usize {
        signed::<_, usize>(self.address) + offset
    }

    fn unmap(&mut self) {
        for at in self.mapped.drain(..) {
            done(cu!("cuMemUnmap", at => u64, PIECE => usize));
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.unmap();
        done(cu!("cuMemAddressFree", self.address => u64, 4 * PIECE => usize));
    }
}

/// Imports `count` elements of `int16` through an interface dict.
fn by_dict(address: usize, count: usize) -> interop_core::Result<Import> {
    let interface = CudaArrayInterface {
        shape: vec![signed(count)],
        typestr: "<i2".into(),
        data: (address, false),
        version: 3,
        ..CudaArrayInterface::default()
    };
    // SAFETY: the memory outlives the import.
    unsafe { Import::from_cai_for_stream(&interface, StreamHandle::LegacyDefault, ()) }
}

#[test]
fn an_array_over_several_pieces_is_taken() {
    let turn = turn();
    let memory = Reserved::new([Some(0), Some(0), Some(0), None]);
    let all = 3 * PIECE / 2;
    let cases = [
        // The number of queries: one for the first element, and one for each piece if the array covers several.
        (claim(memory.at(0), all, GPU), 1 + 3),
        (claim(memory.at(PIECE - 2), 2, GPU), 1 + 2),
        (claim(memory.at(PIECE), PIECE / 2, GPU), 1),
        (Claims { strides: Some(vec![-1]), ..claim(memory.at(3 * PIECE - 2), all, GPU) }, 1 + 3),
    ];
    for (claims, questions) in cases {
        let (ledger, tensor) = claims.send::<Versioned>();
        let (import, calls) = turn.count(|| Import::from_dlpack(tensor).unwrap());
        // The memory belongs to no context, so the current context of the thread is queried.
        assert_eq!(turn.calls_of(ASKED), [questions, 1]);
        assert_eq!((calls, import.info().device()), (questions + 1, GPU));
        drop(import);
        assert_eq!((finish_releases(), ledger.released()), (0, 1));
    }
    let import = by_dict(memory.at(2), all - 1).unwrap();
    assert_eq!((import.info().device(), import.info().address()), (GPU, memory.at(2)));
    drop(import);
    assert_eq!(finish_releases(), 0);
    // The range is the whole reservation, and the memory belongs to no context.
    let known = pointer_attributes(memory.at(PIECE)).unwrap().unwrap();
    assert_eq!((known.range, known.context), (memory.at(0)..memory.at(4 * PIECE), None));
}

#[test]
fn elements_where_nothing_is_mapped_are_refused() {
    let _turn = turn();
    let mut memory = Reserved::new([None, Some(0), None, Some(0)]);
    let found =
        |from: usize, to: usize| format!("elements at {:#x} to {:#x}", memory.at(from), memory.at(to));
    let mapped = |from: usize, to: usize| {
        format!("{:#x} to {:#x}, the end of the mapped memory", memory.at(from), memory.at(to))
    };
    let over_the_end = claim(memory.at(2 * PIECE - 2), 2, GPU);
    let over_a_hole = claim(memory.at(PIECE), 3 * PIECE / 2, GPU);
    let below = Claims { strides: Some(vec![-1]), ..claim(memory.at(PIECE), 2, GPU) };
    let cases = [
        (over_the_end, found(2 * PIECE - 2, 2 * PIECE + 2), mapped(2 * PIECE - 2, 2 * PIECE)),
        (over_a_hole, found(PIECE, 4 * PIECE), mapped(PIECE, 2 * PIECE)),
        (below, found(PIECE - 2, PIECE + 2), mapped(PIECE - 2, PIECE - 2)),
    ];
    for (claims, found, allowed) in cases {
        assert_refused(claims, (ErrorKind::OutOfBounds, "data", &found, &allowed));
    }
    let refused = by_dict(memory.at(PIECE), PIECE).unwrap_err();
    assert_told(
        &refused,
        (ErrorKind::OutOfBounds, "data", &found(PIECE, 3 * PIECE), &mapped(PIECE, 2 * PIECE)),
    );
    memory.unmap();
    let told = (ErrorKind::Device, "data", "or freed memory", "CUDA (2), ordinal 0");
    assert_refused(claim(memory.at(PIECE), 1, GPU), told);
}

#[test]
fn memory_of_two_devices_is_not_one_array() {
    let _turn = turn();
    let memory = Reserved::new([Some(0), Some(1), None, None]);
    let found = format!("elements at {:#x} to {:#x}", memory.at(0), memory.at(2 * PIECE));
    let allowed = format!(
        "{:#x} to {:#x}, where memory of CUDA (2), ordinal 1 follows that of CUDA (2), ordinal 0",
        memory.at(0),
        memory.at(PIECE)
    );
    assert_refused(claim(memory.at(0), PIECE, GPU), (ErrorKind::OutOfBounds, "data", &found, &allowed));
    for (at, device) in [(0, GPU), (PIECE, Device::cuda(1))] {
        let (ledger, tensor) = claim(memory.at(at), PIECE / 2, device).send::<Versioned>();
        drop(Import::from_dlpack(tensor).unwrap());
        assert_eq!((finish_releases(), ledger.released()), (0, 1), "{device}");
    }
}

#[test]
fn mapped_memory_is_released_after_the_work_of_its_device() {
    let turn = turn();
    let memory = Reserved::new([Some(1), None, None, None]);
    let (ledger, tensor) = claim(memory.at(0), 4, Device::cuda(1)).send::<Versioned>();
    let import = Import::from_dlpack(tensor).unwrap();
    let spin = Place::primary(1).non_blocking().spin();
    drop(import);
    assert_eq!((drained(), ledger.released()), (1, 0));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// CUDA 11.7 has the first driver that reports mapped ranges.
#[test]
fn a_driver_that_does_not_know_of_pieces_is_not_asked_again() {
    let turn = turn();
    let memory = Reserved::new([Some(0), Some(0), None, None]);
    // All attributes, then those that an old driver knows, then the mapped range of memory without a context.
    for code in [1, 0, 1] {
        turn.fail_next("cuPointerGetAttributes", code);
    }
    let (ledger, tensor) = claim(memory.at(0), PIECE, GPU).send::<Versioned>();
    let (import, _) = turn.count(|| Import::from_dlpack(tensor).unwrap());
    assert_eq!(turn.calls_of(ASKED), [3, 1]);
    drop(import);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

#[test]
fn memory_from_a_pool_of_the_host_is_pinned_memory() {
    let turn = turn();
    let bytes = Place::primary(0).host_pool(0, 64);
    let start = bytes.at();
    for from in [None, Some(Place::primary(1))] {
        set_current(from);
        turn.reset_calls();
        let known = pointer_attributes(start + 10).unwrap().unwrap();
        // A context is made current only if none is.
        assert_eq!(
            turn.calls_of(["cuMemGetAddressRange_v2", "cuCtxPushCurrent_v2"]),
            [1, from.is_none().into()]
        );
        assert_eq!((known.device, known.context), (Device::CUDA_HOST, None));
        assert_eq!(known.range, start..start + 64, "the attribute has a start within the pool");
        let (ledger, import) = arrive(&bytes, Device::CUDA_HOST);
        assert_eq!(import.info().byte_range(), start..start + 64);
        drop(import);
        assert_eq!((finish_releases(), ledger.released()), (0, 1));
        drop(by_dict(start + 2, 31).unwrap());
        assert_eq!((finish_releases(), current()), (0, from));
    }
    set_current(None);
    let found = format!("elements at {:#x} to {:#x}", start + 2, start + 66);
    let allowed = format!("{start:#x} to {:#x}, the allocation of 64 bytes", start + 64);
    let told = (ErrorKind::OutOfBounds, "data", found.as_str(), allowed.as_str());
    assert_refused(claim(start + 2, 32, Device::CUDA_HOST), told);
    // If this query fails, the mapped range is used instead. Here both are equal.
    turn.fail_next("cuMemGetAddressRange_v2", 500);
    assert_eq!(pointer_attributes(start + 10).unwrap().unwrap().range, start..start + 64);
    turn.fail_next("cuMemGetAddressRange_v2", 999);
    let refused = pointer_attributes(start).unwrap_err();
    assert_eq!((refused.kind(), refused.location()), (ErrorKind::Driver, "cuMemGetAddressRange_v2"));
}

/// A kernel would fault: such a pool is accessible to the host only until devices are given access.
#[test]
fn memory_of_the_host_without_access_is_for_no_kernel() {
    let turn = turn();
    let bytes = Place::primary(0).host_pool(0, 64);
    let (ledger, import) = arrive(&bytes, Device::CUDA_HOST);
    let array = Array::<LeaseMut<i16>>::from_import(import).unwrap();
    assert_eq!(array.view::<i16, 1>().unwrap().kernel_view().unwrap().address(), bytes.address);
    assert_eq!(array.to_cai().unwrap().data.0, bytes.at());
    let found = format!("{:#x}, memory of the host that the current device has no access to", bytes.at());
    turn.fail_next("cuPointerGetAttribute", 1);
    let by_kernel = array.view::<i16, 1>().and_then(|view| view.kernel_view()).unwrap_err();
    turn.fail_next("cuPointerGetAttribute", 1);
    let by_dict = array.to_cai().unwrap_err();
    for refused in [by_kernel, by_dict] {
        assert_told(&refused, (ErrorKind::Device, "data", &found, "memory that a device can reach"));
    }
    assert_eq!(array.to_vec::<i16>().unwrap(), [0; 32]);
    drop(array);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}
