//! The index of an element that a thread owns, and other positions.

use core::fmt;
use core::marker::PhantomData;

use crate::fail::{Mistake, fail};
#[cfg(not(target_arch = "nvptx64"))]
use crate::fields::fold_axes;
use crate::mapping::{Elements, Tiles};

/// Invariant in the lifetime, and of one thread.
pub(crate) type OfThread<'t, M> = (fn(&'t M) -> &'t M, *const ());

/// The index of an element that belongs to the thread that runs: the key to [`ViewMut`](crate::ViewMut).
///
/// It holds the shape for which it was made. An array of another shape does not take it. It cannot be made, and cannot
/// leave the thread.
#[derive(Clone, Copy)]
pub struct Index<'t, const N: usize, M = Elements> {
    at: [usize; N],
    shape: [usize; N],
    marker: PhantomData<OfThread<'t, M>>,
}

impl<const N: usize, M> Index<'_, N, M> {
    /// An index that belongs to the thread that calls this: the code of this crate that makes it knows.
    #[inline(always)]
    pub(crate) fn new(at: [usize; N], shape: [usize; N]) -> Self {
        Self { at, shape, marker: PhantomData }
    }

    /// The index along each axis.
    #[inline(always)]
    #[must_use]
    pub fn at(&self) -> [usize; N] {
        self.at
    }
}

impl<'t, const N: usize, const R: usize> Index<'t, N, Tiles<R>> {
    /// Returns the elements of the tile below each other, from this one on.
    #[inline(always)]
    #[must_use]
    pub fn rows(self) -> TileRows<'t, N, R> {
        let end = (self.at[0] / R * R + R).min(self.shape[0]);
        TileRows { next: self, end }
    }
}

impl<const N: usize, M> fmt::Debug for Index<'_, N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("at", &self.at).field("shape", &self.shape).finish()
    }
}

/// The elements of a tile, from the top down. [`Index::rows`] makes it.
#[derive(Clone, Debug)]
pub struct TileRows<'t, const N: usize, const R: usize> {
    next: Index<'t, N, Tiles<R>>,
    end: usize,
}

impl<'t, const N: usize, const R: usize> Iterator for TileRows<'t, N, R> {
    type Item = Index<'t, N, Tiles<R>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next;
        if row.at[0] >= self.end {
            return None;
        }
        self.next.at[0] += 1;
        Some(row)
    }
}

/// The position of an element: the index along each axis, which is compared with the extents, or an [`Index`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a position in an array of {N} axes",
    note = "write an index for each axis, as `usize` in brackets: `[i]`, `[y, x]`; or pass one of `thread.elements(shape)`"
)]
pub trait Position<const N: usize>: position::Inside<N> {}

pub(crate) mod position {
    pub trait Inside<const N: usize> {
        /// Returns the indices, which are inside of the shape.
        fn inside(self, shape: [usize; N]) -> [usize; N];
    }
}

/// An [`Index`] of the rule `M`, which [`ViewMut`](crate::ViewMut) takes: the index of an element that belongs to the thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of an own element of this thread, by the rule `{M}` in {N} axes",
    label = "not an index of this rule",
    note = "a thread uses its own elements of a `ViewMut` only: `for at in thread.elements(view.shape())`, with the function of \
            the rule: `elements`, `packs`, `tiles`, `of_block`",
    note = "to use every element, read a `View`, or add to a `ViewMut` with the rule `Atomic`"
)]
pub trait OwnIndex<const N: usize, M>: position::Inside<N> {}

impl<const N: usize, M> OwnIndex<N, M> for Index<'_, N, M> {}

impl<const N: usize> Position<N> for [usize; N] {}

impl<const N: usize> position::Inside<N> for [usize; N] {
    #[inline(always)]
    #[track_caller]
    fn inside(self, shape: [usize; N]) -> [usize; N] {
        #[cfg(target_arch = "nvptx64")]
        for (at, extent) in self.iter().zip(&shape) {
            if at >= extent {
                outside(self, shape);
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if fold_axes::<N, bool>(false, |is_outside, axis| is_outside || self[axis] >= shape[axis]) {
            outside(self, shape);
        }
        self
    }
}

/// By value: a loop keeps in registers what nobody has the address of.
#[cold]
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
fn outside<const N: usize>(at: [usize; N], shape: [usize; N]) -> ! {
    fail(Mistake::Outside(&at, &shape))
}

/// As [`outside`].
#[cold]
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
fn other_shape<const N: usize>(made: [usize; N], own: [usize; N]) -> ! {
    fail(Mistake::OtherShape(&made, &own))
}

impl<const N: usize, M> Position<N> for Index<'_, N, M> {}

impl<const N: usize, M> position::Inside<N> for Index<'_, N, M> {
    #[inline(always)]
    #[track_caller]
    fn inside(self, shape: [usize; N]) -> [usize; N] {
        #[cfg(target_arch = "nvptx64")]
        for (made, own) in self.shape.iter().zip(&shape) {
            if made != own {
                other_shape(self.shape, shape);
            }
        }
        // Fails in one place: a second one makes the body of a loop too large to be inlined where it runs.
        #[cfg(not(target_arch = "nvptx64"))]
        if fold_axes::<N, bool>(false, |is_other, axis| is_other || self.shape[axis] != shape[axis]) {
            other_shape(self.shape, shape);
        }
        self.at
    }
}
