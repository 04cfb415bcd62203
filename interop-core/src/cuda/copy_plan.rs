//! The plan of a copy of a strided array into compact memory, and the launches of the copy kernel that it takes.

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

/// The number of threads in a block. This and the next three constants are as in the kernel's source.
pub(crate) const THREADS: u32 = 256;

const UNITS_OF_THREAD: usize = 4;

const MOST_AXES: usize = 6;

const TILE_BYTES: usize = 16384;

/// A tile has at least four units along an axis.
const LEAST_LOG: u32 = 2;

/// The size of the largest unit in bytes.
const MOST_UNIT: usize = 16;

/// The maximum number of units in a launch, because the kernel counts them in 31 bits.
const MOST_UNITS: usize = 0x7FFF_FFFF;

/// From this distance of neighbouring units in the source on, in bytes, a tile reads as many sectors as the strided
/// kernel.
const FARTHEST_NEIGHBOUR: usize = 64;

/// The kernel's struct `Axis`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AxisArgument {
    extent: u32,
    multiplier: u32,
    shift: u32,
    unused: u32,
    from: i64,
    to: i64,
}

/// The kernel's struct `Arguments`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct CopyArguments {
    count: u32,
    rank: u32,
    log_across: u32,
    log_down: u32,
    tiles: [AxisArgument; 2],
    axes: [AxisArgument; MOST_AXES],
}

/// One launch: the offsets of its first unit from the first unit of the array, in bytes, and the kernel's arguments.
#[derive(Debug)]
pub(crate) struct CopyLaunch {
    pub(crate) from: isize,
    pub(crate) to: isize,
    pub(crate) blocks: u32,
    pub(crate) arguments: CopyArguments,
}

/// All launches for a plan.
#[derive(Debug)]
pub(crate) struct CopyLaunches {
    /// The number of bytes that a thread moves at once: 1, 2, 4, 8 or 16.
    pub(crate) unit: usize,
    /// Whether the kernel copies tiles through shared memory.
    pub(crate) is_tiled: bool,
    /// With tiles, the fastest axis of the target comes first, then the fastest axis of the source, then the others.
    axes: Vec<CopyAxis>,
    most_units: usize,
}

impl CopyLaunches {
    /// Creates the launches for a plan with elements, from one address to another.
    pub(crate) fn of(plan: &CopyPlan, from: usize, to: usize) -> Self {
        let strides = plan.axes.iter().map(|axis| axis.from.unsigned_abs());
        let bits = strides.fold(plan.run | from | to | MOST_UNIT, |bits, stride| bits | stride);
        let unit = 1 << bits.trailing_zeros();
        let mut axes = plan.axes.clone();
        if plan.run > unit || axes.is_empty() {
            let step = unit as isize;
            axes.insert(0, CopyAxis { extent: plan.run / unit, from: step, to: step });
        }
        let neighbours = neighbours_of_source(&axes);
        if let Some(down) = neighbours {
            axes[1..=down].rotate_right(1);
        }
        Self { unit, is_tiled: neighbours.is_some(), axes, most_units: MOST_UNITS }
    }

    /// Calls `launch` for each launch of the copy.
    pub(crate) fn each<E>(&self, mut launch: impl FnMut(&CopyLaunch) -> Result<(), E>) -> Result<(), E> {
        let (mut inner, mut units) = (0, 1_usize);
        while inner < self.axes.len().min(MOST_AXES) {
            match units.checked_mul(self.axes[inner].extent) {
                Some(product) if product <= self.most_units => units = product,
                _ => break,
            }
            inner += 1;
        }
        let is_cut = inner < self.axes.len().min(MOST_AXES);
        let outer = self.axes.get(inner + usize::from(is_cut)..).unwrap_or_default();
        visit(outer, (0, 0), &mut |from, to| {
            if !is_cut {
                return launch(&self.launch(&self.axes[..inner], from, to));
            }
            let mut axes = self.axes[..=inner].to_vec();
            let (cut, piece) = (self.axes[inner], piece_of(self.most_units / units));
            for start in (0..cut.extent).step_by(piece) {
                axes[inner].extent = piece.min(cut.extent - start);
                let at = start as isize;
                launch(&self.launch(&axes, from + at * cut.from, to + at * cut.to))?;
            }
            Ok(())
        })
    }

    fn launch(&self, axes: &[CopyAxis], from: isize, to: isize) -> CopyLaunch {
        let mut arguments = CopyArguments::default();
        for (argument, axis) in arguments.axes.iter_mut().zip(axes) {
            *argument = AxisArgument { from: axis.from as i64, to: axis.to as i64, ..divisor(axis.extent) };
        }
        let units: usize = axes.iter().map(|axis| axis.extent).product();
        (arguments.count, arguments.rank) = (small(units), small(axes.len()));
        let blocks = if self.is_tiled {
            self.tile(axes, &mut arguments)
        } else {
            let packed = (4 / self.unit).max(1);
            units.div_ceil(THREADS as usize * UNITS_OF_THREAD * packed)
        };
        CopyLaunch { from, to, blocks: small(blocks), arguments }
    }

    /// Sets the arguments about tiles, and returns the number of tiles.
    fn tile(&self, axes: &[CopyAxis], arguments: &mut CopyArguments) -> usize {
        let extent = |at: usize| axes.get(at).map_or(1, |axis: &CopyAxis| axis.extent);
        if axes.len() < 2 {
            // A piece of an axis that is longer than a launch has no second axis.
            (arguments.rank, arguments.axes[1]) = (2, divisor(1));
        }
        let log = (TILE_BYTES / self.unit.max(4)).ilog2();
        let enough = |extent: usize| extent.next_power_of_two().ilog2().max(LEAST_LOG);
        let (across, down) = (enough(extent(0)), enough(extent(1)));
        let log_across = if across < log / 2 {
            across
        } else {
            // The other axis uses what a short axis leaves free.
            (log - down.min(log - log / 2)).min(log - LEAST_LOG)
        };
        (arguments.log_across, arguments.log_down) = (log_across, log - log_across);
        let tiles = [(0, log_across), (1, log - log_across)].map(|(at, log)| extent(at).div_ceil(1 << log));
        arguments.tiles = tiles.map(divisor);
        let batches: usize = axes.iter().skip(2).map(|axis| axis.extent).product();
        tiles[0] * tiles[1] * batches
    }
}

/// Returns the axis along which the units of the source lie side by side, if it is not the first axis of the target.
fn neighbours_of_source(axes: &[CopyAxis]) -> Option<usize> {
    let distance = |axis: &CopyAxis| axis.from.unsigned_abs();
    let steps = axes.iter().enumerate().filter(|(_, axis)| axis.from != 0);
    let (at, nearest) = steps.min_by_key(|(_, axis)| distance(axis))?;
    let is_nearer = distance(nearest) < distance(&axes[0]) && distance(nearest) < FARTHEST_NEIGHBOUR;
    (at != 0 && is_nearer).then_some(at)
}

/// Returns the length of the pieces of an axis, so that tiles are not cut if possible.
fn piece_of(most: usize) -> usize {
    const TILE: usize = 64;
    if most > TILE { most - most % TILE } else { most.max(1) }
}

/// Returns the numbers with which the kernel divides numbers below 2^31 by an extent without a division.
fn divisor(extent: usize) -> AxisArgument {
    let shift = extent.next_power_of_two().ilog2();
    let rest = (1_u64 << shift) - extent as u64;
    let multiplier = (rest << 32) / extent as u64 + 1;
    let multiplier =
        u32::try_from(multiplier).unwrap_or_else(|_| unreachable!("below 2^32, as rest < extent"));
    AxisArgument { extent: small(extent), multiplier, shift, ..AxisArgument::default() }
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

#[cfg(test)]
mod copy_launch_tests {
    use super::*;
    use crate::array::layout::Layout;
    use crate::array::layout::order::Order;

    impl AxisArgument {
        fn divide(self, number: u32) -> u32 {
            let high = (u64::from(number) * u64::from(self.multiplier)) >> 32;
            u32::try_from((high + u64::from(number)) >> self.shift).unwrap()
        }
    }

    /// Returns both offsets, in bytes, of every unit of a launch, computed as the kernel does.
    fn units(launches: &CopyLaunches, launch: &CopyLaunch) -> Vec<(i64, i64)> {
        let CopyArguments { count, rank, log_across, log_down, tiles, axes } = launch.arguments;
        let offsets = |mut number: u32, axes: &[AxisArgument]| {
            let mut at = (launch.from as i64, launch.to as i64);
            for axis in axes {
                let quotient = axis.divide(number);
                let index = i64::from(number - quotient * axis.extent);
                (at.0, at.1) = (at.0 + index * axis.from, at.1 + index * axis.to);
                number = quotient;
            }
            at
        };
        let axes = &axes[..rank as usize];
        if !launches.is_tiled {
            let covered = u64::from(launch.blocks) * 1024 * (4 / launches.unit as u64).max(1);
            assert!(covered >= u64::from(count), "too few blocks");
            return (0..count).map(|number| offsets(number, axes)).collect();
        }
        assert_eq!((1_usize << (log_across + log_down)) * launches.unit.max(4), TILE_BYTES);
        assert!(log_across >= LEAST_LOG && log_down >= LEAST_LOG);
        let mut found = Vec::new();
        for block in 0..launch.blocks {
            let row = tiles[1].divide(block);
            let batch = tiles[0].divide(row);
            let first_down = (block - row * tiles[1].extent) << log_down;
            let first_across = (row - batch * tiles[0].extent) << log_across;
            let start = offsets(batch, &axes[2..]);
            for number in 0..1_u32 << (log_across + log_down) {
                let a = first_across + (number & ((1 << log_across) - 1));
                let d = first_down + (number >> log_across);
                if a < axes[0].extent && d < axes[1].extent {
                    let (a, d) = (i64::from(a), i64::from(d));
                    let from = start.0 + a * axes[0].from + d * axes[1].from;
                    found.push((from, start.1 + a * axes[0].to + d * axes[1].to));
                }
            }
        }
        found
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
        let mut launches = CopyLaunches::of(&plan, 0, 0);
        launches.most_units = most_units;
        let mut places = vec![None; layout.numel() * item];
        let mut launch = |launch: &CopyLaunch| {
            assert!(launch.arguments.count as usize <= most_units);
            for (from, to) in units(&launches, launch) {
                for byte in 0..launches.unit as i64 {
                    let place = &mut places[usize::try_from(to + byte).unwrap()];
                    assert_eq!(place.replace(from + byte), None, "written twice: {shape:?} {strides:?}");
                }
            }
            Ok::<_, ()>(())
        };
        launches.each(&mut launch).unwrap();
        let mut expected = Vec::new();
        for offset in layout.walk(order) {
            expected.extend((0..item as i64).map(|byte| Some(offset as i64 * item as i64 + byte)));
        }
        assert_eq!(places, expected, "{shape:?} {strides:?} {order:?} {item} {launches:?}");
        launches
    }

    #[test]
    fn units_are_as_wide_as_everything_is_aligned() {
        let unit = |shape: &[usize], strides: &[isize], item, from| {
            let layout = Layout::strided(shape, strides).unwrap();
            let launches = CopyLaunches::of(&CopyPlan::compact(&layout, Order::C, item), from, 0);
            (launches.unit, launches.is_tiled)
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

    #[test]
    fn divisors_divide() {
        for extent in [1_usize, 2, 3, 5, 7, 64, 641, 65_537, 1 << 30, 0x7FFF_FFFE, MOST_UNITS] {
            let divisor = divisor(extent);
            for number in [0, 1, extent - 1, extent, 2 * extent - 1, 3 * extent, MOST_UNITS - 1, MOST_UNITS] {
                if number <= MOST_UNITS {
                    assert_eq!(divisor.divide(small(number)), small(number / extent), "{number} / {extent}");
                }
            }
        }
    }
}
