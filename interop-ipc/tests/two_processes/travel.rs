//! What arrives in the other process.

use std::sync::Arc;
use std::time::Duration;

use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::Owner;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, HostVec, Import, Lease, LeaseMut, StreamHandle,
};
use interop_ipc::{FromParcel, ShareParcel, SharedVec, copy_import, give_import, share_import, zeroed};

use crate::arrays::{Count, Image, LONG};
use crate::other;

#[test]
fn a_struct_travels_as_itself() {
    let (count, mut other) = (Count::default(), other::start());
    let image = Arc::new(count.image());
    let parcel = image.share_parcel(3, LONG).expect("shared memory");
    assert!(parcel.bytes().len() <= 200, "{} bytes", parcel.bytes().len());
    assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    assert_eq!(
        other.open("rgba", parcel.bytes()),
        "Shape: `Rgba`: `shape[2]`: found 3, allowed: 4",
        "the check of every import"
    );
    let refused = other.open("write", parcel.bytes());
    assert!(refused.starts_with("ReadOnly: "), "a shared image is read-only: {refused}");
    drop(image);
    other.tell("drop");
    drop(parcel);
    count.expect_dropped();
}

#[test]
fn an_image_that_is_given_away_may_be_written() {
    let (count, mut other) = (Count::default(), other::start());
    let parcel = count.image().into_parcel(LONG).expect("shared memory");
    assert_eq!(other.open("write", parcel.bytes()), "30 elements, [0.5, 1.5, 2.5]");
    assert!(!count.is_zero(), "the other process has it open");
    other.tell("drop");
    drop(parcel);
    count.expect_dropped();
}

#[test]
fn both_processes_see_one_memory() {
    let parcel = Count::default().image().into_parcel(LONG).expect("shared memory");
    let mut image = Image::<LeaseMut<f32>>::from_parcel(parcel.bytes()).expect("offered");
    image.map_inplace(|value: f32| value + 4.0).expect("writable");
    drop(image);
    let image = parcel.take_back(LONG).expect("given back");
    assert_eq!(image.to_vec::<f32>().expect("shared memory")[..3], [4.0, 5.0, 6.0]);
}

#[test]
fn other_memory_is_refused_and_can_be_copied() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [height, width, 3], order = "F")]
    struct Planes {
        #[cuda_array(data)]
        values: Vec<f32>,
        height: usize,
        width: usize,
    }
    let planes = || Planes { values: (0..30_u8).map(f32::from).collect(), height: 2, width: 5 };
    let refused = planes().into_parcel(LONG).map(drop).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Unsupported);
    let text = refused.to_string();
    assert!(text.contains("`malloc` (`Vec`, NumPy)") && text.contains("`SharedVec`"), "{text}");
    assert_eq!(refused.value.values.len(), 30, "the struct comes back");
    let parcel = planes().copy_parcel(1, LONG).expect("a copy");
    // The copy is in the order of C.
    assert_eq!(other::start().open("open", parcel.bytes()), "30 elements, [0.0, 10.0, 20.0]");
}

#[test]
fn an_array_without_a_struct_travels_with_its_strides() {
    let count = Count::default();
    let image = count.image();
    let import = Import::from_dlpack(image.into_dlpack().expect("a tensor")).expect("an array");
    let parcel = share_import(import, 1, LONG).expect("the memory is that of the image");
    let opened = interop_ipc::open(parcel.bytes()).expect("offered");
    assert_eq!((opened.info().shape(), opened.info().strides()), (&[2, 5, 3][..], &[15, 3, 1][..]));
    drop(opened);
    drop(parcel);
    count.expect_dropped();
    let elsewhere =
        Image::<HostVec<f32>>::from_import(interop_ipc::open(&count_parcel(&count)).expect("offered"));
    let tensor = elsewhere.expect("a copy").into_dlpack().expect("a tensor");
    let refused =
        share_import(Import::from_dlpack(tensor).expect("an array"), 1, LONG).map(drop).unwrap_err();
    assert_eq!(refused.value.info().shape(), [2, 5, 3], "the import comes back");
}

#[test]
fn arrays_of_any_type_are_allocated_given_away_and_copied() {
    for (dtype, shape) in
        [(DType::F64, &[2, 3][..]), (DType::BOOL, &[]), (DType::BF16, &[0, 7]), (DType::new(3, 8, 24), &[5])]
    {
        let import = zeroed(dtype, shape).expect("memory");
        let copy = copy_import(&import, 1, LONG).expect("a copy");
        let given = give_import(import, LONG).expect("shared memory");
        for (bytes, is_read_only) in [(copy.bytes(), true), (given.bytes(), false)] {
            let opened = interop_ipc::open(bytes).expect("offered");
            let info = opened.info();
            assert_eq!((info.dtype(), info.shape(), info.is_read_only()), (dtype, shape, is_read_only));
        }
    }
    for (shape, kind) in [(&[1 << 62, 8][..], ErrorKind::Overflow), (&[1 << 45], ErrorKind::OutOfMemory)] {
        let error = zeroed(DType::F64, shape).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn a_copy_has_the_elements_of_any_strides() {
    let image = Count::default().image();
    let tensor = image.into_dlpack().expect("a tensor");
    let import = Import::from_dlpack(tensor).expect("an array");
    let info = import.info();
    // The channels first, from the last one, and every second column.
    let columns = RawDescriptor {
        strides: Strides::Elements(&[-1, 15, 6]),
        stream: Some(StreamHandle::NothingPending),
        ..RawDescriptor::new(info.address() + 8, Device::CPU, &[3, 2, 3])
    };
    // SAFETY: 1: the import keeps the memory. 2: it is in no `Box`.
    let columns =
        unsafe { Import::from_parts(columns.validate().expect("within the image"), Owner::new(import)) };
    let parcel = copy_import(&columns, 1, LONG).expect("a copy");
    let copy = Image::<Lease<f32>>::from_import(interop_ipc::open(parcel.bytes()).expect("offered"));
    let values = copy.expect("three values in the last axis").to_vec::<f32>().expect("mapped");
    let planes =
        [2.0, 1.0, 0.0].map(|first| [0.0, 15.0].map(|row| [0.0, 6.0, 12.0].map(|x| first + row + x)));
    assert_eq!(values, planes.concat().concat());
}

fn count_parcel(count: &Count) -> Vec<u8> {
    count.image().into_parcel(LONG).expect("shared memory").bytes().to_vec()
}

#[test]
fn an_open_array_is_not_offered_again() {
    let count = Count::default();
    let image = Image::<Lease<f32>>::from_parcel(&count_parcel(&count)).expect("offered");
    let error = Arc::new(image).share_parcel(1, Duration::from_secs(1)).map(drop).unwrap_err();
    assert!(error.to_string().contains("an open array"), "{error}");
}

#[test]
fn an_import_into_shared_memory_is_a_copy() {
    let count = Count::default();
    let copy = Image::<SharedVec<f32>>::from_parcel(&count_parcel(&count)).expect("offered");
    count.expect_dropped();
    let parcel = Arc::new(copy).share_parcel(1, LONG).expect("shared memory");
    assert_eq!(other::start().open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
}

#[test]
fn an_array_without_elements_travels() {
    let parcel = Count::default().image_of(0, 5).into_parcel(LONG).expect("shared memory");
    let opened = interop_ipc::open(parcel.bytes()).expect("offered");
    assert_eq!(opened.info().shape(), [0, 5, 3]);
}
