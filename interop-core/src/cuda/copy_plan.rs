//! How the elements of a strided array get into compact memory: by one copy, by rows, or by a kernel.

use crate::array::layout::Layout;
use crate::array::layout::order::Order;

/// The least bytes of a row for a pitched copy of the driver's. Shorter rows leave its copies far behind the kernel.
const LEAST_ROW: usize = 1024;

/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device.
const MAX_PITCH: usize = 0x7FFF_FFFF;

/// An axis of a copy, with its strides in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyAxis {
    pub(crate) extent: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

/// A copy into compact memory, in as few axes as there can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    /// The bytes that lie side by side in the source and in the target; 0 for no elements.
    pub(crate) run: usize,
    /// The axes over these runs, the fastest of the target first.
    pub(crate) axes: Vec<CopyAxis>,
}

/// What copies best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMethod {
    /// One copy of bytes.
    Bytes,
    /// Rows at a distance of `pitch` bytes (`cuMemcpy2DAsync`).
    Rows { pitch: usize, rows: usize },
    /// Planes of rows, at a distance of `height` pitches (`cuMemcpy3DAsync`).
    Planes { pitch: usize, rows: usize, height: usize, planes: usize },
    /// The copy kernel.
    Kernel,
}

impl CopyPlan {
    /// A copy of elements of `item` bytes, compact in `order`.
    pub(crate) fn compact(layout: &Layout, order: Order, item: usize) -> Self {
        let axes = layout.shape().iter().copied().zip(layout.strides().iter().copied());
        match order {
            Order::C => Self::of(axes.rev(), item),
            Order::F => Self::of(axes, item),
        }
    }

    /// A copy over axes of these extents and strides, in elements of `item` bytes. The first varies fastest in the target.
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

    /// Adds an axis outside of all others, or continues the last one by it.
    fn add(&mut self, extent: usize, from: isize) {
        match self.axes.last_mut() {
            None if from == self.run as isize => self.run *= extent,
            Some(last) if Some(from) == last.from.checked_mul(last.extent as isize) => {
                last.extent *= extent;
            }
            _ => self.axes.push(CopyAxis { extent, from, to: 0 }),
        }
    }

    /// The bytes of the copy.
    pub(crate) fn bytes(&self) -> usize {
        self.axes.iter().fold(self.run, |bytes, axis| bytes * axis.extent)
    }

    /// What copies best on one device.
    pub(crate) fn method(&self) -> CopyMethod {
        let pitch_of = |axis: &CopyAxis| {
            let pitch = usize::try_from(axis.from).ok()?;
            (LEAST_ROW <= self.run && self.run <= pitch && pitch <= MAX_PITCH).then_some(pitch)
        };
        match self.axes.as_slice() {
            [] => CopyMethod::Bytes,
            [rows] => match pitch_of(rows) {
                Some(pitch) => CopyMethod::Rows { pitch, rows: rows.extent },
                None => CopyMethod::Kernel,
            },
            [rows, planes] => match (pitch_of(rows), usize::try_from(planes.from)) {
                (Some(pitch), Ok(plane)) if plane % pitch == 0 && rows.extent <= plane / pitch => {
                    let height = plane / pitch;
                    CopyMethod::Planes { pitch, rows: rows.extent, height, planes: planes.extent }
                }
                _ => CopyMethod::Kernel,
            },
            _ => CopyMethod::Kernel,
        }
    }
}

/// Calls `visit` with the offsets of every index of some axes in the source and in the target, in bytes.
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

    fn method(shape: &[usize], strides: &[isize]) -> CopyMethod {
        CopyPlan::compact(&Layout::strided(shape, strides).unwrap(), Order::C, 4).method()
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

    #[test]
    fn rows_that_are_long_enough_are_pitched_copies() {
        assert_eq!(method(&[7, 256], &[256, 1]), CopyMethod::Bytes);
        assert_eq!(method(&[7, 256], &[300, 1]), CopyMethod::Rows { pitch: 1200, rows: 7 });
        assert_eq!(method(&[7, 255], &[300, 1]), CopyMethod::Kernel, "short rows");
        assert_eq!(method(&[7, 256], &[-300, 1]), CopyMethod::Kernel, "backwards");
        assert_eq!(method(&[7, 256], &[0, 1]), CopyMethod::Kernel, "broadcast");
        assert_eq!(method(&[7, 256], &[100, 1]), CopyMethod::Kernel, "overlapping rows");
        assert_eq!(method(&[2, 256], &[1 << 29, 1]), CopyMethod::Kernel, "a pitch of 2 GiB");
        let planes = CopyMethod::Planes { pitch: 1200, rows: 7, height: 9, planes: 3 };
        assert_eq!(method(&[3, 7, 256], &[2700, 300, 1]), planes);
        assert_eq!(method(&[3, 7, 256], &[2701, 300, 1]), CopyMethod::Kernel, "no multiple of the pitch");
        assert_eq!(method(&[3, 7, 256], &[1800, 300, 1]), CopyMethod::Kernel, "overlapping planes");
        assert_eq!(method(&[3, 7, 256], &[-2700, 300, 1]), CopyMethod::Kernel, "backwards");
    }
}
