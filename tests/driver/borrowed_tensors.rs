//! Tensors that a library lends for a call: on the stream that it names nothing is ordered, otherwise everything is.
#![expect(unsafe_code, reason = "lends memory as another library does")]

use core::ptr::{null_mut, with_exposed_provenance_mut};

use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor};
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::Mutability;
use interop_core::{CudaArray, DType, Device, ErrorKind};

use crate::counted_imports::Row;
use crate::cuda_program::{Bytes, Place};
use crate::exclusive_driver::{first_gpu, turn};

const GPU: Device = Device::cuda(0);

/// Lends memory as `int16`.
fn lend(data: &Bytes, device: Device, elements: usize) -> interop_core::Result<BorrowedTensor<'_>> {
    let mut shape = [i64::try_from(elements).unwrap()];
    let data = with_exposed_provenance_mut(data.at());
    let (shape, strides) = (shape.as_mut_ptr(), null_mut());
    let tensor = DLTensor { data, device, ndim: 1, dtype: DType::I16, shape, strides, byte_offset: 0 };
    // SAFETY: the memory lives as long as `data`, or is refused.
    unsafe { BorrowedTensor::new(&raw const tensor, Mutability::Writable) }
}

#[test]
fn nothing_is_ordered_on_the_stream_that_is_named() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    for stream in [place.legacy(), place.blocking(), place.non_blocking()] {
        stream.fill(&data, 7);
        let (lent, calls) = turn.count(|| lend(&data, GPU, 32).unwrap());
        assert_eq!((calls, turn.calls("cuPointerGetAttributes")), (1, 1), "{stream:?}");
        // SAFETY: the stream is live, and the fill is on it.
        let (tensor, with_stream) = turn.count(|| unsafe { lent.with_stream(stream.handle()) });
        assert_eq!(with_stream, 0, "{stream:?}");
        let (row, calls) = turn.count(|| tensor.into_array::<Row<BorrowedMut<'_, i16>>>().unwrap());
        assert_eq!((calls, row.info().unwrap().stream()), (0, Some(stream.handle())));
        assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 32]);
        let ((), calls) = turn.count(|| drop(row));
        assert_eq!(calls, 0, "{stream:?}");
    }
}

#[test]
fn all_work_comes_before_the_use_of_an_unknown_stream() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    for stream in [place.legacy(), place.blocking(), place.non_blocking()] {
        stream.fill(&data, 7);
        let row: Row<Borrowed<'_, i16>> = lend(&data, GPU, 32).unwrap().into_array().unwrap();
        assert_eq!(row.info().unwrap().stream(), None);
        assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 32], "{stream:?}");
    }
}

#[test]
fn the_driver_is_asked_what_the_memory_is() {
    let _turn = turn();
    let data = Place::primary(0).bytes(0, 64);
    let kind = |device, elements| lend(&data, device, elements).map(drop).map_err(|error| error.kind());
    assert_eq!(kind(GPU, 32), Ok(()));
    assert_eq!(kind(GPU, 1 << 30), Err(ErrorKind::OutOfBounds));
    assert_eq!(kind(Device::cuda(1), 32), Err(ErrorKind::Device));
    assert_eq!(kind(Device::CPU, 32), Err(ErrorKind::Device));
}
