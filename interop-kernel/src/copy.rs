//! The kernel with which `interop-core` copies the elements of a strided array into compact memory.
//!
//! A unit has 1, 2, 4, 8 or 16 bytes. Both addresses and all strides are aligned to it. `interop-core` merges axes, makes
//! units as wide as possible, and splits a copy with more units than 31 bits count. Each thread copies up to eight units
//! along one axis, the second. It loads all of them before it stores the first, so that they arrive at the same time.
#![expect(unsafe_code, reason = "moves units between addresses")]

use crate::arrays::Extent;
use crate::element::KernelElement;
use crate::wide;

/// The kernels: the name of the entry point, the type of its units, and how many of them have 16 bytes, eight at most. It
/// calls a macro with this table, in the order of the sizes.
#[doc(hidden)]
#[macro_export]
macro_rules! copy_kernels {
    ($with:ident) => {
        $with! {
            interop_copy_1: u8, 8;
            interop_copy_2: u16, 8;
            interop_copy_4: u32, 4;
            interop_copy_8: u64, 2;
            interop_copy_16: (u64, u64), 1;
        }
    };
}

macro_rules! names {
    ($($name:ident: $unit:ty, $width:literal;)*) => { [$(stringify!($name)),*] };
}

/// The names of the kernels, by the logarithm of the size of a unit.
pub const NAMES: [&str; 5] = copy_kernels!(names);

/// The sizes of their parameters: the target, the source, and the part of the copy.
pub const SIZES: &[usize] = &[8, 8, size_of::<CopyPart>()];

/// The number of units that a thread copies at most.
pub const UNITS: u32 = 8;

/// The number of axes of a launch.
pub const AXES: usize = 6;

/// A type of units.
///
/// # Safety
///
/// Any bits are a value.
pub unsafe trait Unit: Copy {
    /// Loads a unit.
    ///
    /// # Safety
    ///
    /// The pointer is to a unit, and aligned to its size. Nobody writes it.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores a unit.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load), and nobody else uses it.
    unsafe fn store(self, to: *mut u8);
}

macro_rules! numbers {
    ($($unit:ty)*) => {$(
        // SAFETY: a number.
        unsafe impl Unit for $unit {
            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: as the caller promises.
                unsafe { *from.cast() }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: as the caller promises.
                unsafe { *to.cast() = self }
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64);

/// A unit of 16 bytes in memory.
#[repr(C, align(16))]
struct Unit16(u64, u64);

// SAFETY: two numbers, which stay in registers.
unsafe impl Unit for (u64, u64) {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        let [low, high] = unsafe { wide::load(from.cast()) };
        (low, high)
    }

    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "the caller promises the alignment")]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<Unit16>().write(Unit16(self.0, self.1)) };
    }
}

/// An axis, as a device divides by its extent.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CopyAxis {
    /// The extent. Of the second axis, the number of its parts, each of which a thread copies.
    pub extent: Extent,
    /// The distance of neighbours in the source, in bytes. Of the second axis, that of neighbouring units too.
    pub from: i64,
    /// As `from`, in the target.
    pub to: i64,
}

impl CopyAxis {
    /// Describes an axis of up to 2^31 - 1 indices.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub fn new(extent: u32, from: i64, to: i64) -> Self {
        Self { extent: Extent::new(extent), from, to }
    }
}

/// A copy, or a part of one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CopyPart {
    /// The number of threads that copy: the product of the axes' extents.
    pub threads: u32,
    /// The number of axes, at least two. The first varies fastest in the target.
    pub rank: u32,
    /// The number of units along the second axis.
    pub extent: u32,
    /// The distance of the first units of neighbouring parts of the second axis.
    pub part_step: u32,
    /// The distance of neighbouring units of a part.
    pub unit_step: u32,
    /// 1 if the eight units of each part are side by side in the source and aligned together, else 0.
    pub is_packed: u32,
    /// The axes.
    pub axes: [CopyAxis; AXES],
}

// SAFETY: 1, 2, 3: numbers without padding.
unsafe impl KernelElement for CopyPart {}

/// Returns an address `steps` times `stride` bytes further on.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "addresses of the device have 64 bits")]
fn moved(from: *mut u8, steps: u32, stride: i64) -> *mut u8 {
    from.wrapping_offset((i64::from(steps) * stride) as isize)
}

/// Copies the units of one thread. `W` units have 16 bytes; of one byte there are eight.
///
/// # Safety
///
/// `from` points to the first unit of the source, `to` to that of the target. The units that `copy` describes live and are
/// aligned. Nobody writes those of the source, nobody else uses those of the target.
#[inline(always)]
pub unsafe fn copy<T: Unit, const W: usize>(number: u64, to: *mut u8, from: *const u8, copy: &CopyPart) {
    if number >= u64::from(copy.threads) {
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of threads")]
    let mut rest = number as u32;
    let (mut first, mut to, mut from) = (0, to, from.cast_mut());
    // A device copies all arguments to its slow memory if one is indexed by a variable.
    macro_rules! move_along {
        ($($axis:literal)*) => {
            'axes: {$(
                if copy.rank <= $axis {
                    break 'axes;
                }
                let axis = &copy.axes[$axis];
                let (quotient, mut index) = axis.extent.divide(rest);
                if $axis == 1 {
                    index = index.wrapping_mul(copy.part_step);
                    first = index;
                }
                (to, from) = (moved(to, index, axis.to), moved(from, index, axis.from));
                rest = quotient;
            )*
            debug_assert_eq!(rest, 0, "fewer threads than the axes have parts");
            }
        };
    }
    move_along!(0 1 2 3 4 5);
    let along = &copy.axes[1];
    let (step_from, step_to) = (i64::from(copy.unit_step) * along.from, i64::from(copy.unit_step) * along.to);
    let is_unit = |at: u32| first + at * copy.unit_step < copy.extent;
    // SAFETY: as the caller promises, for a unit that there is.
    let load = |at: u32| unsafe { T::load(moved(from, at, step_from)) };
    let units = if W > 1 && copy.is_packed == 1 {
        // SAFETY: any bits are a number.
        let mut units: [T; UNITS as usize] = unsafe { core::mem::zeroed() };
        for (part, units) in units.chunks_exact_mut(W).enumerate() {
            let place = from.wrapping_add(part * W * size_of::<T>());
            // SAFETY: as the caller promises, all eight units exist, side by side, and are aligned together.
            units.copy_from_slice(&unsafe { wide::load::<T, W>(place.cast()) });
        }
        units
    } else {
        // The first unit of a part exists.
        let first = load(0);
        let load = |at| if is_unit(at) { load(at) } else { first };
        [first, load(1), load(2), load(3), load(4), load(5), load(6), load(7)]
    };
    macro_rules! store {
        ($($at:literal)*) => {$(
            if is_unit($at) {
                // SAFETY: as the caller promises, a unit of the target.
                unsafe { units[$at].store(moved(to, $at, step_to)) };
            }
        )*};
    }
    store!(0 1 2 3 4 5 6 7);
}
