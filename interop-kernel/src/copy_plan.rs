//! The plan of a copy of a strided array into memory without gaps, and the launches of the copy kernel that it takes.
#![expect(clippy::cast_possible_wrap, reason = "the bytes of an array are counted by `isize`")]

use crate::axes::{Axis, arrange, each_part};
use crate::copy::{AXES, CopyAxis, CopyPart, UNITS};

/// The steps of the target and of the source along an [`Axis`], in bytes.
pub const TO: usize = 0;
/// As [`TO`].
pub const FROM: usize = 1;

/// A copy into memory without gaps, with as few axes as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// The number of bytes that are contiguous in the source and in the target; 0 for no elements.
    pub run: usize,
    /// The axes over these runs. The fastest axis of the target comes first.
    pub axes: Vec<Axis<2>>,
}

impl CopyPlan {
    /// Plans a copy of elements of `item` bytes, by the strides of the target and of the source in elements. Those of the
    /// target are positive where the source moves. An element that both sides repeat is copied once.
    #[must_use]
    pub fn new(shape: &[usize], to: &[isize], from: &[isize], item: usize) -> Self {
        if shape.contains(&0) {
            return Self { run: 0, axes: Vec::new() };
        }
        let bytes = |stride: isize| stride.wrapping_mul(item as isize);
        let along = |at: usize| Axis { extent: shape[at], steps: [bytes(to[at]), bytes(from[at])] };
        let moves = |axis: &Axis<2>| axis.extent != 1 && axis.steps != [0; 2];
        let mut axes: Vec<_> = (0..shape.len()).map(along).filter(moves).collect();
        let (first, left) = arrange(&mut axes);
        debug_assert_eq!(first, [0; 2], "the target moves forward along each axis, so none is turned");
        axes.truncate(left);
        let is_run = axes.first().is_some_and(|axis| axis.steps == [item as isize; 2]);
        let run = if is_run { axes.remove(0).extent } else { 1 };
        Self { run: run * item, axes }
    }

    /// Plans a copy of contiguous bytes.
    #[must_use]
    pub fn from_bytes(bytes: usize) -> Self {
        Self { run: bytes, axes: Vec::new() }
    }

    /// The size of the copy in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.axes.iter().fold(self.run, |bytes, axis| bytes * axis.extent)
    }
}

/// The number of threads in a block.
pub const THREADS: u32 = 256;

/// The size of the largest unit in bytes.
const MOST_UNIT: usize = 16;

/// The maximum number of units in a launch, because the kernel counts them in 31 bits.
const MOST_UNITS: usize = 0x7FFF_FFFF;

/// The number of bytes that a device reads at once.
const SECTOR: usize = 32;

/// One launch: the offsets of its first unit from the first unit of the array, in bytes, and the kernel's argument.
#[derive(Debug)]
pub struct CopyLaunch {
    pub offset: [isize; 2],
    pub blocks: u32,
    pub part: CopyPart,
}

/// All launches for a plan.
#[derive(Debug)]
pub struct CopyLaunches {
    /// The size of a unit in bytes: 1, 2, 4, 8 or 16.
    pub unit: usize,
    /// The address of the first unit of the source.
    from: usize,
    /// Whether the units of a thread lie side by side in the source; else those of neighbouring threads do.
    is_along_source: bool,
    /// The fastest axis of the target comes first, then the one along which a thread copies, then the others.
    axes: Vec<Axis<2>>,
    most_units: usize,
}

impl CopyLaunches {
    /// Creates the launches for a plan with elements, from one address to another.
    #[must_use]
    pub fn new(CopyPlan { run, axes }: &CopyPlan, from: usize, to: usize) -> Self {
        let strides = axes.iter().map(|axis| axis.steps[FROM].unsigned_abs());
        let bits = strides.fold(*run | from | to | MOST_UNIT, |bits, stride| bits | stride);
        let unit = 1 << bits.trailing_zeros();
        let mut axes = axes.clone();
        if *run > unit || axes.is_empty() {
            let step = unit as isize;
            axes.insert(0, Axis { extent: run / unit, steps: [step; 2] });
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
    pub fn each<E>(&self, mut launch: impl FnMut(&CopyLaunch) -> Result<(), E>) -> Result<(), E> {
        each_part(&self.axes, (self.most_units, AXES), |offset, axes| launch(&self.launch(axes, offset)))
    }

    fn launch(&self, axes: &[Axis<2>], offset: [isize; 2]) -> CopyLaunch {
        let argument =
            |extent, axis: &Axis<2>| CopyAxis::new(extent, axis.steps[FROM] as i64, axis.steps[TO] as i64);
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
    fn is_packed(&self, axes: &[Axis<2>], from: isize) -> bool {
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
fn neighbours_of_source(axes: &[Axis<2>]) -> Option<usize> {
    let distance = |axis: &Axis<2>| axis.steps[FROM].unsigned_abs();
    let steps = axes.iter().enumerate().filter(|(_, axis)| axis.steps[FROM] != 0);
    let (at, nearest) = steps.min_by_key(|(_, axis)| distance(axis))?;
    (at != 0 && distance(nearest) < distance(&axes[0]) && distance(nearest) < SECTOR).then_some(at)
}

/// Converts a number that is bounded by the limit of a launch.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| unreachable!("a launch has fewer than 2^31 units"))
}

#[cfg(test)]
#[expect(unsafe_code, reason = "runs the kernel")]
mod tests {
    use super::*;
    use crate::axes::Offsets;
    use crate::copy::copy as copy_units;

    /// The order of the axes in the target.
    #[derive(Clone, Copy, Debug)]
    enum Order {
        C,
        F,
    }

    fn compact(shape: &[usize], strides: &[isize], order: Order, item: usize) -> CopyPlan {
        let (mut to, mut step) = (vec![0; shape.len()], 1);
        for number in 0..shape.len() {
            let axis = if let Order::C = order { shape.len() - 1 - number } else { number };
            to[axis] = step;
            step *= shape[axis] as isize;
        }
        CopyPlan::new(shape, &to, strides, item)
    }

    /// The offsets of all elements in bytes, in the order of the target.
    fn offsets(shape: &[usize], strides: &[isize], order: Order, item: usize) -> Vec<isize> {
        let along = |at: usize| Axis { extent: shape[at], steps: [strides[at] * item as isize] };
        let mut axes: Vec<_> = (0..shape.len()).map(along).collect();
        if let Order::C = order {
            axes.reverse();
        }
        Offsets::new(axes, vec![0; shape.len()], [0]).map(|[offset]| offset).collect()
    }

    fn plan(shape: &[usize], strides: &[isize], order: Order) -> (usize, Vec<(usize, isize, isize)>) {
        let plan = compact(shape, strides, order, 4);
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

    /// Copies with the kernel, on the CPU.
    fn copy(launches: &CopyLaunches, launch: &CopyLaunch, to: &mut [u8], from: &[u8], first: usize) {
        let to = to.as_mut_ptr().wrapping_offset(launch.offset[TO]);
        let from = from.as_ptr().wrapping_add(first).wrapping_offset(launch.offset[FROM]);
        macro_rules! of_unit {
            ($($name:ident: $unit:ty, $width:literal;)*) => {
                [$((size_of::<$unit>(), copy_units::<$unit, $width> as unsafe fn(u64, *mut u8, *const u8, &CopyPart))),*]
            };
        }
        let kernels = crate::copy_kernels!(of_unit);
        let (_, copy) = kernels.into_iter().find(|(unit, _)| *unit == launches.unit).unwrap();
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
        let plan = compact(shape, strides, order, item);
        let offsets = offsets(shape, strides, order, item);
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
            let launches = CopyLaunches::new(&compact(shape, strides, Order::C, item), from, 0);
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
