//! Views of parts of a view, and views of the same elements under other indices.

use core::ops::{Bound, RangeBounds};

use crate::array::element::Element;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::RawView;
use crate::memory::host::{HostView, HostViewMut};

impl<const N: usize> RawView<N> {
    /// Returns a view of the same memory with other axes. Its first element is `offset` elements after that of `self`.
    fn with<T, const M: usize>(&self, shape: [usize; M], strides: [isize; M], offset: isize) -> RawView<M> {
        let Self { address, device, pending, uses, shared, .. } = *self;
        let address = if shape.contains(&0) {
            address
        } else {
            address.wrapping_add_signed(offset.wrapping_mul(size_of::<T>() as isize))
        };
        RawView { address, shape, strides, device, pending, uses, shared }
    }

    /// Returns the view with its axes in the given order.
    fn permuted(&self, axes: [usize; N]) -> Result<Self> {
        let mut seen = [false; N];
        for axis in axes {
            if axis >= N || core::mem::replace(&mut seen[axis], true) {
                let allowed = text!("each axis below {N} once");
                return Err(Error::new(ErrorKind::Rank, "axes", format_args!("{axes:?}"), allowed));
            }
        }
        let (shape, strides) = (axes.map(|axis| self.shape[axis]), axes.map(|axis| self.strides[axis]));
        Ok(Self { shape, strides, ..*self })
    }

    fn check_axis(axis: usize) -> Result<()> {
        if axis < N {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Rank, "axis", axis, text!("less than {N}, the number of axes")))
    }

    /// Returns every `step`-th element of a range of an axis. A negative step begins at the end of the range.
    fn sliced<T>(&self, axis: usize, range: impl RangeBounds<usize>, step: isize) -> Result<Self> {
        Self::check_axis(axis)?;
        let extent = self.shape[axis];
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => extent,
        };
        if start > end || end > extent {
            let allowed = text!("a range within 0..{extent}, the indices of the axis");
            return Err(Error::new(
                ErrorKind::IndexOutOfBounds,
                format_args!("index[{axis}]"),
                format_args!("{start}..{end}"),
                allowed,
            ));
        }
        if step == 0 {
            return Err(Error::new(ErrorKind::IndexOutOfBounds, "step", 0, "a step forwards or backwards"));
        }
        let len = (end - start).div_ceil(step.unsigned_abs());
        let first = if step > 0 || len == 0 { start } else { end - 1 };
        let (mut shape, mut strides) = (self.shape, self.strides);
        shape[axis] = len;
        if len > 1 {
            strides[axis] = strides[axis].wrapping_mul(step);
        }
        Ok(self.with::<T, N>(shape, strides, self.strides[axis].wrapping_mul(first as isize)))
    }

    /// Removes an axis and selects one of its indices.
    fn indexed<T, const M: usize>(&self, axis: usize, index: usize) -> Result<RawView<M>> {
        const { assert!(M + 1 == N, "the view of one index has one axis less than the view") };
        Self::check_axis(axis)?;
        if index >= self.shape[axis] {
            let allowed = text!("less than the extent {}", self.shape[axis]);
            return Err(Error::new(
                ErrorKind::IndexOutOfBounds,
                format_args!("index[{axis}]"),
                index,
                allowed,
            ));
        }
        let other = |at: usize| at + usize::from(at >= axis);
        let shape = core::array::from_fn(|at| self.shape[other(at)]);
        let strides = core::array::from_fn(|at| self.strides[other(at)]);
        Ok(self.with::<T, M>(shape, strides, self.strides[axis].wrapping_mul(index as isize)))
    }

    /// Returns the elements under other extents in C order, if that needs no copy.
    fn reshaped<T, const M: usize>(&self, shape: [usize; M]) -> Result<RawView<M>> {
        let layout = self.layout().reshape(&shape)?;
        let mut strides = [0; M];
        strides.copy_from_slice(layout.strides());
        Ok(self.with::<T, M>(shape, strides, 0))
    }

    /// Splits the view into the first `at` indices of the first axis and the others.
    pub(crate) fn split<T>(&self, at: usize) -> (Self, Self) {
        assert!(at <= self.shape[0], "{at} is beyond the first axis");
        let (mut head, mut tail) = (self.shape, self.shape);
        head[0] = at;
        tail[0] -= at;
        let offset = self.strides[0].wrapping_mul(at as isize);
        (self.with::<T, N>(head, self.strides, 0), self.with::<T, N>(tail, self.strides, offset))
    }
}

macro_rules! subviews {
    ($View:ident, $self:ident: $Receiver:ty) => {
        impl<'a, T: Element, const N: usize> $View<'a, T, N> {
            /// Returns the view with its axes in reverse order, as NumPy's `.T`.
            #[must_use]
            pub fn t($self: $Receiver) -> Self {
                let mut raw = $self.raw;
                raw.shape.reverse();
                raw.strides.reverse();
                $self.over(raw)
            }

            /// Returns the view with its axes in another order, as NumPy's `transpose`: axis `i` is axis `axes[i]` of
            /// this view.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::Rank`] unless `axes` contains each axis once.
            pub fn transpose($self: $Receiver, axes: [usize; N]) -> Result<Self> {
                let raw = $self.raw.permuted(axes)?;
                Ok($self.over(raw))
            }

            /// Selects every `step`-th index of a range of an axis. A negative step begins with the last index of the
            /// range.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::IndexOutOfBounds`] for a range beyond the axis and for a step of 0; [`ErrorKind::Rank`] if
            /// the axis does not exist.
            pub fn slice_axis(
                $self: $Receiver,
                axis: usize,
                range: impl RangeBounds<usize>,
                step: isize,
            ) -> Result<Self> {
                let raw = $self.raw.sliced::<T>(axis, range, step)?;
                Ok($self.over(raw))
            }

            /// Selects one index of an axis. The result has `M` axes, one less than this view.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::IndexOutOfBounds`] outside the axis; [`ErrorKind::Rank`] if the axis does not exist. Any
            /// other `M` is a compile error.
            pub fn index_axis<const M: usize>(
                $self: $Receiver,
                axis: usize,
                index: usize,
            ) -> Result<$View<'a, T, M>> {
                let raw = $self.raw.indexed::<T, M>(axis, index)?;
                Ok($self.over(raw))
            }

            /// Returns the same elements, in row-major order, under another shape.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::Shape`] if the number of elements differs; [`ErrorKind::Strides`] if the shape requires a
            /// copy.
            pub fn reshape<const M: usize>($self: $Receiver, shape: [usize; M]) -> Result<$View<'a, T, M>> {
                let raw = $self.raw.reshaped::<T, M>(shape)?;
                Ok($self.over(raw))
            }

            /// Splits the view in two along the first axis. The parts share no element, so two threads may use them.
            ///
            /// # Panics
            ///
            /// Panics if there is no first axis or if `at` is beyond its extent.
            #[must_use]
            pub fn split_at($self: $Receiver, at: usize) -> (Self, Self) {
                let (head, tail) = $self.raw.split::<T>(at);
                ($self.over(head), $self.over(tail))
            }
        }
    };
}

subviews!(HostView, self: &Self);

subviews!(HostViewMut, self: Self);
