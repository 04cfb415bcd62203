//! Host versions of the kernels, in simple loops: a reference for tests, and the kernels of a simulated driver.
#![expect(unsafe_code, reason = "a kernel gets addresses, and untyped pointers to its arguments")]

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;
use std::thread;
use std::time::Duration;

use interop_core::{Element, KernelView};

use crate::Arrays;

/// A kernel as a host function.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Does the work of the whole grid.
    ///
    /// It takes the three extents of the grid, the three of a block, the bytes of dynamic shared memory, and an array
    /// of pointers to the arguments, as `cuLaunchKernel` does. It reads and writes the memory of the arrays that the
    /// arguments describe.
    ///
    /// The type is not `unsafe`, because tables of kernels hold safe functions. Still, the caller promises what a
    /// launch requires:
    ///
    /// - All these pointers are live, and their types are those in the table of [the crate](crate).
    /// - Nobody else writes to the memory, or reads what the kernel writes.
    /// - Arrays that are combined have the same shape, and the partial sums have one element per block.
    pub run: extern "C" fn(grid: *const u32, block: *const u32, shared: u32, params: *const *const c_void),
    /// The size of each argument in bytes.
    pub sizes: Vec<usize>,
}

/// Finds the memory that a kernel knows by its device address.
pub trait MemoryRegion: 'static {
    /// Returns a host pointer to the `bytes` bytes at `address`, or `None` if a kernel may not access them. The kernel
    /// then does nothing.
    fn place(address: u64, bytes: usize, mutability: bool) -> Option<*mut u8>;
}

/// Memory of the host itself, such as pinned memory, whose host and device addresses are equal.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl MemoryRegion for Host {
    fn place(address: u64, _bytes: usize, _writes: bool) -> Option<*mut u8> {
        // Arguments name memory by its address as an integer, so the pointer is made from that.
        usize::try_from(address).ok().map(ptr::with_exposed_provenance_mut)
    }
}

/// Returns the kernel with this name, or `None` if no module has it.
///
/// ```
/// use interop_demo_kernels::host::{Host, find};
/// assert_eq!(find::<Host>("scale_u8").unwrap().sizes, [224, 8]);
/// assert!(find::<Host>("scale_u16").is_none());
/// ```
#[must_use]
pub fn find<M: MemoryRegion>(name: &str) -> Option<Kernel> {
    let kernel = |run, sizes: &[usize]| Some(Kernel { run, sizes: sizes.to_vec() });
    match name {
        "vector_add" => kernel(vector_add::<M>, &[size_of::<Arrays<'_, 3>>()]),
        "blur_f32" => kernel(blur::<M, f32>, &[view(3), view(3)]),
        "blur_u8" => kernel(blur::<M, u8>, &[view(3), view(3)]),
        "spin" => kernel(spin, &[size_of::<u64>()]),
        "produce" => kernel(produce::<M>, &[view(1), size_of::<u32>()]),
        "consume" => kernel(consume::<M>, &[view(1), size_of::<u32>(), view(0)]),
        _ => {
            let (stem, element) = name.rsplit_once('_')?;
            match element {
                "f32" => of_stem::<M, f32>(stem),
                "f64" if stem == "sum" => of_stem::<M, f64>(stem),
                "u8" => of_stem::<M, u8>(stem),
                _ => None,
            }
        }
    }
}

fn of_stem<M: MemoryRegion, T: Number>(stem: &str) -> Option<Kernel> {
    let kernel = |run, second| Some(Kernel { run, sizes: vec![size_of::<Arrays<'_, 1>>(), second] });
    match stem {
        "scale" => kernel(scale::<M, T>, size_of::<f64>()),
        "fill" => kernel(fill::<M, T>, size_of::<T>()),
        "sum" => kernel(sum::<M, T>, view(1)),
        _ => None,
    }
}

/// The size of a view with `ndim` axes.
const fn view(ndim: usize) -> usize {
    size_of::<KernelView<'_, u8, 0>>()
        + ndim * (size_of::<KernelView<'_, u8, 1>>() - size_of::<KernelView<'_, u8, 0>>())
}

/// An element type of the kernels, with its conversions for computation.
trait Number: Element {
    fn to_f64(self) -> f64;
    /// Converts as `as` does: integers are rounded towards zero and saturate, and NaN becomes 0.
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

numbers!(f32 f64 u8);

/// An element type that can be blurred, and the type in which its neighbourhood is added.
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

/// The arguments of a kernel.
#[derive(Clone, Copy)]
struct Arguments(*const *const c_void);

impl Arguments {
    /// Returns argument number `at`, which must be an `A`.
    fn get<A: Copy>(self, at: usize) -> A {
        // SAFETY: there are more than `at` pointers (`Kernel::run`: the kernel's own list of arguments).
        let argument = unsafe { self.0.wrapping_add(at).read() };
        // SAFETY: it points to a live `A`, as above. A caller may have packed the arguments, so no alignment is
        // assumed.
        unsafe { argument.cast::<A>().read_unaligned() }
    }

    /// Returns argument number `at` as an array, or `None` if the kernel may not access its memory. Read-only and
    /// writable views have the same bytes.
    fn array<M: MemoryRegion, T: Element, const N: usize>(
        self,
        at: usize,
        mutability: bool,
    ) -> Option<Array<T, N>> {
        let view: KernelView<'_, T, N> = self.get(at);
        let (shape, strides) = (view.shape(), view.strides());
        if view.numel() == 0 {
            return Some(Array { first: ptr::null_mut(), shape, strides });
        }
        let ends = shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride);
        let (low, high) = ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)));
        let item = size_of::<T>() as i64;
        let bytes = usize::try_from((high - low + 1) * item).ok()?;
        let lowest = M::place(view.address().wrapping_add_signed(low * item), bytes, mutability)?;
        Some(Array {
            first: lowest.wrapping_offset(isize::try_from(-low * item).ok()?).cast(),
            shape,
            strides,
        })
    }
}

/// Arrays of the same shape in host memory.
struct Taken<const K: usize> {
    arrays: Arrays<'static, K>,
    /// The pointers that the offsets start from; null for arrays without elements.
    firsts: [*mut u8; K],
}

impl<const K: usize> Taken<K> {
    /// Takes the first argument of a kernel, whose arrays have elements of these sizes.
    ///
    /// Returns `None` if the kernel may not access their memory. The kernel writes to the first array or to none.
    fn of<M: MemoryRegion>(arguments: Arguments, sizes: [usize; K], mutability: bool) -> Option<Self> {
        let arrays: Arrays<'static, K> = arguments.get(0);
        let mut firsts = [ptr::null_mut(); K];
        if arrays.numel() == 0 {
            return Some(Self { arrays, firsts });
        }
        for (array, (first, size)) in firsts.iter_mut().zip(sizes).enumerate() {
            let (span, item) = (arrays.span(array), size as i64);
            let bytes = usize::try_from((span.end() - span.start() + 1) * item).ok()?;
            let low = span.start() * item;
            let lowest =
                M::place(arrays.address(array).wrapping_add_signed(low), bytes, mutability && array == 0)?;
            *first = lowest.wrapping_offset(isize::try_from(-low).ok()?);
        }
        Some(Self { arrays, firsts })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the offsets of a view fit the host that made it")]
    fn place<T>(&self, array: usize, number: usize) -> *mut T {
        self.firsts[array].cast::<T>().wrapping_offset(self.arrays.offsets(number)[array] as isize)
    }

    /// Returns an element of an array of `T`, by its number.
    fn get<T: Element>(&self, array: usize, number: usize) -> T {
        // SAFETY: as for an `Array`: `of` has located all elements.
        unsafe { self.place::<T>(array, number).read() }
    }

    /// Replaces an element of the first array.
    fn set<T: Element>(&self, number: usize, value: T) {
        // SAFETY: as in `get`, and nobody else accesses what the kernel writes.
        unsafe { self.place::<T>(0, number).write(value) };
    }
}

/// An array in host memory.
struct Array<T, const N: usize> {
    first: *mut T,
    shape: [i64; N],
    strides: [i64; N],
}

impl<T: Element, const N: usize> Array<T, N> {
    #[expect(clippy::cast_possible_truncation, reason = "the offsets of a view fit the host that made it")]
    fn place(&self, index: [i64; N]) -> *mut T {
        let offset: i64 = index.iter().zip(self.strides).map(|(index, stride)| index * stride).sum();
        self.first.wrapping_offset(offset as isize)
    }

    /// Returns the element at an index within the extents.
    fn get(&self, index: [i64; N]) -> T {
        // SAFETY: `Arguments::array` has located all elements of these extents. They are aligned (a view guarantees
        // it), live, and not written meanwhile (`Kernel::run`).
        unsafe { self.place(index).read() }
    }

    /// Replaces the element at an index within the extents.
    fn set(&self, index: [i64; N], value: T) {
        // SAFETY: as in `get`, and nobody else accesses what the kernel writes.
        unsafe { self.place(index).write(value) };
    }

    /// Calls `see` with every index, in row-major order.
    fn for_each(&self, mut see: impl FnMut([i64; N])) {
        let mut index = [0; N];
        for _ in 0..self.shape.iter().product::<i64>() {
            see(index);
            for (place, extent) in index.iter_mut().zip(self.shape).rev() {
                *place += 1;
                if *place < extent {
                    break;
                }
                *place = 0;
            }
        }
    }
}

type Params = *const *const c_void;

extern "C" fn vector_add<M: MemoryRegion>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let Some(taken) = Taken::of::<M>(Arguments(params), [size_of::<f32>(); 3], true) else { return };
    for number in 0..taken.arrays.numel() {
        taken.set::<f32>(number, taken.get::<f32>(1, number) + taken.get::<f32>(2, number));
    }
}

extern "C" fn scale<M: MemoryRegion, T: Number>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let factor: f64 = arguments.get(1);
    let Some(taken) = Taken::of::<M>(arguments, [size_of::<T>()], true) else { return };
    for number in 0..taken.arrays.numel() {
        taken.set(number, T::from_f64(taken.get::<T>(0, number).to_f64() * factor));
    }
}

extern "C" fn fill<M: MemoryRegion, T: Number>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let value: T = arguments.get(1);
    let Some(taken) = Taken::of::<M>(arguments, [size_of::<T>()], true) else { return };
    (0..taken.arrays.numel()).for_each(|number| taken.set(number, value));
}

extern "C" fn sum<M: MemoryRegion, T: Number>(grid: *const u32, block: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let (Some(taken), Some(parts)) =
        (Taken::of::<M>(arguments, [size_of::<T>()], false), arguments.array::<M, f64, 1>(1, true))
    else {
        return;
    };
    // SAFETY: `grid` points to the three extents of a grid (`Kernel::run`).
    let blocks = unsafe { grid.read() } as usize;
    // SAFETY: `block` points to the three extents of a block.
    let threads = unsafe { block.read() } as usize;
    let mut sums = vec![0.0; blocks];
    // Each block sums the elements of its threads, as a kernel does that loads one element at a time.
    for number in 0..taken.arrays.numel() {
        sums[number / threads % blocks] += taken.get::<T>(0, number).to_f64();
    }
    for (block, sum) in (0..).zip(sums) {
        parts.set([block], sum);
    }
}

extern "C" fn blur<M: MemoryRegion, T: Blurred>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let (Some(from), Some(to)) = (arguments.array::<M, T, 3>(0, false), arguments.array::<M, T, 3>(1, true))
    else {
        return;
    };
    let [height, width, _] = from.shape;
    // Adds first down, then across, in the kernel's order: sums of floats depend on the order.
    let column = |y: i64, x: i64, channel| {
        let x = x.clamp(0, width - 1);
        let pixel = |y: i64| from.get([y.clamp(0, height - 1), x, channel]).widen();
        pixel(y - 1) + pixel(y) + pixel(y + 1)
    };
    to.for_each(|[y, x, channel]| {
        let sum = column(y, x - 1, channel) + column(y, x, channel) + column(y, x + 1, channel);
        to.set([y, x, channel], T::mean(sum));
    });
}

/// A cycle takes one nanosecond here.
extern "C" fn spin(_: *const u32, _: *const u32, _: u32, params: Params) {
    thread::sleep(Duration::from_nanos(Arguments(params).get(0)));
}

/// The value of element `i` that `produce` writes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "values wrap around")]
fn produced(value: u32, at: i64) -> u32 {
    value.wrapping_add(at as u32)
}

extern "C" fn produce<M: MemoryRegion>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let value = arguments.get(1);
    let Some(to) = arguments.array::<M, u32, 1>(0, true) else { return };
    to.for_each(|at| to.set(at, produced(value, at[0])));
}

extern "C" fn consume<M: MemoryRegion>(_: *const u32, _: *const u32, _: u32, params: Params) {
    let arguments = Arguments(params);
    let value = arguments.get(1);
    let (Some(from), Some(mismatches)) =
        (arguments.array::<M, u32, 1>(0, false), arguments.array::<M, u64, 0>(2, true))
    else {
        return;
    };
    let mut wrong = 0;
    from.for_each(|at| wrong += u64::from(from.get(at) != produced(value, at[0])));
    mismatches.set([], mismatches.get([]) + wrong);
}
