//! `data(unsafe_raw)`, `device` and `owner`: memory whose validity the programmer guarantees.
#![allow(unsafe_code, reason = "this is what the word `unsafe_raw` stands for")]

use std::ffi::c_void;
use std::ptr::NonNull;

use interop_core::storage::{Mutability, Owner};
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, StreamHandle};

use crate::support::{Foreign, count, handle};

// SAFETY: the owner keeps the memory of the pointer alive until the struct is dropped.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Raw<P> {
    #[cuda_array(owner)]
    owner: Owner,
    // SAFETY: as above.
    #[cuda_array(data(unsafe_raw))]
    pointer: P,
    rows: usize,
    columns: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

// SAFETY: the owner keeps the memory at the address alive until the struct is dropped.
#[derive(CudaArray)]
struct Address<A> {
    // SAFETY: as above.
    #[cuda_array(data(unsafe_raw, element = f32))]
    at: A,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
    #[cuda_array(owner)]
    owner: Option<Owner>,
    #[cuda_array(device)]
    device: Device,
}

// SAFETY: the pointer refers to memory that lives as long as the program.
#[derive(CudaArray)]
#[cuda_array(export, readonly, shape = [len])]
struct Outgoing<T: interop_core::Element> {
    // SAFETY: as above.
    #[cuda_array(data(unsafe_raw))]
    pointer: *mut T,
    len: u32,
    #[cuda_array(device)]
    device: Device,
}

// SAFETY: the struct gives access to the memory, which is not tied to a thread.
unsafe impl<T: interop_core::Element> Send for Outgoing<T> {}

#[test]
fn a_pointer_is_filled_and_the_owner_released_with_the_struct() {
    let (import, receipt) = Foreign { stream: handle(0x100), ..Foreign::new(&count(6), &[2, 3]) }.send();
    let raw = Raw::<*mut f32>::from_import(import).unwrap();
    assert_eq!(raw.pointer.addr(), receipt.address);
    assert_eq!((raw.rows, raw.columns, raw.device, raw.stream), (2, 3, Device::CPU, handle(0x100)));
    let info = raw.info().unwrap();
    assert_eq!(
        (info.address(), info.shape(), info.mutability()),
        (receipt.address, &[2, 3][..], Mutability::Writable)
    );
    assert_eq!((info.dtype(), info.stream(), info.device()), (DType::F32, Some(handle(0x100)), Device::CPU));
    assert_eq!(receipt.releases(), 0);
    drop(raw.owner);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn every_kind_of_pointer_is_one() {
    let (import, receipt) = Foreign::new(&count(6), &[3, 2]).send();
    let raw = Raw::<NonNull<f32>>::from_import(import).unwrap();
    assert_eq!(raw.pointer.as_ptr().addr(), receipt.address);
    drop(raw);
    assert_eq!(receipt.releases(), 1);

    let (import, receipt) =
        Foreign { mutability: Mutability::ReadOnly, ..Foreign::new(&count(6), &[3, 2]) }.send();
    let raw = Raw::<*const f32>::from_import(import).unwrap();
    assert_eq!(raw.info().unwrap().mutability(), Mutability::ReadOnly, "a `*const` exports read-only");
    drop(raw);
    assert_eq!(receipt.releases(), 1);

    // An array without elements has a null pointer, but a `NonNull` field is still filled.
    let (import, _) = Foreign::new(&count(0), &[0, 2]).send();
    let raw = Raw::<NonNull<f32>>::from_import(import).unwrap();
    assert_eq!((raw.pointer, raw.info().unwrap().numel()), (NonNull::dangling(), 0));
}

#[test]
fn what_does_not_fit_a_pointer_comes_back() {
    let (import, receipt) =
        Foreign { mutability: Mutability::ReadOnly, ..Foreign::new(&count(6), &[3, 2]) }.send();
    let refused = Raw::<*mut f32>::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::ReadOnly);
    let refused = Raw::<*const f64>::from_import(*refused.value).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::DType);
    assert_eq!(receipt.releases(), 0);
    drop(refused);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn addresses_are_integers_and_void_pointers() {
    fn round_trip<A>(number: impl Fn(&A) -> usize)
    where
        Address<A>: CudaArray + FromArray,
    {
        let (import, receipt) =
            Foreign { strides: Some(vec![1, 2]), ..Foreign::new(&count(6), &[2, 3]) }.send();
        let address = Address::<A>::from_import(import).unwrap();
        assert_eq!(number(&address.at), receipt.address);
        assert_eq!((address.shape.as_slice(), address.strides.as_slice()), (&[2, 3][..], &[1, 2][..]));
        assert_eq!(address.info().unwrap().strides(), [1, 2]);
        assert_eq!(address.device, Device::CPU);
        assert!(address.owner.is_some());
        drop(address);
        assert_eq!(receipt.releases(), 1);
    }
    round_trip::<usize>(|address| *address);
    round_trip::<u64>(|address| usize::try_from(*address).unwrap());
    round_trip::<*mut c_void>(|address| address.addr());
    round_trip::<*const c_void>(|address| address.addr());
}

#[test]
fn a_pointer_is_exported_to_the_device_it_is_on() {
    let device = Device::cuda(3);
    let outgoing = Outgoing { pointer: std::ptr::without_provenance_mut::<u16>(0x1000), len: 8, device };
    let info = outgoing.info().unwrap();
    assert_eq!((info.address(), info.device(), info.dtype()), (0x1000, device, DType::U16));
    assert_eq!((info.shape(), info.is_read_only()), (&[8][..], true));
    let tensor = outgoing.into_dlpack().unwrap();
    drop(tensor);
}

#[test]
fn a_null_pointer_is_an_empty_array_or_a_mistake() {
    let outgoing = |len| Outgoing { pointer: std::ptr::null_mut::<f32>(), len, device: Device::CPU };
    assert_eq!(outgoing(0).info().unwrap().numel(), 0);
    assert_eq!(outgoing(1).info().unwrap_err().kind(), ErrorKind::NullPointer);
}
