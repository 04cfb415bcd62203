//! Random descriptions, checked with wide arithmetic: what fits is accepted, what does not fit is refused.

use interop_core::protocols::dlpack::Versioned;
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::{DType, Device, ErrorKind, Import, Order};
use proptest::prelude::*;

use crate::support::brute_force::settings;
use crate::support::foreign_tensors::Claims;

/// Numbers that tend to cause overflows.
const EXTENTS: [i64; 13] = [-1, 0, 1, 1, 1, 2, 3, 7, 1 << 31, 1 << 32, 1 << 61, i64::MAX, i64::MIN];
const STRIDES: [i64; 14] = [
    0,
    1,
    -1,
    2,
    -3,
    7,
    1 << 32,
    -(1 << 32),
    1 << 59,
    -(1 << 60),
    i64::MAX / 2,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];
const ADDRESSES: [usize; 7] = [1, FIRST_ADDRESS, 0x1_0000, 1 << 47, 1 << 63, usize::MAX - 64, usize::MAX];

/// No system has memory below.
const FIRST_ADDRESS: usize = 4096;

/// Returns the number of elements and their address range, or the kind of the error.
fn judge(
    shape: &[i64],
    strides: Option<&[i64]>,
    address: usize,
    bits: i128,
) -> Result<(i128, [i128; 2]), ErrorKind> {
    if shape.iter().any(|extent| *extent < 0) {
        return Err(ErrorKind::Shape);
    }
    if shape.contains(&0) {
        return Ok((0, [0, 0]));
    }
    let fits = |number: &i128| i64::try_from(*number).is_ok();
    let product =
        |numbers: &[i64]| numbers.iter().try_fold(1_i128, |product, n| product.checked_mul((*n).into()));
    let numel = product(shape).filter(fits).ok_or(ErrorKind::Overflow)?;
    let mut ends = [0_i128, 0];
    for (axis, extent) in shape.iter().enumerate() {
        let compact = || product(&shape[axis + 1..]);
        let stride = strides.map_or_else(compact, |strides| Some(strides[axis].into()));
        let reach = stride.and_then(|stride| (i128::from(*extent) - 1).checked_mul(stride));
        let end = &mut ends[usize::from(reach.is_none_or(|reach| reach > 0))];
        *end = reach.and_then(|reach| end.checked_add(reach)).ok_or(ErrorKind::Overflow)?;
    }
    ends[1] += 1;
    if !fits(&(ends[1] - ends[0])) {
        return Err(ErrorKind::Overflow);
    }
    if address < FIRST_ADDRESS {
        return Err(ErrorKind::NullPointer);
    }
    // Sizes are counted in bits, in 63 bits: 2^60 bytes, which is beyond any address space.
    let bit_ends = ends.map(|end| end.checked_mul(bits));
    let [Some(low), Some(high)] = bit_ends else { return Err(ErrorKind::Overflow) };
    let range = [low.div_euclid(8), (high + 7).div_euclid(8)].map(|end| address as i128 + end);
    // A view may begin at the lowest element, so the distance from there to the highest must fit too.
    let there = ends.iter().all(fits) && fits(&low) && fits(&(high + 7)) && fits(&(high - low + 7));
    let there = there && range.iter().all(|end| (0..=usize::MAX as i128).contains(end));
    if there { Ok((numel, range)) } else { Err(ErrorKind::Overflow) }
}

proptest! {
    #![proptest_config(settings())]

    /// R84, R89, bugs 89, 98, 165, 168, 169: no arithmetic wraps, in debug and in release builds.
    #[test]
    fn what_fits_is_accepted_and_nothing_else(
        axes in prop::collection::vec((prop::sample::select(&EXTENTS[..]), prop::sample::select(&STRIDES[..])), 0..8),
        given in any::<bool>(),
        address in prop::sample::select(&ADDRESSES[..]),
        (dtype, bits) in prop::sample::select(vec![
            (DType::U8, 8), (DType::F32, 32), (DType::F4_E2M1FN, 4), (DType::F6_E2M3FN, 6),
            (DType::opaque(u16::MAX), 524_280),
        ]),
    ) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
        let given = given.then_some(&strides[..]);
        let claims = RawDescriptor {
            dtype,
            strides: given.map_or(Strides::Contiguous(Order::C), Strides::Elements),
            ..RawDescriptor::new(address, Device::CPU, &shape)
        };
        let judged = judge(&shape, given, address, bits);
        let info = claims.validate();
        match (&info, judged) {
            (Ok(info), Ok((numel, [start, end]))) => {
                let range = info.byte_range();
                prop_assert_eq!((info.numel() as i128, range.start as i128, range.end as i128), (numel, start, end));
            }
            (Err(error), Err(kind)) => prop_assert_eq!(error.kind(), kind, "{}", error),
            (info, judged) => prop_assert!(false, "{info:?} but {judged:?}"),
        }

        // A foreign struct with the same description gets the same result, whatever its rank.
        let strides = given.map(<[i64]>::to_vec);
        let (ledger, tensor) = Claims { dtype, strides, ..Claims::at(address, &shape) }.send::<Versioned>();
        prop_assert_eq!(tensor.info(), info.clone());
        let imported = Import::from_dlpack(tensor);
        prop_assert_eq!((imported.is_ok(), ledger.released()), (info.is_ok(), 0));
        drop(imported);
        prop_assert_eq!(ledger.released(), 1);
    }
}
