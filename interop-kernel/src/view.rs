//! Arrays as arguments of kernels. `interop.cuh` of `interop-core` declares the same bytes for C++.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]

use core::fmt;
use core::marker::PhantomData;
use core::mem::{align_of, offset_of, size_of};

use crate::element::KernelElement;
use crate::fail::{Mistake, fail};
use crate::fields::{Fields, Pointer};
use crate::index::{Index, OwnIndex, Position};
use crate::layout::{HasLayout, Layout};
use crate::mapping::sealed::Rule;
use crate::mapping::{Elements, Packs};

/// An array of elements `T` with `N` axes that a kernel reads: a parameter of the kernel.
///
/// A launch passes a [`KernelView`] for it. For a run on the CPU make one of a slice.
///
/// Elements are copied out, because other threads and libraries may share the memory.
///
/// ```
/// use interop_kernel::View;
///
/// let image = View::new(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
/// assert_eq!((image.shape(), image.get([1, 0])), ([2, 3], 4.0));
/// assert_eq!(image.nearest([-1, 7]), 3.0);
///
/// // Every second column, from the last one on.
/// let turned = View::strided(&[1_u8, 2, 3, 4, 5, 6], 5, [2, 2], [-3, -2]);
/// assert_eq!((turned.get([0, 0]), turned.get([0, 1]), turned.get([1, 1])), (6, 4, 1));
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct View<'a, T, const N: usize> {
    pub(crate) fields: Fields<N>,
    marker: PhantomData<&'a T>,
}

/// An array of elements `T` with `N` axes that a kernel writes: a parameter of the kernel.
///
/// The rule `M` gives each element to one thread: [`Elements`] (if you name none), [`Packs`],
/// [`Tiles`](crate::Tiles), [`Rows`](crate::Rows) or [`Blocks`](crate::Blocks). A thread reads and writes its own elements only, by an [`Index`]
/// that it gets of its [`Thread`](crate::Thread). With [`Atomic`](crate::Atomic) all threads add to all elements. So a kernel
/// without `unsafe` has no race.
///
/// It is neither `Copy` nor `Clone`. A launch passes a [`KernelViewMut`] for it.
#[repr(transparent)]
pub struct ViewMut<'a, T, const N: usize, M = Elements> {
    pub(crate) fields: Fields<N>,
    elements: PhantomData<&'a mut T>,
    mapping: PhantomData<fn() -> M>,
}

/// What a launch passes for a [`View`]: the same bytes. In C++ it is `interop::view<const T, N>`.
///
/// It has `8 + 16 * N` bytes, aligned to 8, in this order: the device address of element \[0, …, 0\]; the `N` extents; the
/// `N` strides in elements, which may be negative. All are 64-bit integers. Host code cannot read elements through it.
///
/// # Lifetime of the memory
///
/// A view borrows the array for `'a`, so safe code cannot free or replace the memory before the launch. A copy of the
/// view borrows as long.
///
/// The borrow ends when the launch has *queued* the kernel, and the kernel runs later. The caller of the unsafe launch
/// promises that the memory lives, and that nothing else writes to it, until the kernel is done. Keep the array until
/// the stream has been waited for, or free its memory in the order of that stream.
///
/// The view has no stream. `interop_core::LaunchScope` makes views and orders the launch with all its arrays.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct KernelView<'a, T, const N: usize> {
    pub(crate) fields: Fields<N>,
    marker: PhantomData<&'a T>,
}

/// What a launch passes for a [`ViewMut`]: the same bytes. In C++ it is `interop::view<T, N>`.
///
/// Its bytes and lifetime are those of [`KernelView`], but the borrow is exclusive. It is `Copy`, because launch
/// functions need that. Host code cannot access the elements through it, and every copy keeps the exclusive borrow.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct KernelViewMut<'a, T, const N: usize> {
    pub(crate) fields: Fields<N>,
    marker: PhantomData<&'a mut T>,
}

const fn assert_layout<const N: usize>() {
    assert!(size_of::<KernelView<'_, u8, N>>() == 8 + 16 * N);
    assert!(size_of::<KernelViewMut<'_, u8, N>>() == 8 + 16 * N);
    assert!(size_of::<View<'_, u8, N>>() == 8 + 16 * N && size_of::<ViewMut<'_, u8, N>>() == 8 + 16 * N);
    assert!(align_of::<Fields<N>>() == 8);
    assert!(offset_of!(Fields<N>, pointer) == 0);
    assert!(offset_of!(Fields<N>, shape) == 8);
    assert!(offset_of!(Fields<N>, strides) == 8 + 8 * N);
}

const _: () = {
    assert_layout::<0>();
    assert_layout::<1>();
    assert_layout::<4>();
    assert_layout::<64>();
};

/// Returns the strides of elements without gaps, in row-major order.
#[expect(clippy::cast_possible_wrap, reason = "a slice has fewer than 2^63 elements")]
fn row_major<const N: usize>(shape: [usize; N]) -> [isize; N] {
    let mut strides = [1_isize; N];
    for axis in (1..N).rev() {
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis] as isize);
    }
    strides
}

// SAFETY: it only reads elements, which nobody writes while it lives, and they are `Sync`.
unsafe impl<T: Sync, const N: usize> Sync for View<'_, T, N> {}

impl<'a, T: KernelElement, const N: usize> View<'a, T, N> {
    /// Makes a view of a slice in row-major order, for a run on the CPU.
    ///
    /// # Panics
    ///
    /// If the slice has fewer elements than the shape, or more.
    #[must_use]
    #[track_caller]
    pub fn new(slice: &'a [T], shape: [usize; N]) -> Self {
        assert_count(slice.len(), &shape);
        Self::strided(slice, 0, shape, row_major(shape))
    }

    /// Makes a view of parts of a slice. `first` is the number of element \[0, …, 0\], and `strides` are in elements.
    ///
    /// # Panics
    ///
    /// If an element lies outside of the slice.
    #[must_use]
    #[track_caller]
    pub fn strided(slice: &'a [T], first: usize, shape: [usize; N], strides: [isize; N]) -> Self {
        let pointer = slice.as_ptr().cast_mut().cast();
        let fields = Fields::from_slice(pointer, slice.len(), size_of::<T>(), first, shape, strides);
        Self { fields, marker: PhantomData }
    }

    /// The extents.
    #[inline(always)]
    #[must_use]
    pub fn shape(&self) -> [usize; N] {
        self.fields.extents()
    }

    /// Returns an element.
    ///
    /// # Panics
    ///
    /// On the CPU for a position outside of the shape, or for an [`Index`] of another shape. On a device the kernel ends with
    /// an error, after which CUDA does not work in the process.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, at: impl Position<N>) -> T {
        let at = at.inside(self.shape());
        // SAFETY: the position is inside.
        unsafe { self.get_unchecked(at) }
    }

    /// Returns the element at a position, or the nearest one if the position is outside of the shape. This is how a blur sees
    /// an edge.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get), for an array without elements.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    #[expect(
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the maximum is below 2^63; not negative"
    )]
    pub fn nearest(&self, at: [isize; N]) -> T {
        let shape = self.shape();
        let mut nearest = [0; N];
        let mut axis = 0;
        while axis < N {
            if shape[axis] == 0 {
                fail(Mistake::Empty(&shape));
            }
            nearest[axis] = at[axis].min(shape[axis] as isize - 1).max(0) as usize;
            axis += 1;
        }
        // SAFETY: each index is below the extent.
        unsafe { self.get_unchecked(nearest) }
    }

    /// Returns an element without a check.
    ///
    /// # Safety
    ///
    /// Each index is below the extent of its axis.
    #[inline(always)]
    #[must_use]
    pub unsafe fn get_unchecked(&self, at: [usize; N]) -> T {
        let place = self.fields.pointer.low.cast::<T>().wrapping_offset(self.fields.offset(at));
        // SAFETY: the caller promises that the element exists. It lives for `'a`, is aligned, and any bits are a `T`.
        unsafe { place.read() }
    }

    /// Returns the pack of `W` elements at an index, in one load if the elements lie next to each other and are aligned.
    /// Elements beyond the end of the row are `beyond`.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[inline(always)]
    #[track_caller]
    pub fn pack<const W: usize>(&self, at: Index<'_, N, Packs<W>>, beyond: T) -> [T; W] {
        let first = position(at, self.shape());
        // SAFETY: the index is that of a pack of this shape, whose elements live for `'a`.
        unsafe { self.fields.load(first, beyond) }
    }
}

impl<'a, T: KernelElement, const N: usize, M> ViewMut<'a, T, N, M> {
    /// Makes a view of a slice in row-major order, for a run on the CPU.
    ///
    /// # Panics
    ///
    /// As [`View::new`].
    #[must_use]
    #[track_caller]
    pub fn new(slice: &'a mut [T], shape: [usize; N]) -> Self {
        assert_count(slice.len(), &shape);
        Self::strided(slice, 0, shape, row_major(shape))
    }

    /// Makes a view of parts of a slice, as [`View::strided`].
    ///
    /// # Panics
    ///
    /// As [`View::strided`], and if two indices have one element.
    #[must_use]
    #[track_caller]
    pub fn strided(slice: &'a mut [T], first: usize, shape: [usize; N], strides: [isize; N]) -> Self {
        let (pointer, len) = (slice.as_mut_ptr().cast(), slice.len());
        let fields = Fields::from_slice(pointer, len, size_of::<T>(), first, shape, strides);
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            fields.is_injective(),
            "two threads would write one element: the strides {strides:?} of {shape:?}"
        );
        Self { fields, elements: PhantomData, mapping: PhantomData }
    }

    /// The extents.
    #[inline(always)]
    #[must_use]
    pub fn shape(&self) -> [usize; N] {
        self.fields.extents()
    }

    #[inline(always)]
    #[track_caller]
    fn place(&self, at: impl OwnIndex<N, M>) -> *mut T {
        let at = at.inside(self.shape());
        self.fields.pointer.low.cast::<T>().wrapping_offset(self.fields.offset(at))
    }

    /// Returns an element of this thread.
    ///
    /// # Panics
    ///
    /// As [`View::get`].
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn get(&self, at: impl OwnIndex<N, M>) -> T {
        // SAFETY: the index is inside, and no other thread writes the element. It lives for `'a` and is aligned.
        unsafe { self.place(at).read() }
    }

    /// Replaces an element of this thread.
    ///
    /// # Panics
    ///
    /// As [`View::get`].
    #[inline(always)]
    #[track_caller]
    pub fn set(&mut self, at: impl OwnIndex<N, M>, value: T) {
        // SAFETY: as in `get`, and no other thread reads it.
        unsafe { self.place(at).write(value) };
    }
}

impl<T: KernelElement, const N: usize, const W: usize> ViewMut<'_, T, N, Packs<W>> {
    /// Returns the pack of this thread at an index, as [`View::pack`].
    ///
    /// # Panics
    ///
    /// As [`View::get`].
    #[inline(always)]
    #[track_caller]
    pub fn pack(&self, at: Index<'_, N, Packs<W>>, beyond: T) -> [T; W] {
        let first = position(at, self.shape());
        // SAFETY: the index is that of a pack of this thread, whose elements live for `'a`.
        unsafe { self.fields.load(first, beyond) }
    }

    /// Replaces the pack of this thread at an index, in one store if the elements lie next to each other and are aligned.
    /// What is beyond the end of the row is dropped.
    ///
    /// # Panics
    ///
    /// As [`View::get`].
    #[inline(always)]
    #[track_caller]
    pub fn set_pack(&mut self, at: Index<'_, N, Packs<W>>, pack: [T; W]) {
        let first = position(at, self.shape());
        // SAFETY: as in `pack`, and no other thread uses them.
        unsafe { self.fields.store(first, pack) };
    }
}

#[inline(always)]
#[track_caller]
fn position<const N: usize, M>(at: Index<'_, N, M>, shape: [usize; N]) -> [usize; N] {
    crate::index::position::Inside::inside(at, shape)
}

#[track_caller]
fn assert_count(len: usize, shape: &[usize]) {
    let count = if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1_usize, |count, extent| count.checked_mul(*extent))
    };
    assert!(count == Some(len), "a slice of {len} elements does not have the shape {shape:?}");
}

impl<T: KernelElement, const N: usize> HasLayout for View<'_, T, N> {
    const LAYOUT: Layout = Layout::new(0, "View<").layout(&T::__LAYOUT).text(", ").number(N).text(">");
}

impl<T: KernelElement, const N: usize, M: Rule> HasLayout for ViewMut<'_, T, N, M> {
    const IS_ATOMIC: bool = M::IS_ATOMIC;
    const LAYOUT: Layout =
        Layout::new(0, "ViewMut<").layout(&T::__LAYOUT).text(", ").number(N).layout(&M::LAYOUT).text(">");
}

macro_rules! launched {
    ($($view:ident)*) => {
        $(
            // SAFETY: host code cannot reach an element through it.
            unsafe impl<T: Sync, const N: usize> Send for $view<'_, T, N> {}
            // SAFETY: as above.
            unsafe impl<T: Sync, const N: usize> Sync for $view<'_, T, N> {}

            impl<T, const N: usize> $view<'_, T, N> {
                /// Describes an array. `pointer` is the device address of element \[0, …, 0\], and `strides` are in elements.
                ///
                /// # Safety
                ///
                /// For the lifetime that the caller chooses the elements live and are aligned. For a [`KernelViewMut`] nobody else
                /// uses them.
                #[must_use]
                pub const unsafe fn from_raw_parts(pointer: *mut T, shape: [i64; N], strides: [i64; N]) -> Self {
                    Self { fields: Fields { pointer: Pointer::new(pointer.cast()), shape, strides }, marker: PhantomData }
                }

                /// The address of element \[0, …, 0\] on the device; 0 for a view without elements.
                #[must_use]
                pub fn address(&self) -> u64 {
                    self.fields.pointer.low.addr() as u64
                }

                /// The extents.
                #[must_use]
                pub fn shape(&self) -> [i64; N] {
                    self.fields.shape
                }

                /// The strides, in elements.
                #[must_use]
                pub fn strides(&self) -> [i64; N] {
                    self.fields.strides
                }

                /// The number of elements, from which the grid of a launch is computed.
                #[must_use]
                pub fn numel(&self) -> usize {
                    // If one extent is 0, the product of the others may overflow.
                    let count = |count: usize, extent: &i64| count.checked_mul(usize::try_from(*extent).ok()?);
                    if self.fields.shape.contains(&0) { 0 } else { self.fields.shape.iter().try_fold(1, count).unwrap_or(0) }
                }
            }
        )*
    };
}

launched!(KernelView KernelViewMut);

impl<'a, T, const N: usize> KernelViewMut<'a, T, N> {
    /// Returns a read-only view of the same elements, `interop::view<const T, N>` in C++.
    #[must_use]
    pub fn as_view(&self) -> KernelView<'a, T, N> {
        KernelView { fields: self.fields, marker: PhantomData }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn reborrowed<'b>(&'b mut self) -> KernelViewMut<'b, T, N>
    where
        'a: 'b,
    {
        KernelViewMut { fields: self.fields, marker: PhantomData }
    }
}

macro_rules! printed {
    ($($view:ident)*) => {
        $(
            impl<T, const N: usize> fmt::Debug for $view<'_, T, N> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.fields.describe::<T>(stringify!($view), f)
                }
            }
        )*
    };
}

printed!(View KernelView KernelViewMut);

impl<T, const N: usize, M> fmt::Debug for ViewMut<'_, T, N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields.describe::<T>("ViewMut", f)
    }
}

/// Makes parameters of fields.
pub(crate) mod from_fields {
    use super::{Fields, PhantomData, ViewMut};

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn view<'a, T, const N: usize>(fields: Fields<N>) -> super::View<'a, T, N> {
        super::View { fields, marker: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn view_mut<'a, T, const N: usize, M>(fields: Fields<N>) -> ViewMut<'a, T, N, M> {
        ViewMut { fields, elements: PhantomData, mapping: PhantomData }
    }
}
