//! Views of parts of a view, and views of the same elements under other indices.

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

    fn check_axis(axis: usize) -> Result<()> {
        if axis < N {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Rank, "axis", axis, text!("less than {N}, the number of axes")))
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
