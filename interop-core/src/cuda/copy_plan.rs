//! The plan of a copy of a strided array into compact memory, and the launches of the copy kernel that it takes.

use interop_kernel::copy::{self as kernel, AXES, CopyPart, UNITS};

use crate::array::layout::Layout;
use crate::array::layout::axes::{Axis, Offsets, Steps, merge, sum};
use crate::array::layout::order::Order;

/// The steps of the target and of the source along an [`Axis`], in bytes.
pub(crate) const TO: usize = 0;
pub(crate) const FROM: usize = 1;

/// A copy into compact memory, with as few axes as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    /// The number of bytes that are contiguous in the source and in the target; 0 for no elements.
    pub(crate) run: usize,
    /// The axes over these runs. The fastest axis of the target comes first.
    pub(crate) axes: Vec<Axis>,
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
        let (mut merged, mut to) = (Vec::new(), item as isize);
        for (extent, stride) in axes {
            if extent == 0 {
                return Self { run: 0, axes: Vec::new() };
            }
            if extent != 1 {
                merged.push(Axis { extent, steps: [to, stride * item as isize] });
                to = to.wrapping_mul(extent as isize);
            }
        }
        merged.reverse();
        let left = merge(&mut merged);
        merged.truncate(left);
        let is_run = |axis: &Axis| axis.steps == [item as isize; 2];
        let run = merged.last().filter(|axis| is_run(axis)).map_or(1, |axis| axis.extent);
        merged.retain(|axis| !is_run(axis));
        merged.reverse();
        Self { run: run * item, axes: merged }
    }

    /// Returns the size of the copy in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.axes.iter().fold(self.run, |bytes, axis| bytes * axis.extent)
    }
}

/// Returns the offsets in the target and in the source of every index of the axes, of which the first varies fastest.
pub(crate) fn offsets(axes: &[Axis]) -> Offsets<Vec<Axis>> {
    Offsets::new(axes.iter().rev().copied().collect(), [0; 2])
}

/// Calls `see` with consecutive parts of a copy, of at most this many units and axes each. The arguments are the offsets of
/// the part in the target and in the source, and its axes.
pub(crate) fn each_part<E>(
    axes: &[Axis],
    (most_units, most_axes): (usize, usize),
    mut see: impl FnMut(Steps, &[Axis]) -> Result<(), E>,
) -> Result<(), E> {
    let most_axes = axes.len().min(most_axes);
    let (mut inner, mut units) = (0, 1_usize);
    while inner < most_axes && units.saturating_mul(axes[inner].extent) <= most_units {
        units *= axes[inner].extent;
        inner += 1;
    }
    let Some(cut) = axes[..most_axes].get(inner) else {
        return offsets(&axes[inner..]).try_for_each(|offset| see(offset, &axes[..inner]));
    };
    let (mut part, piece) = (axes[..=inner].to_vec(), piece_of(most_units / units));
    offsets(&axes[inner + 1..]).try_for_each(|offset| {
        (0..cut.extent).step_by(piece).try_for_each(|start| {
            part[inner].extent = piece.min(cut.extent - start);
            see(sum(offset, cut.to(start)), &part)
        })
    })
}

/// The number of threads in a block.
pub(crate) const THREADS: u32 = 256;

/// The size of the largest unit in bytes.
const MOST_UNIT: usize = 16;

/// The maximum number of units in a launch, because the kernel counts them in 31 bits.
const MOST_UNITS: usize = 0x7FFF_FFFF;

/// The number of bytes that a device reads at once.
const SECTOR: usize = 32;

/// One launch: the offsets of its first unit from the first unit of the array, in bytes, and the kernel's argument.
#[derive(Debug)]
pub(crate) struct CopyLaunch {
    pub(crate) offset: Steps,
    pub(crate) blocks: u32,
    pub(crate) part: CopyPart,
}

/// All launches for a plan.
#[derive(Debug)]
pub(crate) struct CopyLaunches {
    /// The size of a unit in bytes: 1, 2, 4, 8 or 16.
    pub(crate) unit: usize,
    /// The address of the first unit of the source.
    from: usize,
    /// Whether the units of a thread lie side by side in the source; else those of neighbouring threads do.
    is_along_source: bool,
    /// The fastest axis of the target comes first, then the one along which a thread copies, then the others.
    axes: Vec<Axis>,
    most_units: usize,
}

impl CopyLaunches {
    /// Creates the launches for a plan with elements, from one address to another.
    pub(crate) fn new(plan: &CopyPlan, from: usize, to: usize) -> Self {
        let strides = plan.axes.iter().map(|axis| axis.steps[FROM].unsigned_abs());
        let bits = strides.fold(plan.run | from | to | MOST_UNIT, |bits, stride| bits | stride);
        let unit = 1 << bits.trailing_zeros();
        let mut axes = plan.axes.clone();
        if plan.run > unit || axes.is_empty() {
            let step = unit as isize;
            axes.insert(0, Axis { extent: plan.run / unit, steps: [step; 2] });
        }
        // Threads that are neighbours write whole sectors of the target, so each of them can read one of the source.
        let along_source = neighbours_of_source(&axes).filter(|_| axes[0].extent * unit >= SECTOR);
        let longest = (0..axes.len()).max_by_key(|at| axes[*at].extent).unwrap_or_default();
        match along_source.unwrap_or(longest) {
            0 => axes.insert(0, Axis::ONCE),
            along => axes[1..=along].rotate_right(1),
        }
        Self { unit, from, is_along_source: along_source.is_some(), axes, most_units: MOST_UNITS }
    }

    /// Calls `launch` for each launch of the copy.
    pub(crate) fn each<E>(&self, mut launch: impl FnMut(&CopyLaunch) -> Result<(), E>) -> Result<(), E> {
        each_part(&self.axes, (self.most_units, AXES), |offset, axes| launch(&self.launch(axes, offset)))
    }

    fn launch(&self, axes: &[Axis], offset: Steps) -> CopyLaunch {
        let argument =
            |extent, axis: &Axis| kernel::Axis::new(extent, axis.steps[FROM] as i64, axis.steps[TO] as i64);
        let mut part = CopyPart { rank: small(axes.len()).max(2), extent: 1, ..CopyPart::default() };
        // A piece of an axis that is longer than a launch has no second axis.
        part.axes[1] = argument(1, &Axis::ONCE);
        for (to, axis) in part.axes.iter_mut().zip(axes) {
            *to = argument(small(axis.extent), axis);
        }
        if let Some(along) = axes.get(1) {
            part.extent = small(along.extent);
            let parts = part.extent.div_ceil(UNITS);
            part.axes[1] = argument(parts, along);
            (part.part_step, part.unit_step) = if self.is_along_source { (UNITS, 1) } else { (1, parts) };
            part.is_packed = u32::from(self.is_packed(axes, offset[FROM]));
        }
        let threads = part.axes[..part.rank as usize].iter().map(|axis| axis.extent.value).product();
        part.threads = threads;
        CopyLaunch { offset, blocks: threads.div_ceil(THREADS), part }
    }

    /// Whether each thread of a launch reads eight units side by side, which are aligned together, up to 16 bytes.
    fn is_packed(&self, axes: &[Axis], from: isize) -> bool {
        let pack = (UNITS as usize * self.unit).min(MOST_UNIT);
        let (along, others) = (axes[1], axes.iter().enumerate().filter(|(at, _)| *at != 1));
        let starts = self.from.wrapping_add_signed(from);
        let bits = others.fold(starts, |bits, (_, axis)| bits | axis.steps[FROM].unsigned_abs());
        self.is_along_source
            && along.steps[FROM] == self.unit as isize
            && along.extent % UNITS as usize == 0
            && bits % pack == 0
    }
}

/// Returns the axis along which the units of the source lie side by side, if it is not the first axis of the target.
fn neighbours_of_source(axes: &[Axis]) -> Option<usize> {
    let distance = |axis: &Axis| axis.steps[FROM].unsigned_abs();
    let steps = axes.iter().enumerate().filter(|(_, axis)| axis.steps[FROM] != 0);
    let (at, nearest) = steps.min_by_key(|(_, axis)| distance(axis))?;
    (at != 0 && distance(nearest) < distance(&axes[0]) && distance(nearest) < SECTOR).then_some(at)
}

/// Returns the length of the pieces of an axis: a multiple of 64 if possible, so that neighbours stay together.
fn piece_of(most: usize) -> usize {
    const TILE: usize = 64;
    if most > TILE { most - most % TILE } else { most.max(1) }
}

/// Converts a number that is bounded by the limit of a launch.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| unreachable!("a launch has fewer than 2^31 units"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: &[usize], strides: &[isize], order: Order) -> (usize, Vec<(usize, isize, isize)>) {
        let plan = CopyPlan::compact(&Layout::strided(shape, strides).unwrap(), order, 4);
        (plan.run, plan.axes.iter().map(|axis| (axis.extent, axis.steps[FROM], axis.steps[TO])).collect())
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

#[cfg(test)]
mod part_tests {
    use super::*;

    /// The offsets in the source and in the target, and the extents, of the parts of an array with these extents and strides.
    /// The fastest axis comes first.
    fn parts(shape: &[(usize, isize)], most: usize) -> Vec<(isize, isize, Vec<usize>)> {
        let (mut found, mut axes, mut to) = (Vec::new(), Vec::new(), 1);
        for (extent, from) in shape {
            axes.push(Axis { extent: *extent, steps: [to, *from] });
            to *= *extent as isize;
        }
        let see = |[to, from]: Steps, part: &[Axis]| {
            found.push((from, to, part.iter().map(|axis| axis.extent).collect()));
            Ok::<_, ()>(())
        };
        each_part(&axes, (most, usize::MAX), see).unwrap();
        found
    }

    #[test]
    fn parts_follow_one_another_in_the_target() {
        assert_eq!(parts(&[(3, 2), (2, 1)], 6), [(0, 0, vec![3, 2])], "all of it");
        assert_eq!(
            parts(&[(3, 2), (5, 10)], 6),
            [(0, 0, vec![3, 2]), (20, 6, vec![3, 2]), (40, 12, vec![3, 1])]
        );
        assert_eq!(
            parts(&[(3, -1), (2, 30)], 2),
            [(0, 0, vec![2]), (-2, 2, vec![1]), (30, 3, vec![2]), (28, 5, vec![1])]
        );
        assert_eq!(
            parts(&[(3, 1), (2, 10), (2, 100)], 5),
            [(0, 0, vec![3, 1]), (10, 3, vec![3, 1]), (100, 6, vec![3, 1]), (110, 9, vec![3, 1])]
        );
        assert_eq!(parts(&[], 1), [(0, 0, vec![])], "a single element");
    }
}

#[cfg(test)]
mod copy_launch_tests {
    use super::*;
    use crate::array::layout::Layout;
    use crate::array::layout::order::Order;

    /// Copies with the kernel, on the CPU.
    fn copy(launches: &CopyLaunches, launch: &CopyLaunch, to: &mut [u8], from: &[u8], first: usize) {
        let to = to.as_mut_ptr().wrapping_offset(launch.offset[TO]);
        let from = from.as_ptr().wrapping_add(first).wrapping_offset(launch.offset[FROM]);
        let copy = match launches.unit {
            1 => kernel::copy::<u8, 8>,
            2 => kernel::copy::<u16, 8>,
            4 => kernel::copy::<u32, 4>,
            8 => kernel::copy::<u64, 2>,
            _ => kernel::copy::<(u64, u64), 1>,
        };
        for number in 0..u64::from(launch.blocks) * u64::from(THREADS) {
            // SAFETY: the test compares all bytes; Miri sees an access outside of them.
            unsafe { copy(number, to, from, &launch.part) };
        }
    }

    /// Checks that the launches move every byte of the elements to its place exactly once.
    fn check(
        shape: &[usize],
        strides: &[isize],
        order: Order,
        item: usize,
        most_units: usize,
    ) -> CopyLaunches {
        let layout = Layout::strided(shape, strides).unwrap();
        let plan = CopyPlan::compact(&layout, order, item);
        let offsets: Vec<isize> = layout.walk(order).map(|offset| offset * item as isize).collect();
        let low = offsets.iter().min().unwrap().unsigned_abs().next_multiple_of(16);
        let bytes = low + offsets.iter().max().unwrap().unsigned_abs() + item;
        let content: Vec<u128> = (1..=bytes.div_ceil(16) as u128)
            .map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
            .collect();
        let mut target = vec![0_u128; (offsets.len() * item).div_ceil(16)];
        // SAFETY: any bits are bytes.
        let (_, from, _) = unsafe { content.align_to::<u8>() };
        // SAFETY: as above.
        let (_, to, _) = unsafe { target.align_to_mut::<u8>() };
        let mut launches = CopyLaunches::new(&plan, from.as_ptr().addr() + low, to.as_ptr().addr());
        launches.most_units = most_units;
        let mut launch = |launch: &CopyLaunch| {
            assert!(launch.part.threads as usize <= most_units);
            copy(&launches, launch, to, from, low);
            Ok::<_, ()>(())
        };
        launches.each(&mut launch).unwrap();
        let element = |offset: &isize| &from[low.wrapping_add_signed(*offset)..][..item];
        let expected = offsets.iter().flat_map(element);
        assert!(
            expected.eq(&to[..offsets.len() * item]),
            "{shape:?} {strides:?} {order:?} {item} {launches:?}"
        );
        launches
    }

    #[test]
    fn units_are_as_wide_as_everything_is_aligned() {
        let unit = |shape: &[usize], strides: &[isize], item, from| {
            let layout = Layout::strided(shape, strides).unwrap();
            let launches = CopyLaunches::new(&CopyPlan::compact(&layout, Order::C, item), from, 0);
            (launches.unit, launches.is_along_source)
        };
        assert_eq!(unit(&[5, 8], &[12, 1], 4, 0), (16, false));
        assert_eq!(unit(&[5, 8], &[12, 1], 4, 4), (4, false), "a source that is less aligned");
        assert_eq!(unit(&[5, 8], &[9, 1], 4, 0), (4, false), "rows that are less aligned");
        assert_eq!(unit(&[5], &[2], 12, 0), (4, false), "elements of 12 bytes");
        assert_eq!(unit(&[5], &[2], 3, 0), (1, false));
        assert_eq!(unit(&[5], &[2], 32, 0), (16, false));
        assert_eq!(unit(&[40, 50], &[1, 40], 4, 0), (4, true), "transposed");
        assert_eq!(unit(&[40, 50], &[-1, 40], 2, 0), (2, true), "transposed and backwards");
        assert_eq!(unit(&[40, 50, 4], &[4, 160, 1], 4, 0), (16, true), "pixels that stay together");
        assert_eq!(unit(&[40, 50], &[100, 2], 4, 0), (4, false), "every second column");
        assert_eq!(unit(&[40, 50], &[1, 0], 4, 0), (4, false), "broadcast");
    }

    #[test]
    fn every_unit_is_moved_once() {
        let cases: [(&[usize], &[isize]); 16] = [
            (&[], &[]),
            (&[7], &[-3]),
            (&[5, 6], &[6, 1]),
            (&[70, 90], &[1, 70]),
            (&[3, 130], &[1, 3]),
            (&[130, 3], &[1, 130]),
            (&[5, 6, 7], &[1, 5, 30]),
            (&[5, 6, 7], &[7, 35, 1]),
            (&[5, 6, 7, 8], &[1, 40, 5, 240]),
            (&[2, 3, 4, 5], &[60, -20, 5, -1]),
            (&[4, 0, 3], &[1, 1, 1]),
            (&[4, 5], &[0, 1]),
            (&[4, 5], &[1, 0]),
            (&[4, 5, 6], &[0, 1, 5]),
            (&[3, 3, 3], &[1, 1, 1]),
            (&[2, 2, 2, 2, 2, 2, 2, 2, 2], &[1, 4, 16, 64, 256, 1024, 4096, 16384, 65536]),
        ];
        for (shape, strides) in cases {
            for (order, item) in [(Order::C, 4), (Order::F, 4), (Order::C, 1), (Order::F, 6), (Order::C, 16)]
            {
                if shape.contains(&0) {
                    continue;
                }
                for most_units in [MOST_UNITS, 1000, 64, 7] {
                    check(shape, strides, order, item, most_units);
                }
            }
        }
    }
}
