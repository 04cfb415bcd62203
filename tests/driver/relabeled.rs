//! Memory under another device type: which labels are allowed, which device results, and what the call waits for.

use interop_core::cuda::{CudaBuffer, MemoryKind, device_address, finish_releases};
use interop_core::storage::Relabeled;
use interop_core::{CudaArray, DType, Device, ErrorKind, Storage, StreamHandle};

use crate::cuda_program::Place;
use crate::exclusive_driver::turn;
use crate::support::arrays::Array;

fn array(kind: MemoryKind, ordinal: i32, len: usize) -> Array<CudaBuffer> {
    Array::new(CudaBuffer::zeroed(kind, ordinal, DType::U8, len).unwrap(), &[len])
}

#[test]
fn what_is_of_a_device_is_called_that_of_its_own() {
    let _turn = turn();
    for kind in [MemoryKind::Managed, MemoryKind::Device, MemoryKind::Pool] {
        for (ordinal, len) in [(0, 8), (1, 8), (0, 0)] {
            let device = Relabeled::as_device(array(kind, ordinal, len)).unwrap();
            assert_eq!(device.info().unwrap().device(), Device::cuda(ordinal), "{kind:?}, {len} elements");
        }
    }
    let error = Relabeled::as_device(array(MemoryKind::Pinned, 0, 8)).unwrap_err().error;
    assert_eq!((error.kind(), error.location()), (ErrorKind::Device, "device"));
    assert_eq!(finish_releases(), 0);
}

#[test]
fn only_what_the_host_reaches_is_called_the_hosts() {
    let _turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool] {
        let error = Relabeled::as_host(array(kind, 0, 8)).unwrap_err().error;
        assert_eq!((error.kind(), error.location()), (ErrorKind::Device, "device"), "{kind:?}");
    }
    assert_eq!(finish_releases(), 0);
}

/// Host memory may be read immediately.
#[test]
fn what_is_called_the_hosts_is_finished() {
    let turn = turn();
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        let stream = Place::primary(0).non_blocking();
        let host = Relabeled::as_host(Array { stream: stream.handle(), ..array(kind, 0, 8) }).unwrap();
        let spin = stream.spin();
        let info = host.info().unwrap();
        assert!(!turn.is_pending(spin), "{kind:?}");
        assert_eq!((info.device(), info.stream()), (Device::CPU, Some(StreamHandle::NothingPending)));
    }
}

/// With any current device, and without one.
#[test]
fn memory_of_a_device_has_its_own_address_there() {
    let _turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed] {
        let buffer = CudaBuffer::zeroed(kind, 1, DType::U8, 8).unwrap();
        let address = buffer.memory().unwrap().address;
        let ask = || device_address(address).unwrap();
        assert_eq!(
            [ask(), Place::primary(0).with(ask), Place::primary(1).with(ask)],
            [address; 3],
            "{kind:?}"
        );
    }
    assert_eq!(finish_releases(), 0);
}

/// An empty array has no address to query.
#[test]
fn a_kernel_view_of_pinned_memory_without_elements() {
    let _turn = turn();
    let empty = array(MemoryKind::Pinned, 0, 0);
    assert_eq!(empty.view::<u8, 1>().unwrap().kernel_view().unwrap().address(), 0);
}
