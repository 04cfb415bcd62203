//! Valid descriptions: the resulting `ArrayInfo`. The corpus has what both protocols can say.

use interop_core::protocols::{Layout, RawDescriptor, Strides};
use interop_core::storage::Mutability;
use interop_core::{DType, Device, DeviceType, Order};
use proptest::prelude::*;

use crate::support::brute_force::{offsets, settings, small_layouts};
use crate::support::signed;
use crate::support::streams::stream as stream_of;

const ADDRESS: usize = 0x1_0000;

fn on_cuda(shape: &[i64]) -> RawDescriptor<'_> {
    RawDescriptor::new(ADDRESS, Device::cuda(3), shape)
}

/// The result has what the description states, field by field.
#[test]
fn facts_say_what_was_claimed() {
    let stream = stream_of(0xABCD);
    let claims = RawDescriptor {
        byte_offset: 8,
        dtype: DType::F64,
        strides: Strides::Bytes(&[8, 16]),
        mutability: Mutability::UniqueOwner,
        stream: Some(stream),
        memory: Some(ADDRESS..ADDRESS + 0x100),
        ..on_cuda(&[2, 3])
    };
    let info = claims.validate().unwrap();
    assert_eq!((info.address(), info.byte_range()), (ADDRESS + 8, ADDRESS + 8..ADDRESS + 56));
    assert_eq!((info.shape(), info.strides()), (&[2, 3][..], &[1, 2][..]));
    assert_eq!(info.byte_strides(), Some(vec![8, 16]));
    assert_eq!((info.dtype(), info.is_padded(), info.struct_type()), (DType::F64, false, None));
    assert_eq!((info.shape().len(), info.numel(), info.nbytes()), (2, 6, 48));
    assert_eq!((info.device(), info.stream()), (Device::cuda(3), Some(stream)));
    assert_eq!((info.mutability(), info.is_read_only()), (Mutability::UniqueOwner, true));
    assert_eq!(info.layout(), &Layout::contiguous(&[2, 3], Order::F).unwrap());
}

/// R28, R82, bugs 62, 64, 67, 68, 92: no strides mean contiguous, in the memory order of the protocol or the struct.
#[test]
fn no_strides_are_compact_strides() {
    let strides = |order| {
        let info =
            RawDescriptor { strides: Strides::Contiguous(order), ..on_cuda(&[2, 3, 4]) }.validate().unwrap();
        info.strides().to_vec()
    };
    assert_eq!((strides(Order::C), strides(Order::F)), (vec![12, 4, 1], vec![1, 2, 6]));
}

/// Bug 83: as many axes of extent 1 as fit in place, all with negative strides.
#[test]
fn idle_axes_do_not_run_backwards() {
    let claims = RawDescriptor { strides: Strides::Elements(&[-1; 5]), ..on_cuda(&[1; 5]) };
    assert_eq!(claims.validate().unwrap().strides(), [1; 5]);
}

/// Bug 166: arrays of more than 2 GiB, up to nearly the whole address space.
#[test]
fn great_arrays_are_arrays() {
    let info = on_cuda(&[(1 << 31) + 5]).validate().unwrap();
    assert_eq!(info.byte_range().len(), (1 << 33) + 20);
    let info = RawDescriptor { address: 0x1000, dtype: DType::U8, ..on_cuda(&[1 << 59]) }.validate().unwrap();
    assert_eq!((info.nbytes(), info.byte_range()), (1 << 59, 0x1000..(1 << 59) + 0x1000));
    // The elements repeat: their total size is more than the memory, and more than `usize` holds.
    let strides = Strides::Elements(&[0, 0]);
    let info = RawDescriptor { strides, dtype: DType::COMPLEX128, ..on_cuda(&[1 << 30, 1 << 32]) }
        .validate()
        .unwrap();
    assert_eq!((info.byte_range().len(), info.nbytes()), (16, usize::MAX));
}

/// After flipping all axes the elements are farther away from the first one than before.
#[test]
fn what_is_turned_around_can_be_described_too() {
    let middle = 1_usize << 61;
    let at = |address: usize, strides: [i64; 2]| {
        let strides = Strides::Elements(&strides);
        RawDescriptor { address, strides, ..on_cuda(&[2, 2]) }.validate().map(|info| info.byte_range())
    };
    for far in (50..63).map(|power| 1_i64 << power) {
        let Ok(range) = at(middle, [-far, far]) else { continue };
        assert_eq!(at(range.start, [far, far]), Ok(range), "{far}");
    }
    assert!(at(middle, [-(1 << 56), 1 << 56]).is_ok() && at(middle, [-(1 << 57), 1 << 57]).is_err());
}

/// R90, R91, bugs 112, 115, 127: the ordinal of host memory does not matter; a device may be unknown.
#[test]
fn devices() {
    for device_type in [DeviceType::CPU, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
        for device_id in [0, 5, -1, i32::MIN] {
            let device = Some(Device { device_type, device_id });
            let info = RawDescriptor { device, ..on_cuda(&[1]) }.validate().unwrap();
            // The ordinal is normalized, so that comparing devices works.
            assert_eq!(info.device(), Device { device_type, device_id: 0 });
        }
    }
    let info = RawDescriptor { device: None, ..on_cuda(&[1]) }.validate().unwrap();
    assert_eq!(info.device().device_type, DeviceType::UNKNOWN);
    assert!(
        !info.device().device_type.is_host_accessible() && !info.device().device_type.is_cuda_accessible()
    );
}

proptest! {
    #![proptest_config(settings())]

    /// R89, bugs 89, 95: the range covers the bytes of all elements, and all of it is compared with the memory.
    #[test]
    fn memory_is_compared_with_the_visited_bytes(
        (shape, strides) in small_layouts(),
        (dtype, item) in prop::sample::select(vec![(DType::U8, 1), (DType::F32, 4), (DType::opaque(12), 12)]),
        cut_below in 0_usize..3,
        cut_above in 0_usize..3,
    ) {
        let shape: Vec<i64> = shape.iter().copied().map(signed).collect();
        let sized: Vec<usize> = shape.iter().copied().map(signed).collect();
        let visited: Vec<i128> = offsets(&sized, &strides);
        let strides: Vec<i64> = strides.iter().map(|stride| *stride as i64).collect();
        let at = |offset: i128| usize::try_from(ADDRESS as i128 + offset * item).unwrap();
        let claims = RawDescriptor { dtype, strides: Strides::Elements(&strides), ..on_cuda(&shape) };
        let info = claims.clone().validate().unwrap();
        let Some(lowest) = visited.iter().min() else {
            prop_assert_eq!(info.byte_range(), 0..0);
            return Ok(());
        };
        let range = at(*lowest)..at(*visited.iter().max().unwrap() + 1);
        prop_assert_eq!(info.byte_range(), range.clone());
        let memory = Some(range.start + cut_below..range.end - cut_above.min(range.len() - 1));
        let enough = memory == Some(range);
        prop_assert_eq!(RawDescriptor { memory, ..claims }.validate().is_ok(), enough);
    }
}
