//! The memory that each storage describes.

use std::sync::Arc;

use interop_core::element::{Opaque, StructType};
use interop_core::storage::{FromImport, HostBuffer, MemoryRegion, Mutability};
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, HostVec, LaunchScope, Lease, LeaseMut, Order, SharedBuffer,
    Storage, StreamHandle,
};

use crate::support::arrays::{Array, Borrowable, Claimed, Fortran, GPU_ADDRESS, Matrix, Pinned};
use crate::support::assert_told;
use crate::support::streams::stream as stream_of;

/// Compares the description of a storage of six `u16` with the expected values.
#[track_caller]
fn check(storage: &impl Storage, address: usize, device: Device, mutability: Mutability) {
    let MemoryRegion { address: said, range, element, device: on, mutability: who } =
        storage.memory().unwrap();
    assert_eq!((said, range), (address, address..address + 12));
    assert_eq!((element.dtype(), element.axes(), storage.struct_type()), (DType::U16, &[][..], None));
    assert_eq!((on, who), (device, mutability));
}

const SIX: [u16; 6] = [0, 1, 2, 3, 4, 5];

/// Bugs 112, 129: the address, extent, device and mutability are those of the storage.
#[test]
fn every_storage_says_where_it_is() {
    let vector = SIX.to_vec();
    check(&vector, vector.as_ptr().addr(), Device::CPU, Mutability::UniqueOwner);
    let boxed: Box<[u16]> = SIX.into();
    check(&boxed, boxed.as_ptr().addr(), Device::CPU, Mutability::UniqueOwner);
    let counted: Arc<[u16]> = SIX.into();
    check(&counted, counted.as_ptr().addr(), Device::CPU, Mutability::ReadOnly);
    let fixed: &'static [u16] = &[0, 1, 2, 3, 4, 5];
    check(&fixed, fixed.as_ptr().addr(), Device::CPU, Mutability::ReadOnly);
    let mut host = HostVec::from(SIX);
    let address = host.as_mut_slice().unwrap().as_ptr().addr();
    check(&host, address, Device::CPU, Mutability::Writable);
    check(&SharedBuffer::new(host), address, Device::CPU, Mutability::Writable);
    let shared = Arc::new(vector);
    check(&shared, shared.as_ptr().addr(), Device::CPU, Mutability::ReadOnly);
    let own = Borrowable(SIX.to_vec());
    check(&own, own.0.as_ptr().addr(), Device::CPU, Mutability::UniqueOwner);
    let pinned = Pinned(HostVec::from(SIX));
    check(&pinned, pinned.0.memory().unwrap().address, Device::CUDA_HOST, Mutability::Writable);
    check(&Claimed::gpu::<u16>(6, 2), GPU_ADDRESS, Device::cuda(2), Mutability::Writable);
    check(&Arc::new(Claimed::gpu::<u16>(6, 2)), GPU_ADDRESS, Device::cuda(2), Mutability::Writable);
}

/// A handle describes the same memory as its storage.
#[test]
fn handles_hand_on_what_the_storage_knows() {
    struct Known(StructType);

    // SAFETY: nothing is read at the address.
    #[expect(unsafe_code, reason = "a storage promises what its memory is")]
    unsafe impl Storage for Known {
        fn memory(&self) -> interop_core::Result<MemoryRegion> {
            Ok(MemoryRegion::new::<Opaque<4>>(GPU_ADDRESS, 6, Device::cuda(0), Mutability::Writable))
        }

        fn struct_type(&self) -> Option<&StructType> {
            Some(&self.0)
        }

        fn stream(&self) -> Option<StreamHandle> {
            Some(stream_of(0x40))
        }
    }

    let handle = Arc::new(Known(StructType { fields: Vec::new() }));
    assert_eq!(Storage::struct_type(&handle), Some(&handle.0));
    assert_eq!(Storage::stream(&handle), Some(stream_of(0x40)));
}

/// The spare capacity of a vector is not initialized and not part of the memory.
#[test]
fn capacity_is_no_memory() {
    let mut vector = Vec::with_capacity(100);
    vector.extend(SIX);
    check(&vector, vector.as_ptr().addr(), Device::CPU, Mutability::UniqueOwner);
    assert_eq!(Array::new(vector, &[7]).info().unwrap_err().kind(), ErrorKind::OutOfBounds);
}

/// An empty storage is an empty array.
#[test]
fn storages_may_be_empty() {
    fn case<S: Storage>(storage: S) {
        let info = Array::new(storage, &[0, 5]).info().unwrap();
        assert_eq!((info.address(), info.numel(), info.byte_range()), (0, 0, 0..0));
    }
    case(Vec::<f64>::new());
    case(Box::<[f64]>::default());
    case(Arc::<[f64]>::from([]));
    case(&[] as &'static [f64]);
    case(HostVec::<f64>::zeroed(0));
    case(HostBuffer::zeroed(DType::F64, 0).unwrap());
    case(SharedBuffer::new(Vec::<f64>::new()));
    let told = (ErrorKind::OutOfBounds, "shape", "", "the 0 bytes of memory");
    assert_told(&Array::new(Vec::<f64>::new(), &[1]).info().unwrap_err(), told);
    assert_told(&Array::new(Vec::<f64>::new(), &[]).info().unwrap_err(), told);
}

/// Bugs 89, 91, 107: shapes and strides that need more than the storage has, in each memory order.
#[test]
fn shapes_stay_within_the_storage() {
    let refused = |array: Array<Vec<u16>>, bytes: &str| {
        assert_told(
            &array.info().unwrap_err(),
            (ErrorKind::OutOfBounds, "shape", "of uint16 with strides", bytes),
        );
    };
    let vector = || SIX.to_vec();
    refused(Array::new(vector(), &[7]), "the 12 bytes");
    refused(Array::new(vector(), &[2, 4]), "the 12 bytes");
    refused(Array::strided(vector(), &[2, 3], &[4, 1]), "the 12 bytes");
    refused(Array::strided(vector(), &[2], &[-1]), "the 12 bytes");
    refused(Array::strided(vector(), &[2, 2], &[1, 5]), "the 12 bytes");
    refused(Array::new(vec![1; 3], &[4]), "the 6 bytes");
    let fits =
        [(&[2, 3][..], &[3, 1][..]), (&[2, 3], &[1, 2]), (&[3, 2], &[0, 5]), (&[1, 6], &[99, 1]), (&[], &[])];
    for (shape, strides) in fits {
        assert!(Array::strided(vector(), shape, strides).info().is_ok(), "{shape:?} {strides:?}");
    }
    assert!(Array::new(vector(), &[5]).info().is_ok(), "less than all is fine");

    let told = (ErrorKind::Overflow, "shape", "18446744073709551615", "");
    assert_eq!(Array::new(vector(), &[usize::MAX]).info().unwrap_err().kind(), told.0);
    let told = (ErrorKind::Strides, "strides", "1 stride", "2, one for each axis");
    assert_told(&Array::strided(vector(), &[2, 3], &[3]).info().unwrap_err(), told);
}

/// The memory order of the struct determines its strides.
#[test]
fn orders_are_strides() {
    let matrix = Matrix { data: SIX.to_vec(), rows: 2, columns: 3 }.info().unwrap();
    let fortran = Fortran { data: SIX.to_vec(), rows: 2, columns: 3 };
    assert_eq!((matrix.strides(), fortran.info().unwrap().strides()), (&[3, 1][..], &[1, 2][..]));
    assert_eq!(fortran.to_vec::<u16>().unwrap(), [0, 2, 4, 1, 3, 5], "rows first, whatever the memory is");
    assert!(fortran.info().unwrap().layout().is_contiguous(Order::F));
}

/// Which imports copy and which use the memory in place, and the element types that they require.
#[test]
fn imports_copy_or_hold() {
    fn copies<S: FromImport>() -> (bool, Option<DType>) {
        (S::COPIES, S::element().map(|element| element.dtype()))
    }
    let f32 = Some(f32::TYPE.dtype());
    assert_eq!(copies::<Vec<f32>>(), (true, f32));
    assert_eq!(copies::<Box<[f32]>>(), (true, f32));
    assert_eq!(copies::<Arc<[f32]>>(), (true, f32));
    assert_eq!(copies::<HostVec<f32>>(), (true, f32));
    assert_eq!(copies::<Lease<f32>>(), (false, f32));
    assert_eq!(copies::<LeaseMut<f32>>(), (false, f32));
    assert_eq!(copies::<SharedBuffer>(), (false, None));
}

/// The debug output of a storage has its type and address, but no elements.
#[test]
fn storages_can_be_shown() {
    let host = HostVec::<[f32; 3]>::zeroed(4);
    assert_eq!(format!("{host:?}"), "HostVec(4 × float32 with trailing axes [3])");
    let host = HostBuffer::zeroed(DType::F32, 4).unwrap();
    assert_eq!(format!("{host:?}"), "HostBuffer(4 × float32)");
    let shared = format!("{:?}", SharedBuffer::new(Claimed::gpu::<f32>(6, 1)));
    assert_eq!(shared, format!("SharedBuffer(float32 at {GPU_ADDRESS:#x}, CUDA (2), ordinal 1)"));
}

/// Structs of several types in one list, described and read by a scope through the trait.
#[test]
fn arrays_of_any_struct_in_one_list() {
    let arrays: [Box<dyn CudaArray>; 2] =
        [Box::new(Array::new(vec![1_u8; 6], &[2, 3])), Box::new(Array::new(HostVec::from([1.5_f64]), &[1]))];
    let scope = LaunchScope::new();
    let described = arrays.iter().map(|array| scope.read_any(array.as_ref()).unwrap());
    let found: Vec<_> = described.map(|info| (info.dtype(), info.shape().to_vec())).collect();
    assert_eq!(found, [(DType::U8, vec![2, 3]), (DType::F64, vec![1])]);
    assert_eq!(arrays[0].to_cai().unwrap_err().kind(), ErrorKind::Device);
}
