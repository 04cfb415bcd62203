//! The copy kernels of `interop-core` as host functions, so that programs need not register them.

#![expect(unsafe_code, reason = "reads the parameters of a launch, and moves bytes of simulated devices")]

use std::collections::BTreeMap;
use std::ffi::c_void;

use crate::kernels::{Kernel, translate};

/// The threads per block, and the units per thread in `strided`.
const THREADS: u32 = 256;
const EACH: u32 = 4;

/// `Axis` of `interop-core/kernels/copy.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Axis {
    extent: u32,
    multiplier: u32,
    shift: u32,
    unused: u32,
    from: i64,
    to: i64,
}

/// `Arguments` of `interop-core/kernels/copy.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Arguments {
    count: u32,
    rank: u32,
    log_across: u32,
    log_down: u32,
    tiles: [Axis; 2],
    axes: [Axis; 6],
}

impl Axis {
    /// Divides in the same way as the kernel, so that a wrong divisor shows.
    const fn divide(self, number: u32) -> u32 {
        let high = (number as u64 * self.multiplier as u64) >> 32;
        high.wrapping_add(number as u64).unbounded_shr(self.shift) as u32
    }
}

/// Returns the kernels by name.
pub(crate) fn all() -> BTreeMap<String, Kernel> {
    let sizes = vec![8, 8, size_of::<Arguments>()];
    let mut kernels = BTreeMap::new();
    macro_rules! add {
        ($($unit:literal)*) => {$(
            let by_stride = Kernel { run: strided::<$unit>, sizes: sizes.clone() };
            kernels.insert(concat!("interop_copy_strided_", $unit).to_owned(), by_stride);
            let by_tile = Kernel { run: tiled::<$unit>, sizes: sizes.clone() };
            kernels.insert(concat!("interop_copy_tiled_", $unit).to_owned(), by_tile);
        )*};
    }
    add!(1 2 4 8 16);
    kernels
}

/// The source and target of a launch. Its grid and block match what the kernel is written for.
struct Ends {
    copy: Arguments,
    to: u64,
    from: u64,
}

impl Ends {
    /// # Safety
    ///
    /// The arguments are those of a launch of one of these kernels.
    unsafe fn of(block: *const u32, parameters: *const *const c_void) -> Self {
        // SAFETY: every launch passes three extents.
        assert_eq!(unsafe { block.read() }, THREADS, "the block that the kernels are compiled for");
        // SAFETY: the launch passes as many parameters as were registered, each in words that are aligned for it.
        let [to, from, copy] = unsafe { parameters.cast::<[*const c_void; 3]>().read() };
        // SAFETY: the parameter has the registered size.
        let (to, from) = (unsafe { to.cast::<u64>().read() }, from.cast::<u64>());
        // SAFETY: as above.
        let from = unsafe { from.read() };
        // SAFETY: as above; any bytes are valid for plain numbers.
        Self { copy: unsafe { copy.cast::<Arguments>().read() }, to, from }
    }

    /// Finds the memory that the launch reads and writes. Returns pointers to the first unit of each end.
    fn places(&self, unit: usize) -> Option<Places> {
        let axes = &self.copy.axes[..self.copy.rank as usize];
        let reach = |stride: fn(&Axis) -> i64| {
            axes.iter().fold((0, 0), |(low, high), axis| {
                let last = i64::from(axis.extent - 1) * stride(axis);
                (low + last.min(0), high + last.max(0))
            })
        };
        let ((low, high), (to_low, to_high)) = (reach(|axis| axis.from), reach(|axis| axis.to));
        assert_eq!(to_low, 0, "a compact target");
        let is_aligned = |number: u64| number.is_multiple_of(unit as u64);
        let strides = axes.iter().flat_map(|axis| [axis.from, axis.to]);
        let numbers = strides.map(i64::unsigned_abs).chain([self.to, self.from]);
        assert!(numbers.into_iter().all(is_aligned), "a misaligned unit");
        let bytes = |low: i64, high: i64| low.abs_diff(high) + unit as u64;
        let source = translate(self.from.wrapping_add_signed(low), bytes(low, high), false);
        let target = translate(self.to, bytes(0, to_high), true);
        let known = !source.is_null() && !target.is_null();
        known.then(|| Places { source: source.wrapping_offset(-low as isize), target })
    }
}

/// Pointers to the first unit of the source and of the target.
struct Places {
    source: *mut u8,
    target: *mut u8,
}

impl Places {
    fn copy<const UNIT: usize>(&self, from: i64, to: i64) {
        let source = self.source.wrapping_offset(from as isize);
        let target = self.target.wrapping_offset(to as isize);
        // SAFETY: the unit lies within the bytes that `translate` has checked.
        unsafe { target.copy_from_nonoverlapping(source, UNIT) };
    }
}

/// Converts an index to the two byte offsets. The first axis varies fastest.
fn offsets(mut number: u32, axes: &[Axis]) -> (i64, i64) {
    let mut at = (0, 0);
    for axis in axes {
        let quotient = axis.divide(number);
        let index = i64::from(number.wrapping_sub(quotient.wrapping_mul(axis.extent)));
        at = (at.0 + index * axis.from, at.1 + index * axis.to);
        number = quotient;
    }
    at
}

extern "C" fn strided<const UNIT: usize>(
    grid: *const u32,
    block: *const u32,
    _: u32,
    parameters: *const *const c_void,
) {
    // SAFETY: the arguments are those of a launch of this kernel.
    let ends = unsafe { Ends::of(block, parameters) };
    let Some(places) = ends.places(UNIT) else { return };
    // SAFETY: every launch passes three extents.
    let blocks = unsafe { grid.read() };
    let pack = (4 / UNIT as u64).max(1);
    let covered = u64::from(blocks) * u64::from(THREADS * EACH) * pack;
    for number in 0..covered.min(ends.copy.count.into()) {
        let (from, _) = offsets(number as u32, &ends.copy.axes[..ends.copy.rank as usize]);
        places.copy::<UNIT>(from, number as i64 * UNIT as i64);
    }
}

extern "C" fn tiled<const UNIT: usize>(
    grid: *const u32,
    block: *const u32,
    _: u32,
    parameters: *const *const c_void,
) {
    // SAFETY: the arguments are those of a launch of this kernel.
    let ends = unsafe { Ends::of(block, parameters) };
    let Some(places) = ends.places(UNIT) else { return };
    // SAFETY: every launch passes three extents.
    let blocks = unsafe { grid.read() };
    let Arguments { rank, log_across, log_down, tiles, axes, .. } = ends.copy;
    let units = 16384 / UNIT.max(4) as u32;
    assert_eq!(1 << (log_across + log_down), units, "a tile fills the memory behind it");
    assert!(log_across >= 2 && log_down >= 2, "padding for a quarter as many rows as units");
    for tile in 0..blocks {
        let row = tiles[1].divide(tile);
        let batch = tiles[0].divide(row);
        let first_down = (tile - row * tiles[1].extent) << log_down;
        let first_across = (row - batch * tiles[0].extent) << log_across;
        let (from, to) = offsets(batch, &axes[2..rank as usize]);
        for number in 0..units {
            let down = first_down + (number >> log_across);
            let across = first_across + (number & ((1 << log_across) - 1));
            if across < axes[0].extent && down < axes[1].extent {
                let along = |across_stride: i64, down_stride: i64| {
                    i64::from(across) * across_stride + i64::from(down) * down_stride
                };
                places.copy::<UNIT>(
                    from + along(axes[0].from, axes[1].from),
                    to + along(axes[0].to, axes[1].to),
                );
            }
        }
    }
}
