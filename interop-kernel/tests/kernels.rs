//! Kernels on the CPU: what they compute, how they fail, and how the threads of a block meet.
#![expect(clippy::float_cmp, reason = "small numbers, of which all sums are exact")]
#![expect(unsafe_code, reason = "all threads of a block have to reach a barrier")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_kernel::{
    ArgumentError, Atomic, BlockThread, Blocks, Elementwise, In, Kernel as _, KernelArrays, KernelElement,
    KernelView, LaunchSize, MistakeKind, Out, Packs, Thread, Tiles, View, ViewMut, kernel,
};

/// A launch in all directions, of 30 threads.
const CUBE: LaunchSize = LaunchSize { grid: (5, 1, 1), block: (3, 2, 1) };

#[kernel]
fn number(thread: Thread<'_>, mut owners: ViewMut<'_, u64, 2>) {
    for at in thread.elements(owners.shape()) {
        owners.set(at, owners.get(at) + thread.number() + 1);
    }
}

#[test]
fn each_element_has_one_thread_in_any_grid() {
    for size in [CUBE, LaunchSize { grid: (2, 3, 2), block: (1, 2, 2) }, LaunchSize::for_units(1)] {
        let mut owners = [0; 77];
        number::run(size, ViewMut::new(&mut owners, [7, 11]));
        let (x, y, z) = size.grid;
        let (width, height, depth) = size.block;
        let threads = u64::from(x * y * z * width * height * depth);
        for (element, owner) in (0_u64..).zip(owners) {
            assert_eq!(owner, element % threads + 1, "{size:?}");
        }
    }
}

#[kernel]
fn count_packs(thread: Thread<'_>, mut counts: ViewMut<'_, u8, 2, Packs<4>>) {
    for at in thread.packs(counts.shape()) {
        counts.set_pack(at, counts.pack(at, 0).map(|count| count + 1));
    }
}

#[kernel]
fn count_tiles(thread: Thread<'_>, mut counts: ViewMut<'_, u8, 2, Tiles<3>>) {
    for tile in thread.tiles(counts.shape()) {
        for at in tile.rows() {
            counts.set(at, counts.get(at) + 1);
        }
    }
}

#[test]
fn each_element_is_in_one_pack_and_in_one_tile() {
    for (height, width) in [(0, 3), (1, 1), (7, 9), (3, 4), (10, 16)] {
        let mut counts = vec![0; height * width];
        count_packs::run(CUBE, ViewMut::new(&mut counts, [height, width]));
        count_tiles::run(CUBE, ViewMut::new(&mut counts, [height, width]));
        assert!(counts.iter().all(|count| *count == 2), "{height} x {width}: {counts:?}");
    }
}

/// Adds neighbours by a barrier: a thread writes for the next one, which reads afterwards.
#[kernel]
fn add_in_block(thread: BlockThread<'_>, numbers: View<'_, f64, 1>, mut sums: ViewMut<'_, f64, 1, Blocks>) {
    let mut own = 0.0;
    for at in thread.elements(numbers.shape()) {
        own += numbers.get(at);
    }
    // SAFETY: all threads of the block get here.
    let sum = unsafe { thread.sum_of_block(own) };
    if let Some(at) = thread.of_block(sums.shape()) {
        sums.set(at, sum);
    }
}

#[test]
fn threads_of_a_block_meet() {
    let numbers: Vec<f64> = (0..50).map(f64::from).collect();
    for threads in if cfg!(miri) { &[32][..] } else { &[32, 64] } {
        let mut sums = [-1.0; 3];
        let size = LaunchSize { grid: (3, 1, 1), block: (*threads, 1, 1) };
        add_in_block::run(size, View::new(&numbers, [50]), ViewMut::new(&mut sums, [3]));
        assert_eq!(sums.iter().sum::<f64>(), 1225.0);
    }
}

#[kernel]
fn odd_threads_wait(thread: BlockThread<'_>) {
    if thread.number() % 2 == 1 {
        // SAFETY: not kept, which the run on the CPU finds.
        unsafe { thread.barrier() };
    }
}

fn panic_of(work: impl FnOnce()) -> String {
    let failure = catch_unwind(AssertUnwindSafe(work)).expect_err("a panic");
    let text = failure.downcast_ref::<String>().cloned();
    text.or_else(|| failure.downcast_ref::<&str>().map(ToString::to_string)).expect("a text")
}

#[test]
fn barrier_that_a_thread_does_not_reach_panics() {
    let text = panic_of(|| odd_threads_wait::run(LaunchSize { grid: (1, 1, 1), block: (4, 1, 1) }));
    assert!(text.contains("does not reach the barrier"), "{text}");
}

#[kernel]
fn index_beyond(thread: BlockThread<'_>, row: View<'_, f32, 1>, mut to: ViewMut<'_, f32, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, row.get([at.at()[0] + 1]));
    }
    // SAFETY: all threads get here, but the one that has panicked.
    unsafe { thread.barrier() };
}

#[test]
fn first_mistake_is_reported() {
    let mut to = [0.0; 4];
    let size = LaunchSize { grid: (1, 1, 1), block: (4, 1, 1) };
    let text = panic_of(|| index_beyond::run(size, View::new(&[0.0; 4], [4]), ViewMut::new(&mut to, [4])));
    assert_eq!(text, "kernel `index_beyond`: the index [4] is outside of the shape [4]");
}

#[kernel(same_shape(to, from))]
fn copy(thread: Thread<'_>, mut to: ViewMut<'_, f32, 2>, from: View<'_, f32, 2>) {
    for at in thread.elements(to.shape()) {
        to.set(at, from.get(at));
    }
}

#[test]
fn index_of_another_shape_panics() {
    let text =
        panic_of(|| copy::run(CUBE, ViewMut::new(&mut [0.0; 6], [2, 3]), View::new(&[0.0; 6], [3, 2])));
    assert_eq!(text, "kernel `copy`: the index was made for the shape [2, 3], and the array has [3, 2]");
    let text = panic_of(|| {
        let _ = View::new(&[0.0_f32; 0], [0]).nearest([3]);
    });
    assert_eq!(text, "an array of the shape [0] has no nearest element");
}

/// Miri looks for races here: one thread of the system for each thread of a block.
#[test]
fn kernels_without_unsafe_have_no_race() {
    let (mut to, from) = ([0.0_f32; 12], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
    let size = LaunchSize { grid: (2, 1, 1), block: (3, 1, 1) };
    copy::run_in_threads(size, ViewMut::new(&mut to, [3, 4]), View::strided(&from, 0, [3, 4], [1, 3]));
    assert_eq!(to, [1.0, 4.0, 7.0, 10.0, 2.0, 5.0, 8.0, 11.0, 3.0, 6.0, 9.0, 12.0]);
    let mut counts = [0; 35];
    count_packs::run_in_threads(size, ViewMut::new(&mut counts, [5, 7]));
    count_tiles::run_in_threads(size, ViewMut::new(&mut counts, [5, 7]));
    assert_eq!(counts, [2; 35]);
    let mut sum = [0.0; 12];
    let arrays = Elementwise::new((
        ViewMut::<_, 1>::new(&mut sum, [12]),
        View::new(&from, [12]),
        View::new(&to, [12]),
    ));
    add::run_in_threads(size, arrays.unwrap());
    assert_eq!(sum[..3], [2.0, 6.0, 10.0]);
}

#[kernel]
fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>, In<f32>)>) {
    arrays.map(&thread, |left, right| left + right);
}

#[kernel]
fn count(thread: Thread<'_>, arrays: Elementwise<'_, (Out<u16>, In<u8>), 2>) {
    arrays.map_inplace(&thread, |count, by| count + u16::from(by));
}

/// Packs with a tail, strides, axes that do not merge, backwards, and elements of two sizes.
#[test]
fn elementwise_visits_each_element_once() {
    let ones = [1_u8; 400];
    for (shape, strides, first) in [
        ([1, 27], [27, 1], 0),
        ([5, 16], [16, 1], 0),
        ([5, 16], [20, 1], 4),
        ([5, 3], [1, 5], 0),
        ([4, 8], [-8, -1], 31),
        ([3, 0], [1, 1], 0),
    ] {
        for size in [CUBE, LaunchSize { grid: (1, 1, 1), block: (2, 1, 1) }] {
            let mut counts = [0_u16; 128];
            let out = ViewMut::<_, 2>::strided(&mut counts, first, shape, strides);
            let by = View::strided(&ones, 3, shape, [40, 2]);
            count::run(size, Elementwise::new((out, by)).unwrap());
            let elements: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            assert_eq!(elements, (shape[0] * shape[1]) as u64, "{shape:?} {strides:?}");
            assert!(counts.iter().all(|count| *count < 2), "{shape:?} {strides:?}: {counts:?}");
        }
    }
}

/// Vectors begin where the address allows it: the elements before them, and those after them, are visited one by one.
#[test]
fn elements_before_the_first_aligned_address_are_visited_once() {
    #[repr(align(16))]
    struct Aligned([u16; 40]);
    for len in 1..30 {
        for first in 0..8 {
            let mut counts = Aligned([0; 40]);
            let arrays = (ViewMut::<_, 1>::new(&mut counts.0[first..first + len], [len]),);
            let arrays = Elementwise::new(arrays).unwrap();
            add_two::run(LaunchSize { grid: (1, 1, 1), block: (2, 1, 1) }, arrays);
            let expected: [u16; 40] =
                core::array::from_fn(|at| if (first..first + len).contains(&at) { 2 } else { 0 });
            assert_eq!(counts.0, expected, "{len} from {first}");
        }
    }
}

#[kernel]
fn add_two(thread: Thread<'_>, numbers: Elementwise<'_, (Out<u16>,)>) {
    numbers.map_inplace(&thread, |number| number + 2);
}

#[test]
fn arguments_are_checked() {
    let told = |error: ArgumentError| (error.kind(), error.to_string());
    let (mut out, row) = ([0.0; 6], [0.0; 6]);
    let arrays = Elementwise::<(Out<f32>, In<f32>)>::new((
        ViewMut::<_, 1>::new(&mut out, [6]),
        View::new(&row[..5], [5]),
    ));
    let text = "`shape`: found 5 in axis 0 of array 2 of 2, allowed: 6, as in array 1";
    assert_eq!(told(arrays.unwrap_err()), (MistakeKind::Shape, text.into()));
    let text = panic_of(|| {
        let _ = ViewMut::<_, 2>::strided(&mut out, 0, [2, 3], [1, 1]);
    });
    assert!(text.starts_with("two threads would write one element"), "{text}");
    let text = panic_of(|| {
        let _ = View::strided(&row, 1, [3], [-1]);
    });
    assert!(text.contains("does not lie in 6 elements"), "{text}");
    assert!(panic_of(|| drop(ViewMut::<_, 1>::new(&mut out, [7]))).contains("a slice of 6 elements"));
}

/// A kernel has its parameters, in order, whatever they are named.
#[kernel]
fn thread(own: Thread<'_>, thread: f32, parameters: u8, size: [u16; 2], mut to: ViewMut<'_, f32, 0>) {
    for at in own.elements([]) {
        to.set(at, thread + f32::from(parameters) + f32::from(size[1]));
    }
}

#[test]
fn parameters_may_have_any_name() {
    let mut sum = [0.0];
    thread::run(CUBE, 1.5, 2, [3, 4], ViewMut::new(&mut sum, []));
    assert_eq!(sum, [7.5]);
    assert_eq!((thread::NAME, thread::PARAMETERS), ("thread", &["thread", "parameters", "size", "to"][..]));
    assert_eq!(interop_kernel::host::sizes::<thread>(), [4, 1, 4, 8]);
}

#[kernel]
fn add_one(thread: Thread<'_>, mut numbers: ViewMut<'_, u64, 1>) {
    for at in thread.elements(numbers.shape()) {
        numbers.set(at, numbers.get(at) + 1);
    }
}

/// One thread of this launch would have the elements of all others.
#[kernel]
fn launch_again(_: Thread<'_>, numbers: ViewMut<'_, u64, 1>) {
    add_one::run(LaunchSize::for_units(1), numbers);
}

#[kernel]
fn launch_again_in_threads(_thread: BlockThread<'_>, numbers: ViewMut<'_, u64, 1>) {
    add_one::run_in_threads(LaunchSize { grid: (1, 1, 1), block: (1, 1, 1) }, numbers);
}

/// Units of several elements belong to other threads than elements.
#[kernel]
fn second_rule(thread: Thread<'_>, numbers: ViewMut<'_, u64, 1>) {
    if let Ok(arrays) = Elementwise::<(Out<u64>,)>::new((numbers,)) {
        arrays.map_inplace(&thread, |number| number + 1);
    }
}

#[test]
fn elements_get_no_second_thread() {
    let mut numbers = [0; 16];
    let size = LaunchSize { grid: (1, 1, 1), block: (8, 1, 1) };
    for run in [launch_again::run, launch_again_in_threads::run, second_rule::run] {
        let text = panic_of(|| run(size, ViewMut::new(&mut numbers, [16])));
        assert!(text.contains("is called in a kernel"), "{text}");
    }
    assert_eq!(numbers, [0; 16]);
    // The mark of a kernel does not outlive its panic.
    add_one::run(size, ViewMut::new(&mut numbers, [16]));
    assert_eq!(numbers, [1; 16]);
}

#[test]
fn launch_that_no_device_takes_panics() {
    let mut numbers = [0; 4];
    let sizes =
        [(1, (2000, 1, 1)), (1, (32, 33, 1)), (1, (0, 1, 1)), (0, (1, 1, 1)), (1, (1 << 16, 1 << 16, 1))];
    for (blocks, block) in sizes {
        let size = LaunchSize { grid: (blocks, 1, 1), block };
        for run in [add_one::run, add_one::run_in_threads] {
            let text = panic_of(|| run(size, ViewMut::new(&mut numbers, [4])));
            assert!(text.contains("1 to 1024 threads in a block"), "{text}");
        }
    }
    assert_eq!(numbers, [0; 4]);
}

#[test]
fn sum_of_threads_that_fill_no_warp_panics() {
    let mut sums = [0.0];
    let size = LaunchSize { grid: (1, 1, 1), block: (48, 1, 1) };
    let text = panic_of(|| add_in_block::run(size, View::new(&[1.0; 3], [3]), ViewMut::new(&mut sums, [1])));
    assert!(text.contains("a multiple of 32"), "{text}");
}

#[kernel]
fn invert(thread: Thread<'_>, arrays: Elementwise<'_, (Out<[u8; 4]>, In<[u8; 4]>)>) {
    arrays.map(&thread, |pixel| pixel.map(|byte| 255 - byte));
}

#[kernel]
fn double(thread: Thread<'_>, arrays: Elementwise<'_, (Out<[f32; 4]>,)>) {
    arrays.map_inplace(&thread, |vector| vector.map(|number| 2.0 * number));
}

/// Debug builds find reads at addresses that are not aligned.
#[test]
fn elements_have_the_alignment_of_their_items() {
    let (mut bytes, source, mut floats) = ([0_u8; 16], [1_u8; 16], [1.0_f32; 8]);
    for first in 0..4 {
        let (pixels, _) = bytes[first..].as_chunks_mut::<4>();
        let (from, _) = source[first..].as_chunks::<4>();
        let len = pixels.len();
        let arrays = Elementwise::new((ViewMut::<_, 1>::new(pixels, [len]), View::new(from, [len])));
        invert::run(CUBE, arrays.expect("one shape"));
        assert!(pixels.iter().all(|pixel| *pixel == [254; 4]));
        let (vectors, _) = floats[first..].as_chunks_mut::<4>();
        let len = vectors.len();
        let arrays = Elementwise::new((ViewMut::<_, 1>::new(vectors, [len]),));
        double::run(CUBE, arrays.expect("one shape"));
    }
    // Only the first place has two vectors.
    assert_eq!(floats, [2.0, 4.0, 8.0, 16.0, 16.0, 8.0, 4.0, 2.0]);
}

/// The sum of the offsets does not fit 128 bits: the view would reach all of memory.
#[test]
fn offsets_beyond_all_numbers_panic() {
    let far = isize::MAX.unsigned_abs();
    let text = panic_of(|| {
        let _ = View::strided(
            &[0_u8],
            0,
            [far, far, far, far, 101],
            [isize::MIN, isize::MIN, isize::MIN, isize::MIN, -1],
        );
    });
    assert!(text.contains("does not lie in 1 elements"), "{text}");
}

#[kernel]
fn share_two_types(mut thread: BlockThread<'_>) {
    if thread.number_in_block() == 0 {
        // SAFETY: breaks the rule about types, of which a device would read memory that nobody wrote.
        let _ = unsafe { thread.share(1.0_f64) }.get(1);
    } else {
        // SAFETY: as above.
        let _ = unsafe { thread.share(1_u32) }.get(0);
    }
}

#[test]
fn values_of_different_types_panic() {
    let told = panic_of(|| share_two_types::run(LaunchSize { grid: (1, 1, 1), block: (2, 1, 1) }));
    assert!(told.starts_with("the threads of a block share values of different types: `"), "{told}");
}

/// The numbers that `interop.cuh` asserts, too.
#[test]
fn layouts_are_those_of_the_header() {
    assert_eq!(size_of::<KernelView<'_, u8, 0>>(), 8);
    assert_eq!(size_of::<KernelView<'_, f64, 4>>(), 8 + 16 * 4);
    assert_eq!(size_of::<KernelArrays<'_, 1, 8>>(), 64 + 8 * 24);
    assert_eq!(size_of::<KernelArrays<'_, 2, 4>>(), 72 + 4 * 32);
    assert_eq!(size_of::<Elementwise<'_, (Out<u8>, In<f64>), 4>>(), 72 + 4 * 32);
}

/// Constants in the scope of a kernel do not turn names of its expansion into patterns.
mod beside_constants {
    use super::{LaunchSize, Thread, ViewMut, kernel};

    #[expect(non_upper_case_globals, dead_code, reason = "the names of variables")]
    mod constants {
        pub(super) const thread: u8 = 0;
        pub(super) const size: u8 = 1;
        pub(super) const parameters: u8 = 2;
    }
    #[expect(unused_imports, reason = "they are only in scope")]
    use constants::*;

    #[kernel]
    pub(super) fn set(own: Thread<'_>, mut to: ViewMut<'_, u8, 0>) {
        for at in own.elements([]) {
            to.set(at, 1);
        }
    }

    #[test]
    fn kernel_expands() {
        let mut to = [0];
        set::run(LaunchSize::for_units(1), ViewMut::new(&mut to, []));
        assert_eq!(to, [1]);
    }
}

/// [`Elementwise`] is for the thread that has it: this is ambiguous for a type that is `Send`.
#[test]
fn arrays_of_an_argument_stay_in_their_thread() {
    trait IfNotSend<A> {
        fn holds() {}
    }
    struct Sendable;
    impl<T: ?Sized> IfNotSend<()> for T {}
    impl<T: ?Sized + Send> IfNotSend<Sendable> for T {}
    <Elementwise<'_, (Out<f32>,)> as IfNotSend<_>>::holds();
}

/// Counts and adds the numbers of each bin, and gives every number a place of its own.
#[kernel]
fn add_to_bins(
    thread: Thread<'_>,
    numbers: View<'_, u8, 1>,
    counts: ViewMut<'_, u32, 2, Atomic>,
    sums: ViewMut<'_, f64, 1, Atomic>,
    places: ViewMut<'_, u64, 0, Atomic>,
    mut order: ViewMut<'_, u64, 1>,
) {
    for at in thread.elements(numbers.shape()) {
        let number = numbers.get(at);
        let bin = usize::from(number);
        counts.add([bin / 2, bin % 2], 1);
        sums.add([bin], f64::from(number));
        order.set(at, places.add([], 1));
    }
}

#[kernel]
fn add_each(
    thread: Thread<'_>,
    signed: ViewMut<'_, i32, 1, Atomic>,
    large: ViewMut<'_, i64, 1, Atomic>,
    float: ViewMut<'_, f32, 1, Atomic>,
) {
    for at in thread.elements([6]) {
        let at = [at.at()[0] % 2];
        assert!(signed.add(at, -3) <= 10);
        large.add(at, i64::MIN);
        float.add(at, 0.5);
    }
}

/// Miri looks for races here.
#[test]
fn threads_add_to_any_element() {
    let numbers = [3, 1, 3, 0, 3, 1, 2];
    let size = LaunchSize { grid: (2, 1, 1), block: (3, 1, 1) };
    for is_threaded in [false, true] {
        let (mut counts, mut sums, mut places, mut order) = ([0; 4], [0.5; 4], [7], [0; 7]);
        let run = if is_threaded { add_to_bins::run_in_threads } else { add_to_bins::run };
        run(
            size,
            View::new(&numbers, [7]),
            // Backwards.
            ViewMut::strided(&mut counts, 3, [2, 2], [-2, -1]),
            ViewMut::new(&mut sums, [4]),
            ViewMut::new(&mut places, []),
            ViewMut::new(&mut order, [7]),
        );
        order.sort_unstable();
        assert_eq!((counts, sums, places), ([3, 1, 2, 1], [0.5, 2.5, 2.5, 9.5], [14]));
        assert_eq!(order, [7, 8, 9, 10, 11, 12, 13]);
        let (mut signed, mut large, mut float) = ([10; 2], [1; 2], [0.0; 2]);
        let run = if is_threaded { add_each::run_in_threads } else { add_each::run };
        run(
            size,
            ViewMut::new(&mut signed, [2]),
            ViewMut::new(&mut large, [2]),
            ViewMut::new(&mut float, [2]),
        );
        assert_eq!((signed, large, float), ([1; 2], [i64::MIN + 1; 2], [1.5; 2]));
    }
}

#[test]
fn additions_beyond_the_end_panic() {
    let text = panic_of(|| {
        add_to_bins::run(
            CUBE,
            View::new(&[4], [1]),
            ViewMut::new(&mut [0; 4], [2, 2]),
            ViewMut::new(&mut [0.0; 4], [4]),
            ViewMut::new(&mut [0], []),
            ViewMut::new(&mut [0], [1]),
        );
    });
    assert_eq!(text, "kernel `add_to_bins`: the index [2, 0] is outside of the shape [2, 2]");
}

#[derive(Clone, Copy, Debug, PartialEq, KernelElement)]
#[repr(C)]
struct Particle {
    place: [f32; 2],
    mass: f32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, KernelElement)]
#[repr(transparent)]
struct Kind(u32);

#[kernel]
fn add_mass(
    thread: Thread<'_>,
    particles: Elementwise<'_, (Out<Particle>,)>,
    masses: ViewMut<'_, f32, 1, Atomic>,
    by: Particle,
) {
    particles.map_inplace(&thread, |particle| {
        masses.add([particle.kind.0 as usize], by.mass);
        Particle { mass: particle.mass + by.mass, ..particle }
    });
}

#[test]
fn structs_are_elements_and_arguments() {
    let light = Particle { place: [1.0, 2.0], mass: 0.5, kind: Kind(1) };
    let (mut particles, mut masses) = ([light; 5], [0.0; 2]);
    let array = Elementwise::new((ViewMut::<_, 1>::new(&mut particles, [5]),)).expect("one array");
    add_mass::run(CUBE, array, ViewMut::new(&mut masses, [2]), light);
    assert_eq!((particles, masses), ([Particle { mass: 1.0, ..light }; 5], [0.0, 2.5]));
}

/// Neither the threads of a launch nor those of a block are as many as the elements.
#[test]
fn too_few_blocks_panic() {
    let size = LaunchSize { grid: (2, 1, 1), block: (32, 1, 1) };
    for run in [add_in_block::run, add_in_block::run_in_threads] {
        let text = panic_of(|| run(size, View::new(&[1.0; 3], [3]), ViewMut::new(&mut [0.0; 3], [3])));
        assert!(text.contains("has 3 elements, and the grid 2 blocks"), "{text}");
    }
}

#[cfg(feature = "half")]
use interop_kernel::math;

#[cfg(feature = "half")]
#[kernel]
fn multiply(thread: Thread<'_>, arrays: Elementwise<'_, (Out<half::f16>, In<half::f16>, In<half::bf16>)>) {
    arrays.map(&thread, |left, right| math::to_f16(math::from_f16(left) * right.to_f32()));
}

#[cfg(feature = "half")]
#[test]
fn half_numbers_are_elements() {
    use half::{bf16, f16};
    let (mut out, left, right) = ([f16::ZERO; 9], [f16::from_f32(1.5); 9], [bf16::from_f32(-0.5); 9]);
    let arrays = Elementwise::new((
        ViewMut::<_, 1>::new(&mut out, [9]),
        View::new(&left, [9]),
        View::new(&right, [9]),
    ));
    multiply::run(CUBE, arrays.expect("one shape"));
    assert_eq!(out, [f16::from_f32(-0.75); 9]);
}
