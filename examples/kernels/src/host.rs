//! What the kernels compute, on the host and in plain loops: a reference for tests, and the bodies of the kernels for a
//! driver that has no device.
#![expect(unsafe_code, reason = "a kernel gets addresses, and untyped pointers to its arguments")]

use core::ffi::c_void;
use core::ptr;
use std::thread;
use std::time::Duration;

use interop_core::{Element, KernelView, KernelViewMut};

/// A kernel on the host: the grid, the threads of a block, the bytes of dynamic shared memory, and, as for
/// `cuLaunchKernel`, an array of pointers to the arguments. A call does the work of the whole grid.
///
/// # Safety
///
/// 1. `params` points to as many pointers as the kernel has arguments, each to a live value of the argument's type; the
///    types are in the table of [the crate](crate).
/// 2. The arrays in the views are live host memory for the call; what is written is accessed by nobody else meanwhile,
///    what is read is written by nobody else.
/// 3. Arrays that are compared or combined have one shape, and `parts` of a sum has an element for each block.
pub type HostKernel = unsafe fn(grid: [u32; 3], block: [u32; 3], shared: u32, params: *const *const c_void);

/// The kernel of this name, `None` for a name that no module has.
///
/// ```
/// use interop_demo_kernels::host;
/// assert!(host::find("scale_u8_3").is_some() && host::find("scale_u8_5").is_none());
/// ```
#[must_use]
pub fn find(name: &str) -> Option<HostKernel> {
    match name {
        "vector_add" => Some(vector_add),
        "blur_f32" => Some(blur::<f32>),
        "blur_u8" => Some(blur::<u8>),
        "spin" => Some(spin),
        "produce" => Some(produce),
        "consume" => Some(consume),
        _ => {
            let (rest, rank) = name.rsplit_once('_')?;
            let (stem, element) = rest.rsplit_once('_')?;
            match element {
                "f32" => of_rank::<f32>(stem, rank),
                "f64" => of_rank::<f64>(stem, rank),
                "i32" => of_rank::<i32>(stem, rank),
                "u8" => of_rank::<u8>(stem, rank),
                _ => None,
            }
        }
    }
}

fn of_rank<T: Number>(stem: &str, rank: &str) -> Option<HostKernel> {
    match rank {
        "1" => of_stem::<T, 1>(stem),
        "2" => of_stem::<T, 2>(stem),
        "3" => of_stem::<T, 3>(stem),
        "4" => of_stem::<T, 4>(stem),
        _ => None,
    }
}

fn of_stem<T: Number, const N: usize>(stem: &str) -> Option<HostKernel> {
    match stem {
        "scale" => Some(scale::<T, N>),
        "fill" => Some(fill::<T, N>),
        "sum" => Some(sum::<T, N>),
        _ => None,
    }
}

/// The element types of the kernels, as they compute with them.
trait Number: Element {
    fn to_f64(self) -> f64;
    /// Rounded; integers towards zero and to the nearest limit, and 0 for what is no number, as `as` converts.
    fn from_f64(value: f64) -> Self;
}

macro_rules! numbers {
    ($($type:ty)*) => {
        $(
            #[expect(clippy::allow_attributes, reason = "which lints a cast meets depends on the type")]
            #[allow(
                clippy::cast_lossless,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the rounding of the kernels"
            )]
            impl Number for $type {
                fn to_f64(self) -> f64 {
                    self as f64
                }

                fn from_f64(value: f64) -> Self {
                    value as Self
                }
            }
        )*
    };
}

numbers!(f32 f64 i32 u8);

/// An element type that can be blurred, and the type in which its neighbourhood is added up.
trait Blurred: Element {
    type Sum: Copy + core::ops::Add<Output = Self::Sum>;
    fn widen(self) -> Self::Sum;
    fn mean(sum: Self::Sum) -> Self;
}

impl Blurred for f32 {
    type Sum = f32;

    fn widen(self) -> f32 {
        self
    }

    fn mean(sum: f32) -> f32 {
        sum * (1.0 / 9.0)
    }
}

impl Blurred for u8 {
    type Sum = u32;

    fn widen(self) -> u32 {
        self.into()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a mean of bytes is a byte")]
    fn mean(sum: u32) -> u8 {
        ((sum + 4) / 9) as u8
    }
}

/// An argument.
///
/// # Safety
///
/// `params` has more than `at` pointers, and this one points to a live `A`.
unsafe fn argument<A: Copy>(params: *const *const c_void, at: usize) -> A {
    // SAFETY: there are more than `at` pointers.
    let argument = unsafe { params.add(at) };
    // SAFETY: as above; it is one of them.
    let argument = unsafe { argument.read() };
    // SAFETY: it points to a live `A`. A caller may have packed its arguments, so no alignment is taken for granted.
    unsafe { argument.cast::<A>().read_unaligned() }
}

/// The address of an element; valid where the index is within the extents.
fn element<T, const N: usize>(view: &KernelView<'_, T, N>, index: [i64; N]) -> *mut T {
    let offset: i64 = index.iter().zip(view.strides()).map(|(index, stride)| index * stride).sum();
    // The driver and the kernels name memory by number, so a number is all that there is to make the pointer of.
    let first = ptr::with_exposed_provenance_mut::<T>(usize::try_from(view.address()).unwrap_or(0));
    first.wrapping_offset(isize::try_from(offset).unwrap_or(0))
}

/// Calls `see` with the address of every element, in row-major order.
fn for_each<T, const N: usize>(view: &KernelView<'_, T, N>, mut see: impl FnMut(*mut T)) {
    let mut index = [0; N];
    for _ in 0..view.numel() {
        see(element(view, index));
        for (axis, extent) in view.shape().iter().enumerate().rev() {
            index[axis] += 1;
            if index[axis] < *extent {
                break;
            }
            index[axis] = 0;
        }
    }
}

unsafe fn vector_add(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let left: KernelView<'_, f32, 1> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let right: KernelView<'_, f32, 1> = unsafe { argument(params, 1) };
    // SAFETY: as above.
    let sum: KernelViewMut<'_, f32, 1> = unsafe { argument(params, 2) };
    for at in 0..sum.shape()[0] {
        // SAFETY: rules 2 and 3: `at` is within the extent that the three share.
        let left = unsafe { element(&left, [at]).read() };
        // SAFETY: as above.
        let right = unsafe { element(&right, [at]).read() };
        // SAFETY: as above.
        unsafe { element(&sum.as_view(), [at]).write(left + right) };
    }
}

unsafe fn scale<T: Number, const N: usize>(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let array: KernelViewMut<'_, T, N> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let factor: f64 = unsafe { argument(params, 1) };
    for_each(&array.as_view(), |element| {
        // SAFETY: rule 2.
        let value = unsafe { element.read() };
        // SAFETY: rule 2.
        unsafe { element.write(T::from_f64(value.to_f64() * factor)) };
    });
}

unsafe fn fill<T: Number, const N: usize>(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let array: KernelViewMut<'_, T, N> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let value: T = unsafe { argument(params, 1) };
    // SAFETY: rule 2.
    for_each(&array.as_view(), |element| unsafe { element.write(value) });
}

unsafe fn sum<T: Number, const N: usize>(
    grid: [u32; 3],
    block: [u32; 3],
    _: u32,
    params: *const *const c_void,
) {
    // SAFETY: rule 1 of `HostKernel`.
    let array: KernelView<'_, T, N> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let parts: KernelViewMut<'_, f64, 1> = unsafe { argument(params, 1) };
    let (blocks, threads) = (grid[0] as usize, block[0] as usize);
    let mut sums = vec![0.0; blocks];
    let mut number = 0;
    for_each(&array, |element| {
        // Each block has the elements of its threads, as in a kernel that loads one element at a time.
        // SAFETY: rule 2.
        sums[number / threads % blocks] += unsafe { element.read() }.to_f64();
        number += 1;
    });
    for (block, sum) in (0..).zip(sums) {
        // SAFETY: rules 2 and 3: there is an element for each block.
        unsafe { element(&parts.as_view(), [block]).write(sum) };
    }
}

unsafe fn blur<T: Blurred>(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let from: KernelView<'_, T, 3> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let to: KernelViewMut<'_, T, 3> = unsafe { argument(params, 1) };
    let [height, width, channels] = to.shape();
    let pixel = |y: i64, x: i64, channel: i64| {
        let index = [y.clamp(0, height - 1), x.clamp(0, width - 1), channel];
        // SAFETY: rules 2 and 3: the index is within the extents that both share.
        unsafe { element(&from, index).read() }.widen()
    };
    // First down, then across, as the kernel adds: sums of floats depend on the order.
    let column = |y, x, channel| pixel(y - 1, x, channel) + pixel(y, x, channel) + pixel(y + 1, x, channel);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                let sum = column(y, x - 1, channel) + column(y, x, channel) + column(y, x + 1, channel);
                // SAFETY: rule 2.
                unsafe { element(&to.as_view(), [y, x, channel]).write(T::mean(sum)) };
            }
        }
    }
}

/// A cycle takes a nanosecond here.
unsafe fn spin(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let cycles: u64 = unsafe { argument(params, 0) };
    thread::sleep(Duration::from_nanos(cycles));
}

unsafe fn produce(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let to: KernelViewMut<'_, u32, 1> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let mut value: u32 = unsafe { argument(params, 1) };
    for_each(&to.as_view(), |element| {
        // SAFETY: rule 2.
        unsafe { element.write(value) };
        value = value.wrapping_add(1);
    });
}

unsafe fn consume(_: [u32; 3], _: [u32; 3], _: u32, params: *const *const c_void) {
    // SAFETY: rule 1 of `HostKernel`.
    let from: KernelView<'_, u32, 1> = unsafe { argument(params, 0) };
    // SAFETY: as above.
    let mut value: u32 = unsafe { argument(params, 1) };
    // SAFETY: as above.
    let mismatches: KernelViewMut<'_, u64, 0> = unsafe { argument(params, 2) };
    let mut wrong = 0;
    for_each(&from, |element| {
        // SAFETY: rule 2.
        wrong += u64::from(unsafe { element.read() } != value);
        value = value.wrapping_add(1);
    });
    let count = element(&mismatches.as_view(), []);
    // SAFETY: rule 2.
    let before = unsafe { count.read() };
    // SAFETY: rule 2.
    unsafe { count.write(before + wrong) };
}
