//! A short list of extents or strides, stored inline for up to five axes.

use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};
use core::{fmt, slice};

use crate::error::{Error, ErrorKind, Result};

/// The number of axes that fit without a heap allocation. Images and batches of images have at most five.
pub(crate) const INLINE: usize = 5;

/// The greatest number of axes. NumPy 2.0 and later have the same limit.
pub const MAX_NDIM: usize = interop_kernel::axes::MAX_NDIM;

/// A list of extents or strides, one for each axis, that dereferences to a slice.
///
/// ```
/// use interop_core::arrays::Dims;
/// let dims = Dims::from([480_usize, 640, 3]);
/// assert_eq!(dims.len(), 3);
/// assert_eq!(dims[1], 640);
/// assert_eq!(dims, dims.iter().copied().collect());
/// ```
#[derive(Clone)]
pub struct Dims<T>(Repr<T>);

/// `len` is a word and not a byte: a wide load over a narrow store that was just made stalls the CPU.
#[derive(Clone)]
enum Repr<T> {
    Inline { len: usize, items: [T; INLINE] },
    Heap(Box<[T]>),
}

impl<T: Copy + Default> Dims<T> {
    /// Creates a list of `len` zeros.
    #[inline]
    pub(crate) fn zeroed(len: usize) -> Self {
        if len <= INLINE {
            return Self(Repr::Inline { len, items: [T::default(); INLINE] });
        }
        Self(Repr::Heap(vec![T::default(); len].into_boxed_slice()))
    }

    /// Creates a list from `item(axis)` for each axis.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a constant length unrolls the loop")]
    pub(crate) fn from_fn(len: usize, mut item: impl FnMut(usize) -> T) -> Self {
        if len <= INLINE {
            let items = core::array::from_fn(|axis| if axis < len { item(axis) } else { T::default() });
            return Self(Repr::Inline { len, items });
        }
        Self(Repr::Heap((0..len).map(item).collect()))
    }

    /// Replaces the list, in place if it is inline (see `ImportSlot`).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a constant length unrolls the loop")]
    pub(crate) fn set(&mut self, new_len: usize, mut item: impl FnMut(usize) -> T) {
        match &mut self.0 {
            Repr::Inline { len, items } if new_len <= INLINE => {
                *len = new_len;
                for (axis, place) in items.iter_mut().enumerate() {
                    *place = if axis < new_len { item(axis) } else { T::default() };
                }
            }
            _ => *self = Self::from_fn(new_len, item),
        }
    }
}

/// Evaluates an expression with copies of the extents and the strides of a foreign struct, whose owner may change them. For one
/// to four axes the lists are arrays, and the expression is compiled for each of these ranks, because a loop over a known number of
/// axes is unrolled. Without it, an import takes 1.24 times as long.
macro_rules! with_lists {
    ($ndim:expr, $extent:expr, $stride:expr, |$shape:pat_param, $strides:pat_param| $then:expr) => {
        with_lists! { 1 2 3 4: $ndim, $extent, $stride, $shape, $strides, $then }
    };
    ($($rank:literal)*: $ndim:expr, $extent:expr, $stride:expr, $shape:pat_param, $strides:pat_param, $then:expr) => {
        match $ndim {
            $($rank => {
                let $shape = core::array::from_fn::<i64, $rank, _>($extent);
                let $strides = core::array::from_fn::<i64, $rank, _>($stride);
                $then
            })*
            ndim => {
                let $shape = $crate::array::dims::Dims::from_fn(ndim, $extent);
                let $strides = $crate::array::dims::Dims::from_fn(ndim, $stride);
                $then
            }
        }
    };
}

pub(crate) use with_lists;

impl<T: Copy> Dims<T> {
    /// A list without axes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "most of it is zero")]
    pub(crate) const fn empty(zero: T) -> Self {
        Self(Repr::Inline { len: 0, items: [zero; INLINE] })
    }
}

impl<T: Copy + Default> From<&[T]> for Dims<T> {
    #[inline]
    fn from(items: &[T]) -> Self {
        let mut dims = Self::zeroed(items.len());
        dims.copy_from_slice(items);
        dims
    }
}

impl<T: Copy + Default, const N: usize> From<[T; N]> for Dims<T> {
    #[inline]
    fn from(items: [T; N]) -> Self {
        Self::from(&items[..])
    }
}

impl<T: Copy + Default> FromIterator<T> for Dims<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let (mut rest, mut len, mut items) = (items.into_iter(), 0, [T::default(); INLINE]);
        while len < INLINE {
            let Some(item) = rest.next() else { return Self(Repr::Inline { len, items }) };
            items[len] = item;
            len += 1;
        }
        match rest.next() {
            None => Self(Repr::Inline { len, items }),
            Some(next) => Self(Repr::Heap(items.into_iter().chain([next]).chain(rest).collect())),
        }
    }
}

impl<T: Copy + Default> Default for Dims<T> {
    /// A list without axes.
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<'a, T> IntoIterator for &'a Dims<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Deref for Dims<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Repr::Inline { len, items } => &items[..*len],
            Repr::Heap(items) => items,
        }
    }
}

impl<T> AsRef<[T]> for Dims<T> {
    #[inline]
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> DerefMut for Dims<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Repr::Inline { len, items } => &mut items[..*len],
            Repr::Heap(items) => items,
        }
    }
}

impl<T: PartialEq> PartialEq for Dims<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Dims<T> {}

impl<T: Hash> Hash for Dims<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Dims<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Converts an extent or stride to the protocols' `i64`.
#[inline]
pub(crate) fn signed(what: &str, axis: usize, number: i128) -> Result<i64> {
    i64::try_from(number).map_err(|_| too_great(what, axis, number))
}

#[cold]
fn too_great(what: &str, axis: usize, number: i128) -> Error {
    let allowed = "a number that fits a signed 64-bit integer";
    Error::new(ErrorKind::Overflow, format_args!("{what}[{axis}]"), number, allowed)
}

#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use super::*;

    #[test]
    fn short_and_long_lists_read_the_same() {
        for len in [0, 1, INLINE, INLINE + 1, MAX_NDIM] {
            let items: Vec<usize> = (10..10 + len).collect();
            let dims = Dims::from(&items[..]);
            assert_eq!(&*dims, &items[..]);
            assert_eq!(&*Dims::from_fn(len, |axis| items[axis]), &items[..]);
            assert_eq!(&*Dims::<usize>::zeroed(len), vec![0; len]);
            assert_eq!(items.iter().copied().collect::<Dims<_>>(), dims);
            assert!((&dims).into_iter().eq(&items));
            assert_eq!(hash(&dims), hash(&items));
        }
        assert_eq!(&*Dims::from([1_isize, -2]), &[1, -2]);
        assert_eq!(Dims::<usize>::default(), Dims::from([]));
    }

    fn hash(what: &impl Hash) -> u64 {
        let mut state = DefaultHasher::new();
        what.hash(&mut state);
        state.finish()
    }
}
