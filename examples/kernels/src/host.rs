//! What the kernels compute, on the host and in plain loops: a reference for tests, and the bodies of the kernels for a
//! driver that has no device.
#![expect(unsafe_code, reason = "a kernel gets addresses, and untyped pointers to its arguments")]

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;
use std::thread;
use std::time::Duration;

use interop_core::{Element, KernelView};

use crate::Arrays;

/// A kernel as a function of the host.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Does the work of a whole grid. Takes the three extents of the grid, those of a block, the bytes of dynamic shared
    /// memory, and, as `cuLaunchKernel`, an array of pointers to the arguments; reads the memory of the arrays that they
    /// describe, and writes to it.
    ///
    /// Not `unsafe`, because tables of kernels hold plain functions, but whoever calls it promises what a launch does: all
    /// these pointers are live and of the types in the table of [the crate](crate); nobody else writes to the memory, or
    /// reads what the kernel writes; arrays that are combined have one shape, and the sums of parts an element for each
    /// block.
    pub run: extern "C" fn(grid: *const u32, block: *const u32, shared: u32, params: *const *const c_void),
    /// The bytes of each argument.
    pub sizes: Vec<usize>,
}

/// Where memory is that a kernel knows by its address on the device.
pub trait MemoryRegion: 'static {
    /// The place on the host of `bytes` bytes from `address` on; `None` for memory that a kernel may not touch, upon
    /// which it does nothing.
    fn place(address: u64, bytes: usize, mutability: bool) -> Option<*mut u8>;
}

/// Memory of the host itself: pinned memory, of which the addresses are those of the device.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl MemoryRegion for Host {
    fn place(address: u64, _bytes: usize, _writes: bool) -> Option<*mut u8> {
        // Arguments name memory by number, so a number is all that there is to make the pointer of.
        usize::try_from(address).ok().map(ptr::with_exposed_provenance_mut)
    }
}

/// The kernel of this name, `None` for a name that no module has.
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

/// The size of a view of so many axes.
const fn view(ndim: usize) -> usize {
    size_of::<KernelView<'_, u8, 0>>()
        + ndim * (size_of::<KernelView<'_, u8, 1>>() - size_of::<KernelView<'_, u8, 0>>())
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

numbers!(f32 f64 u8);

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

/// The arguments of a kernel.
#[derive(Clone, Copy)]
struct Arguments(*const *const c_void);

impl Arguments {
    /// The argument of this number, which is an `A`.
    fn get<A: Copy>(self, at: usize) -> A {
        // SAFETY: there are more than `at` pointers (`Kernel::run`: the kernel's own list of arguments).
        let argument = unsafe { self.0.wrapping_add(at).read() };
        // SAFETY: it points to a live `A`, as above. A caller may have packed them, so no alignment is taken for granted.
        unsafe { argument.cast::<A>().read_unaligned() }
    }

    /// The array of this number, `None` if the kernel may not touch its memory. A view to write has the bytes of one to
    /// read.
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

/// Arrays of one shape in memory of the host.
struct Taken<const K: usize> {
    arrays: Arrays<'static, K>,
    /// What the offsets count from; null for arrays without elements.
    firsts: [*mut u8; K],
}

impl<const K: usize> Taken<K> {
    /// The first argument of a kernel, whose arrays have elements of these sizes; `None` if it may not touch their memory.
    /// It writes to the first array or to none.
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

    /// An element of an array of `T`, by its number.
    fn get<T: Element>(&self, array: usize, number: usize) -> T {
        // SAFETY: as for an `Array`: `of` has placed all elements.
        unsafe { self.place::<T>(array, number).read() }
    }

    /// Replaces an element of the first array.
    fn set<T: Element>(&self, number: usize, value: T) {
        // SAFETY: as in `get`, and nobody else accesses what the kernel writes.
        unsafe { self.place::<T>(0, number).write(value) };
    }
}

/// An array in memory of the host.
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

    /// The element at an index within the extents.
    fn get(&self, index: [i64; N]) -> T {
        // SAFETY: `Arguments::array` has placed all elements of these extents, which are aligned (a view's promise), live
        // and not written meanwhile (`Kernel::run`).
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
    // SAFETY: the three extents of a grid (`Kernel::run`).
    let blocks = unsafe { grid.read() } as usize;
    // SAFETY: those of a block.
    let threads = unsafe { block.read() } as usize;
    let mut sums = vec![0.0; blocks];
    // Each block has the elements of its threads, as in a kernel that loads one element at a time.
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
    // First down, then across, as the kernel adds: sums of floats depend on the order.
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

/// A cycle takes a nanosecond here.
extern "C" fn spin(_: *const u32, _: *const u32, _: u32, params: Params) {
    thread::sleep(Duration::from_nanos(Arguments(params).get(0)));
}

/// Element `i` of what is produced.
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
