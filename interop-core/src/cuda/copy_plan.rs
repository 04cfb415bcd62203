//! The plan of a copy of a strided array into compact memory: runs of bytes, and the axes over them.

use crate::array::layout::Layout;
use crate::array::layout::order::Order;

/// An axis of a copy, with its strides in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyAxis {
    pub(crate) extent: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

/// A copy into compact memory, with as few axes as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    /// The number of bytes that are contiguous in the source and in the target; 0 for no elements.
    pub(crate) run: usize,
    /// The axes over these runs. The fastest axis of the target comes first.
    pub(crate) axes: Vec<CopyAxis>,
}

impl CopyPlan {
    /// Plans a copy of elements of `item` bytes into memory that is compact in `order`.
    pub(crate) fn compact(layout: &Layout, order: Order, item: usize) -> Self {
        let axes = layout.shape().iter().copied().zip(layout.strides().iter().copied());
        match order {
            Order::C => Self::of(axes.rev(), item),
            Order::F => Self::of(axes, item),
        }
    }

    /// Plans a copy over axes of these extents and strides, for elements of `item` bytes. The first axis varies fastest
    /// in the target.
    pub(crate) fn of(axes: impl Iterator<Item = (usize, isize)>, item: usize) -> Self {
        let mut plan = Self { run: item, axes: Vec::new() };
        for (extent, stride) in axes {
            if extent == 0 {
                return Self { run: 0, axes: Vec::new() };
            }
            if extent != 1 {
                plan.add(extent, stride * item as isize);
            }
        }
        let mut to = plan.run as isize;
        for axis in &mut plan.axes {
            axis.to = to;
            to = to.wrapping_mul(axis.extent as isize);
        }
        plan
    }

    /// Adds an axis outside of all others, or merges it into the last one.
    fn add(&mut self, extent: usize, from: isize) {
        match self.axes.last_mut() {
            None if from == self.run as isize => self.run *= extent,
            Some(last) if Some(from) == last.from.checked_mul(last.extent as isize) => {
                last.extent *= extent;
            }
            _ => self.axes.push(CopyAxis { extent, from, to: 0 }),
        }
    }

    /// Returns the size of the copy in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.axes.iter().fold(self.run, |bytes, axis| bytes * axis.extent)
    }
}

/// Calls `visit_one` for every index of the axes, with its offsets in the source and in the target, in bytes.
pub(crate) fn visit<E>(
    axes: &[CopyAxis],
    (from, to): (isize, isize),
    visit_one: &mut dyn FnMut(isize, isize) -> Result<(), E>,
) -> Result<(), E> {
    let Some((outermost, inner)) = axes.split_last() else { return visit_one(from, to) };
    for at in 0..outermost.extent as isize {
        visit(inner, (from + at * outermost.from, to + at * outermost.to), visit_one)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: &[usize], strides: &[isize], order: Order) -> (usize, Vec<(usize, isize, isize)>) {
        let plan = CopyPlan::compact(&Layout::strided(shape, strides).unwrap(), order, 4);
        (plan.run, plan.axes.iter().map(|axis| (axis.extent, axis.from, axis.to)).collect())
    }

    #[test]
    fn axes_are_merged() {
        assert_eq!(plan(&[2, 3], &[3, 1], Order::C), (24, vec![]), "compact");
        assert_eq!(plan(&[2, 3], &[8, 1], Order::C), (12, vec![(2, 32, 12)]), "padded rows");
        assert_eq!(plan(&[2, 1, 3], &[3, 99, 1], Order::C), (24, vec![]), "an axis of extent 1");
        assert_eq!(plan(&[2, 3], &[-3, -1], Order::C), (4, vec![(6, -4, 4)]), "backwards");
        assert_eq!(plan(&[2, 2], &[0, 1], Order::C), (8, vec![(2, 0, 8)]), "broadcast");
        assert_eq!(plan(&[2, 3], &[1, 2], Order::F), (24, vec![]), "compact, the other order");
        assert_eq!(plan(&[2, 3], &[1, 2], Order::C), (4, vec![(3, 8, 4), (2, 4, 12)]), "transposed");
        assert_eq!(plan(&[4, 3, 5], &[30, 10, 2], Order::C), (4, vec![(60, 8, 4)]), "every second element");
        assert_eq!(plan(&[], &[], Order::C), (4, vec![]), "a single element");
        assert_eq!(plan(&[3, 0], &[1, 1], Order::C), (0, vec![]), "no elements");
    }
}
