//! What arrives in the other process.

use std::sync::Arc;
use std::time::Duration;

use interop_core::{CudaArray, ErrorKind, FromArray, HostVec, Import, Lease, LeaseMut};
use interop_ipc::{FromParcel, ShareParcel, SharedVec, share_import};

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
    let parcel = planes().copy_parcel::<f32>(1, LONG).expect("a copy");
    // The copy is in the order of C.
    assert_eq!(other::start().open("open", parcel.bytes()), "30 elements, [0.0, 10.0, 20.0]");
    assert_eq!(planes().copy_parcel::<f64>(1, LONG).map(drop).unwrap_err().kind(), ErrorKind::DType);
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
