//! Memory of any type that several structs share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use interop_core::element::{StructField, StructType};
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, FromArray, HostVec, SharedBuffer, Storage, StreamHandle,
};

use crate::support::arrays::{Array, GPU_ADDRESS, Matrix};
use crate::support::assert_told;
use crate::support::counted_owners::Count;
use crate::support::foreign_tensors::Claims;
use crate::support::streams::stream as stream_of;

/// Parts are views of the same memory at byte offsets within it.
#[test]
fn parts_stay_inside() {
    let all = SharedBuffer::new(HostVec::from([0_u32, 1, 2, 3]));
    let start = all.memory().unwrap().address;
    for bytes in [0, 4, 8, 16, 3] {
        assert_eq!(
            all.byte_offset(bytes).unwrap().memory().unwrap().address,
            start.checked_add_signed(bytes).unwrap()
        );
    }
    let back = all.byte_offset(12).unwrap().byte_offset(-12).unwrap();
    assert_eq!(back.memory().unwrap().address, start);
    for bytes in [-1, 17, isize::MAX, isize::MIN] {
        let told = (ErrorKind::OutOfBounds, "offset", "", "an offset into the 16 bytes of memory");
        let error = all.byte_offset(bytes).unwrap_err();
        assert_told(&error, told);
        assert_eq!(error.found(), format!("{bytes} bytes"));
    }
    let tail = Array::new(all.byte_offset(8).unwrap(), &[2]);
    assert_eq!(tail.to_vec::<u32>().unwrap(), [2, 3]);
    assert_eq!(
        Array::new(all.byte_offset(8).unwrap(), &[3]).info().unwrap_err().kind(),
        ErrorKind::OutOfBounds
    );
    assert_eq!(Array::new(all.byte_offset(16).unwrap(), &[0]).info().unwrap().numel(), 0);
    assert_eq!(
        Array::new(all.byte_offset(16).unwrap(), &[1]).info().unwrap_err().kind(),
        ErrorKind::OutOfBounds
    );
}

/// Padding between the fields of a struct cannot be read, so a part begins at an element. If the element is an array
/// of structs, it may begin at one of them.
#[test]
fn parts_of_structs_are_whole() {
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    struct Hit {
        detector: u8,
        energy: u64,
    }
    let hit = |number: u8| Hit { detector: number, energy: number.into() };
    let whole = |all: &SharedBuffer, bytes: isize| {
        let told = (ErrorKind::Alignment, "offset", "8 bytes", "a multiple of 16 bytes");
        assert_told(&all.byte_offset(8).unwrap_err(), told);
        assert_told(&all.byte_offset(-8).unwrap_err(), (told.0, told.1, "-8 bytes", told.3));
        let part = Array::new(all.byte_offset(bytes).unwrap(), &[1]);
        assert_eq!(all.byte_offset(48).unwrap_err().kind(), ErrorKind::OutOfBounds);
        part
    };
    let hits = SharedBuffer::new(vec![hit(1), hit(2)]);
    assert_eq!(whole(&hits, 16).to_vec::<Hit>().unwrap(), [hit(2)]);
    let pairs = SharedBuffer::new(vec![[hit(1), hit(2)]]);
    assert_eq!(whole(&pairs, 0).to_vec::<[Hit; 2]>().unwrap(), [[hit(1), hit(2)]]);
    assert_eq!(
        pairs.byte_offset(16).unwrap().memory().unwrap().address,
        pairs.memory().unwrap().address + 16
    );
}

/// The last handle to be dropped releases the memory.
#[test]
fn the_last_handle_releases() {
    #[derive(Debug)]
    struct Noted(HostVec<u8>, Count);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.add();
        }
    }
    // SAFETY: forwards to the inner vector.
    #[expect(unsafe_code, reason = "a storage promises what its memory is")]
    unsafe impl Storage for Noted {
        fn memory(&self) -> interop_core::Result<MemoryRegion> {
            self.0.memory()
        }
    }
    let dropped = Count::default();
    let all = SharedBuffer::new(Noted(HostVec::zeroed(8), dropped.clone()));
    let part = all.byte_offset(4).unwrap();
    let readonly = all.clone().read_only();
    drop(all);
    let export = Array::new(readonly, &[8]).into_dlpack().unwrap();
    drop(part);
    assert_eq!(dropped.get(), 0);
    drop(export);
    assert_eq!(dropped.get(), 1);
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Mixed {
    a: u8,
    b: i32,
}

/// Any element type is accepted and keeps its type: structs, small floats, unknown types.
#[test]
fn any_type_goes_through() {
    for (dtype, flags) in [
        (DType::BF16, 0),
        (DType::F4_E2M1FN, 0),
        (DType::F6_E2M3FN, 4),
        (DType { lanes: 4, ..DType::F32 }, 0),
        (DType::opaque(12), 0),
        (DType::new(200, 32, 1), 0),
    ] {
        let claims = Claims { dtype, flags, device: Device::cuda(2), ..Claims::at(0x1000, &[5, 4]) };
        let (_ledger, tensor) = claims.send::<Versioned>();
        let info = tensor.info().unwrap();
        let array: Array<SharedBuffer> = Array::from_dlpack(tensor).unwrap();
        let again = array.into_dlpack().unwrap();
        assert_eq!(again.info().unwrap(), info, "{dtype}");
    }

    let shared = Array::new(SharedBuffer::new(vec![Mixed { a: 1, b: 2 }; 3]), &[3]);
    let field = |name: &str, offset, dtype| StructField {
        name: name.into(),
        offset,
        dtype,
        shape: vec![],
        struct_type: None,
    };
    let fields = vec![field("a", 0, DType::U8), field("b", 4, DType::I32)];
    assert_eq!(shared.info().unwrap().struct_type(), Some(&StructType { fields }));
    let read = shared.to_vec::<Mixed>().unwrap();
    assert_eq!((read.len(), read[2].a, read[2].b), (3, 1, 2));
}

/// A storage that knows where work on its memory is pending is queried each time an array is described. The stream of
/// the struct takes precedence.
#[test]
fn work_that_is_pending_stays_pending_when_memory_is_shared() {
    struct Busy(Arc<AtomicUsize>);
    // SAFETY: the memory is on a GPU, at an address that is never dereferenced.
    #[expect(unsafe_code, reason = "a storage promises what its memory is")]
    unsafe impl Storage for Busy {
        fn memory(&self) -> interop_core::Result<MemoryRegion> {
            Ok(MemoryRegion::new::<f32>(GPU_ADDRESS, 8, Device::cuda(0), Mutability::Writable))
        }

        fn stream(&self) -> Option<StreamHandle> {
            Some(stream_of(self.0.load(Relaxed)))
        }
    }

    let stream = Arc::new(AtomicUsize::new(0x40));
    let half = SharedBuffer::new(Busy(stream.clone())).byte_offset(16).unwrap();
    let array = Matrix { data: half, rows: 2, columns: 2 };
    for handle in [0x40, 0x80] {
        stream.store(handle, Relaxed);
        assert_eq!(array.info().unwrap().stream(), Some(stream_of(handle)));
    }
    let own = Array { stream: StreamHandle::LegacyDefault, ..Array::new(array.data, &[4]) };
    assert_eq!(own.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
}

/// Memory that only a sole owner may write becomes read-only when it is shared.
#[test]
fn sharing_takes_the_right_of_a_sole_owner() {
    assert_eq!(SharedBuffer::new(vec![1_u8]).memory().unwrap().mutability, Mutability::ReadOnly);
    assert_eq!(SharedBuffer::new(HostVec::from([1_u8])).memory().unwrap().mutability, Mutability::Writable);
    assert_eq!(
        SharedBuffer::new(HostVec::from([1_u8])).read_only().memory().unwrap().mutability,
        Mutability::ReadOnly
    );
    let mut array = Array::new(SharedBuffer::new(vec![1_u8]), &[1]);
    let told = (ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array");
    assert_told(&array.view_mut::<u8, 1>().unwrap_err(), told);
    assert_told(&array.map_inplace(|element: u8| element).unwrap_err(), told);
}
