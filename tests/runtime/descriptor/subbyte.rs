//! R66, R67: elements of less than a byte, packed and padded.

use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::{DType, Device, Order};
use proptest::prelude::*;

use crate::support::brute_force::{offsets, settings, small_layouts};
use crate::support::signed;

const ADDRESS: usize = 0x1_0000;
const F4: DType = DType::F4_E2M1FN;
const F6: DType = DType::F6_E2M3FN;

/// The size of all elements without gaps: packed elements are summed in bits and rounded up once.
#[test]
fn bytes_are_rounded_once() {
    let rows: [(DType, bool, &[i64], usize); 12] = [
        (F4, false, &[10], 5),
        (F4, false, &[3, 3], 5),
        (F4, false, &[], 1),
        (F4, true, &[3, 3], 9),
        (F6, false, &[4], 3),
        (F6, false, &[5], 4),
        (F6, true, &[5], 5),
        (DType { lanes: 2, ..F4 }, false, &[5], 5),
        (DType { lanes: 2, ..F4 }, true, &[5], 10),
        (DType { lanes: 4, ..F6 }, false, &[5], 15),
        (DType { lanes: 4, ..F6 }, true, &[5], 20),
        (F4, false, &[0, 7], 0),
    ];
    for (dtype, padded, shape, nbytes) in rows {
        let claims = RawDescriptor { dtype, padded, ..RawDescriptor::new(ADDRESS, Device::CPU, shape) };
        let info = claims.validate().unwrap();
        assert_eq!((info.nbytes(), info.byte_range().len()), (nbytes, nbytes), "{dtype} {padded} {shape:?}");
        assert_eq!(info.is_padded(), padded, "{dtype}");
        let in_bytes = padded || dtype == DType { lanes: 2, ..F4 } || dtype == DType { lanes: 4, ..F6 };
        assert_eq!(info.byte_strides().is_some(), in_bytes, "{dtype} {padded}");
    }
}

/// For repeated elements the number of bits may not fit an integer although the number of bytes does.
#[test]
fn bytes_of_repeated_elements_are_counted() {
    for (dtype, nbytes) in [(F4, 1 << 62), (F6, 3 << 61), (DType { lanes: 3, ..F6 }, usize::MAX)] {
        let strides = Strides::Elements(&[0]);
        let claims =
            RawDescriptor { dtype, strides, ..RawDescriptor::new(ADDRESS, Device::CPU, &[i64::MAX]) };
        assert_eq!(claims.validate().unwrap().nbytes(), nbytes, "{dtype}");
    }
}

/// Elements of whole bytes need no padding, so the flag has no meaning for them.
#[test]
fn whole_bytes_are_never_padded() {
    // Negative strides are not the common case and go through other code.
    for strides in [Strides::Contiguous(Order::C), Strides::Elements(&[-1])] {
        for dtype in [DType::F32, DType::U8, DType::F8_E4M3, DType::BOOL] {
            let plain = RawDescriptor { dtype, strides, ..RawDescriptor::new(ADDRESS, Device::CPU, &[3]) };
            let padded = RawDescriptor { padded: true, ..plain.clone() }.validate().unwrap();
            assert_eq!((padded.is_padded(), &padded), (false, &plain.validate().unwrap()), "{dtype}");
        }
    }
}

/// Byte strides of padded elements are valid, because each element has its own bytes.
#[test]
fn padded_elements_have_byte_strides() {
    let claims =
        RawDescriptor { dtype: F6, padded: true, ..RawDescriptor::new(ADDRESS, Device::CPU, &[2, 3]) };
    let info = RawDescriptor { strides: Strides::Bytes(&[8, 2]), ..claims }.validate().unwrap();
    assert_eq!((info.strides(), info.byte_strides()), (&[8, 2][..], Some(vec![8, 2])));
    assert_eq!(info.byte_range().len(), 13);
}

proptest! {
    #![proptest_config(settings())]

    /// The range covers each byte with a bit of an element, and no more; also below the first element.
    #[test]
    fn packed_elements_reach_the_bytes_of_their_bits(
        (shape, strides) in small_layouts(),
        (dtype, bits) in prop::sample::select(vec![(F4, 4), (F6, 6), (DType { lanes: 3, ..F6 }, 18)]),
    ) {
        let visited = offsets(&shape, &strides);
        let shape: Vec<i64> = shape.iter().copied().map(signed).collect();
        let strides: Vec<i64> = strides.iter().map(|stride| *stride as i64).collect();
        let strides = Strides::Elements(&strides);
        let claims = RawDescriptor { dtype, strides, ..RawDescriptor::new(ADDRESS, Device::CPU, &shape) };
        let info = claims.validate().unwrap();
        let first = visited.iter().map(|at| (at * bits).div_euclid(8)).min();
        let end = visited.iter().map(|at| ((at + 1) * bits + 7).div_euclid(8)).max();
        let expected = first.zip(end).map_or(0..0, |(first, end)| {
            let at = |byte: i128| usize::try_from(ADDRESS as i128 + byte).unwrap();
            at(first)..at(end)
        });
        prop_assert_eq!(info.byte_range(), expected);
    }
}
