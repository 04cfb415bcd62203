//! The copy kernels of `interop-core`, on the CPU, so that programs need not register them.

#![expect(unsafe_code, reason = "reads the parameters of a launch, and moves bytes of simulated devices")]

use std::collections::BTreeMap;
use std::ffi::c_void;

use interop_kernel::copy::{CopyPart, SIZES, Unit, copy};

use crate::kernels::Kernel;
use crate::rules::kernels::translate;

/// Returns the kernels by name.
pub(crate) fn all() -> BTreeMap<String, Kernel> {
    macro_rules! kernels {
        ($($name:ident: $unit:ty, $width:literal;)*) => {
            [$((stringify!($name).into(), Kernel { run: run::<$unit, $width>, sizes: SIZES.to_vec() })),*]
        };
    }
    interop_kernel::copy_kernels!(kernels).into()
}

/// Runs the kernel for each thread of a launch.
extern "C" fn run<T: Unit, const W: usize>(
    grid: *const u32,
    block: *const u32,
    _: u32,
    parameters: *const *const c_void,
) {
    // SAFETY: the launch passes as many parameters as were registered, each in words that are aligned for it.
    let [to, from, part] = unsafe { parameters.cast::<[*const c_void; 3]>().read() };
    // SAFETY: the parameter has the registered size.
    let to = unsafe { to.cast::<u64>().read() };
    // SAFETY: as above.
    let from = unsafe { from.cast::<u64>().read() };
    // SAFETY: as above; any bytes are numbers.
    let part = unsafe { part.cast::<CopyPart>().read() };
    let axes = part.axes[..part.rank as usize].iter().enumerate();
    let axes =
        axes.map(|(at, axis)| (if at == 1 { part.extent } else { axis.extent.value }, axis.from, axis.to));
    let reach = |strides: &mut dyn Iterator<Item = (u32, i64)>| {
        strides.fold((0, 0), |(low, high), (extent, stride)| {
            let last = i64::from(extent - 1) * stride;
            (low + last.min(0), high + last.max(0))
        })
    };
    let (low, high) = reach(&mut axes.clone().map(|(extent, from, _)| (extent, from)));
    let (to_low, to_high) = reach(&mut axes.clone().map(|(extent, _, to)| (extent, to)));
    assert_eq!(to_low, 0, "a compact target");
    let unit = size_of::<T>() as u64;
    let strides = axes.flat_map(|(_, from, to)| [from.unsigned_abs(), to.unsigned_abs()]);
    assert!(strides.chain([to, from]).all(|number| number % unit == 0), "a misaligned unit");
    let source = translate(from.wrapping_add_signed(low), low.abs_diff(high) + unit, false);
    let target = translate(to, to_high.unsigned_abs() + unit, true);
    if source.is_null() || target.is_null() {
        return;
    }
    let source = source.wrapping_offset(-low as isize);
    // SAFETY: every launch passes three extents.
    let (blocks, threads) = (unsafe { grid.read() }, unsafe { block.read() });
    for number in 0..u64::from(blocks) * u64::from(threads) {
        // SAFETY: the units lie within the bytes that `translate` has checked.
        unsafe { copy::<T, W>(number, target, source, &part) };
    }
}
