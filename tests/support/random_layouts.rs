//! Random shapes and strides over memory of a known size, and the places of their elements.

/// A generator with a fixed sequence for each seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % most as u64).expect("as small as `most`")
    }
}

/// The layout of an array within some memory.
#[derive(Clone, Debug)]
pub(crate) struct RandomLayout {
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    /// The offset of element \[0, …, 0\] and the number of elements in the memory.
    pub(crate) first: usize,
    pub(crate) len: usize,
}

impl RandomLayout {
    /// A permuted, padded, stepped, flipped or broadcast layout with up to eight axes and some thousand elements.
    pub(crate) fn new(random: &mut Random) -> Self {
        let ndim = random.below(9);
        let most = [1, 70, 40, 14, 8, 5, 4, 3, 3][ndim];
        let shape: Vec<usize> = (0..ndim).map(|_| 1 + random.below(most)).collect();
        let mut order: Vec<usize> = (0..ndim).collect();
        for at in (1..ndim).rev() {
            order.swap(at, random.below(at + 1));
        }
        if random.below(4) == 0 {
            order.sort_unstable_by(|left, right| right.cmp(left));
        }
        let plain = random.below(3) == 0;
        let (mut strides, mut reach, mut below) = (vec![0; ndim], 1, 0);
        for at in order {
            let kind = if plain { 9 } else { random.below(10) };
            let step = match kind {
                0 | 1 => 2 * reach,
                2 | 3 => reach + random.below(5),
                4 => reach.next_multiple_of(8),
                5 if ndim > 1 => 0,
                _ => reach,
            };
            let is_flipped = !plain && random.below(5) == 0;
            let signed = isize::try_from(step).expect("a small stride");
            strides[at] = if is_flipped { -signed } else { signed };
            if is_flipped {
                below += step * (shape[at] - 1);
            }
            reach = reach.max(step * shape[at]);
        }
        let above: usize =
            strides.iter().zip(&shape).map(|(stride, extent)| stride.unsigned_abs() * (extent - 1)).sum();
        let before = random.below(9);
        Self { shape, strides, first: before + below, len: before + above + 1 + random.below(3) }
    }

    /// The offsets of the elements in the memory, in row-major or in column-major order.
    pub(crate) fn offsets(&self, is_column_major: bool) -> Vec<usize> {
        let mut axes: Vec<_> = self.shape.iter().copied().zip(self.strides.iter().copied()).collect();
        if is_column_major {
            axes.reverse();
        }
        let mut offsets = vec![self.first];
        for (extent, stride) in axes {
            let steps = |first: usize| {
                (0..extent)
                    .map(move |at| first.wrapping_add_signed(stride * isize::try_from(at).expect("small")))
            };
            offsets = offsets.into_iter().flat_map(steps).collect();
        }
        offsets
    }
}
