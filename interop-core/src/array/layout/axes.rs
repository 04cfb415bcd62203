//! Extents and strides of a layout, stored inline for up to five axes.

use crate::array::dims::INLINE;

/// One extent and one stride for each axis. One enum holds both lists, so that one branch finds them.
#[derive(Clone)]
pub(crate) enum Axes {
    /// `ndim` is a word for the reason given at `Dims`.
    Inline {
        ndim: usize,
        shape: [usize; INLINE],
        strides: [isize; INLINE],
    },
    Heap {
        shape: Box<[usize]>,
        strides: Box<[isize]>,
    },
}

impl Axes {
    /// A layout without axes.
    pub(crate) const NONE: Self = Self::Inline { ndim: 0, shape: [0; INLINE], strides: [0; INLINE] };

    /// Creates `ndim` axes of zeros and lets `fill` write over them.
    #[inline]
    pub(crate) fn filled(ndim: usize, fill: impl FnOnce(&mut [usize], &mut [isize])) -> Self {
        if ndim <= INLINE {
            let (mut shape, mut strides) = ([0; INLINE], [0; INLINE]);
            fill(&mut shape[..ndim], &mut strides[..ndim]);
            return Self::Inline { ndim, shape, strides };
        }
        let (mut shape, mut strides) = (vec![0; ndim].into_boxed_slice(), vec![0; ndim].into_boxed_slice());
        fill(&mut shape, &mut strides);
        Self::Heap { shape, strides }
    }

    #[inline]
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::Inline { ndim, shape, .. } => &shape[..*ndim],
            Self::Heap { shape, .. } => shape,
        }
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[isize] {
        match self {
            Self::Inline { ndim, strides, .. } => &strides[..*ndim],
            Self::Heap { strides, .. } => strides,
        }
    }
}
