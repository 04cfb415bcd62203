//! Launches on the CPU: the results of `run`, bit for bit, in any number of parts, and an error where a kernel does not fit.
#![cfg(feature = "half")]
#![expect(unsafe_code, reason = "the parts of a launch run once")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_kernel::half::{bf16, f16};
use interop_kernel::{
    Atomic, BlockThread, Blocks, Compiled, Elementwise, In, Kernel, KernelElement, LaunchSize, Out, Packs,
    Real, Rows, Team, Thread, Tiles, View, ViewMut, host, kernel, math,
};

/// Launches with a thread of the system for each part.
#[track_caller]
fn launch<K: Kernel>(workers: u32, size: LaunchSize, parameters: K::Parameters<'_>) {
    let spread = |parts: u32, run: &(dyn Fn(u32) + Sync)| {
        if parts == 1 {
            return run(0);
        }
        std::thread::scope(|scope| (0..parts).for_each(|part| drop(scope.spawn(move || run(part)))));
    };
    // SAFETY: each part runs once, and the scope waits for all.
    unsafe { host::launch::<K>(size, parameters, workers, spread) };
}

/// Returns the message of the panic.
#[track_caller]
fn panic_of(launch: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(launch)).expect_err("a panic");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or(panic.downcast_ref::<&str>().map(|text| (*text).into()))
        .unwrap()
}

/// As many threads as several workers share.
fn large() -> LaunchSize {
    LaunchSize { grid: (400, 1, 1), block: (256, 1, 1) }
}

/// Fewer threads than most arrays have elements.
fn small() -> LaunchSize {
    LaunchSize { grid: (2, 1, 1), block: (if cfg!(miri) { 3 } else { 300 }, 1, 1) }
}

fn numbers<T: Real>(count: usize) -> Vec<T> {
    (0..count).map(|at| T::from_f32(((at * 7919) % 1013) as f32 / 37.0 - 11.0)).collect()
}

fn bits<T: Real>(numbers: &[T]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_f32().to_bits()).collect()
}

#[kernel(T = [f32, bf16, f16])]
fn all_of_a_row<T: Real>(
    mut team: Team<'_>,
    x: View<'_, T, 2>,
    weight: View<'_, T, 1>,
    mut out: ViewMut<'_, T, 2, Rows>,
    few: View<'_, u8, 2>,
    mut columns: ViewMut<'_, f32, 2, Rows>,
    mut sums: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let [sum, squares] = row.sums(&x, move |x| [x, x * x]);
        let (max, column) = row.argmax(&x, move |x| x);
        let scale = math::rsqrt(squares / row.columns() + 1.0);
        row.write(&mut out, (&x, &weight), move |(x, weight)| (x - sum) * scale * weight + max);
        row.change(&mut out, (), move |x, ()| x + 1.0);
        row.write(&mut columns, (), move |()| column as f32);
        row.set(&mut sums, row.sum((&out, &weight), move |(x, weight)| math::exp(-x * x) * weight));
    }
    // Of an array with fewer rows: each belongs to the same thread as before.
    for row in team.rows(&few) {
        row.change(&mut columns, &few, move |x, few| x + few);
    }
}

/// Rows and columns, with heads, tails, more units than a team has threads, and none.
fn shapes() -> &'static [(usize, usize)] {
    if cfg!(miri) {
        &[(3, 9), (0, 3), (17, 2)]
    } else {
        &[(1, 1), (3, 7), (70, 33), (5, 1025), (2, 5000), (1, 40_001), (900, 2), (0, 4), (4, 0)]
    }
}

fn assert_rows_as_in_a_run<T: Real + Debug>()
where
    all_of_a_row<T>: Compiled,
{
    for &(rows, columns) in shapes() {
        let layouts = [(0, false), (1, false), (0, true), (3, false)];
        for (gap, is_transposed) in layouts.into_iter().take(if cfg!(miri) { 3 } else { 4 }) {
            let x: Vec<T> = numbers(rows * (columns + gap) + 2);
            let weight: Vec<T> = numbers(columns);
            let few = vec![1_u8; rows / 2 * columns];
            let strides = if is_transposed { [1, rows as isize] } else { [(columns + gap) as isize, 1] };
            let result = |workers: Option<u32>| {
                let mut out = vec![T::from_f32(0.0); rows * columns];
                let (mut of_columns, mut sums) = (vec![0.0; rows * columns], vec![0.0; rows]);
                let size = LaunchSize::for_rows::<T>(rows, columns);
                let shared = LaunchSize { grid: (size.grid.0.max(400), 1, 1), ..size };
                let arrays = (
                    View::strided(&x, gap.min(1), [rows, columns], strides),
                    View::new(&weight, [columns]),
                    ViewMut::new(&mut out, [rows, columns]),
                    View::new(&few, [rows / 2, columns]),
                    ViewMut::new(&mut of_columns, [rows, columns]),
                    ViewMut::new(&mut sums, [rows]),
                );
                match (workers, arrays) {
                    (None, (x, weight, out, few, columns, sums)) => {
                        all_of_a_row::<T>::run(size, x, weight, out, few, columns, sums);
                    }
                    (Some(workers), arrays) => launch::<all_of_a_row<T>>(workers, shared, arrays),
                }
                (bits(&out), of_columns, bits(&sums))
            };
            let expected = result(None);
            for workers in [5, 1, 2].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
                let what = format!("{rows} x {columns} + {gap}, {workers} workers");
                assert_eq!(result(Some(workers)), expected, "{what}");
            }
        }
    }
}

#[test]
fn rows_have_the_bits_of_a_run() {
    assert_rows_as_in_a_run::<f32>();
    assert_rows_as_in_a_run::<bf16>();
    if !cfg!(miri) {
        assert_rows_as_in_a_run::<f16>();
    }
}

/// Sums, and numbers that depend on which thread has an element.
#[kernel]
fn row_sums(mut team: Team<'_>, x: View<'_, f32, 2>, mut sums: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let merge = |[first, last, count]: [f32; 3], [others, other, more]: [f32; 3]| {
            if count * more > 0.0 {
                [0.75 * first + 0.5 * others, last - 0.25 * other, count + more]
            } else if count > 0.0 {
                [first, last, count]
            } else {
                [others, other, more]
            }
        };
        let [first, last, _] = row.reduce(&x, [0.0; 3], move |own, x| merge(own, [x, 1.0 - x, 1.0]), merge);
        row.set(&mut sums, row.sum(&x, move |x| x) + first - last);
    }
}

/// The order of a sum is that of the team of the launch, of any size.
#[test]
fn sums_are_in_the_order_of_each_team() {
    let (rows, columns) = if cfg!(miri) { (2, 40) } else { (3, 3001) };
    let x: Vec<f32> = numbers(rows * columns);
    let mut results = Vec::new();
    let teams = [2, 96, 1, 8, 32, 64, 512, 1024];
    for threads in teams.into_iter().take(if cfg!(miri) { 2 } else { 8 }) {
        let size = LaunchSize::for_teams(rows, threads);
        let [mut expected, mut found] = [vec![0.0; rows], vec![0.0; rows]];
        row_sums::run(size, View::new(&x, [rows, columns]), ViewMut::new(&mut expected, [rows]));
        launch::<row_sums>(1, size, (View::new(&x, [rows, columns]), ViewMut::new(&mut found, [rows])));
        assert_eq!(bits(&found), bits(&expected), "{threads} threads");
        results.push(bits(&found));
    }
    assert!(cfg!(miri) || results.iter().any(|other| *other != results[0]), "sums that show no order");
}

#[kernel]
fn argmax(mut team: Team<'_>, x: View<'_, f32, 2>, mut found: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let (max, column) = row.argmax(&x, move |x| x);
        let (most, sum) = (row.max(&x, move |x| x), row.sum(&x, move |x| x));
        let value = move |at: f32| {
            if at < 1.0 {
                max
            } else if at < 2.0 {
                column as f32
            } else if at < 3.0 {
                most
            } else {
                sum
            }
        };
        row.change(&mut found, (), move |at, ()| value(at));
    }
}

#[test]
fn maxima_of_nan_infinities_and_zeros_are_those_of_a_run() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0];
    let columns = if cfg!(miri) { 9 } else { 150 };
    for seed in 0..if cfg!(miri) { 3 } else { 200 } {
        let x: Vec<f32> =
            (0..columns).map(|at| special[(at * at + seed * 31 + at * seed / 7) % (3 + seed % 5)]).collect();
        let size = LaunchSize::for_rows::<f32>(1, columns);
        let start: Vec<f32> = (0..columns).map(|at| at as f32).collect();
        let [mut expected, mut found] = [start.clone(), start];
        argmax::run(size, View::new(&x, [1, columns]), ViewMut::new(&mut expected, [1, columns]));
        launch::<argmax>(1, size, (View::new(&x, [1, columns]), ViewMut::new(&mut found, [1, columns])));
        let is_same =
            |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan();
        assert!(expected.iter().zip(&found).all(is_same), "{x:?}: {expected:?}, {found:?}");
    }
}

#[kernel]
fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>, In<u8>)>) {
    arrays.map(&thread, |left, right| left + f32::from(right));
}

#[kernel]
fn add_to(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {
    arrays.map_inplace(&thread, |to, from| to * 2.0 + from);
}

#[kernel]
fn count_each(
    thread: Thread<'_>,
    arrays: Elementwise<'_, (In<f32>, In<u8>)>,
    counts: ViewMut<'_, u32, 1, Atomic>,
) {
    arrays.for_each(&thread, |x, byte| {
        counts.add([(x as usize + usize::from(byte)) % 5], 1);
    });
}

/// The shape, and the strides of the array that is read.
type Layout = ([usize; 3], [isize; 3]);

fn layouts() -> Vec<Layout> {
    if cfg!(miri) {
        return vec![([2, 3, 4], [1, 2, 6]), ([3, 1, 5], [0, 7, 2]), ([2, 0, 3], [1, 1, 1])];
    }
    let mut layouts = vec![
        ([1, 1, 90_000], [0, 0, 1]),
        ([30, 3, 1000], [1, 30_000, 30]),
        ([300, 300, 1], [1, 300, 7]),
        ([2, 200, 200], [40_000, 1, 200]),
        ([5, 100, 3], [0, 3, 1]),
        ([7, 0, 3], [1, 1, 1]),
        ([1, 1, 1], [5, 5, 5]),
    ];
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..30 {
        layouts.push(([0; 3].map(|_| random(50) as usize + 1), [0; 3].map(|_| random(1300) as isize)));
    }
    layouts
}

#[test]
fn elements_of_any_layout_are_visited_once() {
    let most = if cfg!(miri) { 100 } else { 200_000 };
    let left: Vec<f32> = (0..most).map(|x| x as f32).collect();
    let right: Vec<u8> = (0..most).map(|x| (x % 251) as u8).collect();
    for (shape, strides) in layouts() {
        let result = |workers: Option<u32>| {
            let [mut sum, mut changed] = [(); 2].map(|()| vec![1.0; shape.iter().product()]);
            let mut counts = [0; 5];
            let size = if workers.is_none_or(|workers| workers == 1) { small() } else { large() };
            let from = || View::strided(&left, 0, shape, strides);
            let bytes = || View::strided(&right, 0, shape, [0, 1, 2]);
            let first = Elementwise::new((ViewMut::<f32, 3>::new(&mut sum, shape), from(), bytes())).unwrap();
            let second = Elementwise::new((ViewMut::<f32, 3>::new(&mut changed, shape), from())).unwrap();
            let third = Elementwise::new((from(), bytes())).unwrap();
            let counted = ViewMut::new(&mut counts, [5]);
            if let Some(workers) = workers {
                launch::<add>(workers, size, (first,));
                launch::<add_to>(workers, size, (second,));
                launch::<count_each>(workers, size, (third, counted));
            } else {
                add::run(size, first);
                add_to::run(size, second);
                count_each::run(size, third, counted);
            }
            (sum, changed, counts)
        };
        let expected = result(None);
        for workers in [1, 2, 3] {
            assert_eq!(result(Some(workers)), expected, "{shape:?} {strides:?}, {workers} workers");
        }
    }
}

/// Loops of each kind, by `for` and by `for_each`.
#[kernel]
fn plain(
    thread: Thread<'_>,
    mut out: ViewMut<'_, f32, 2>,
    mut packs: ViewMut<'_, f32, 2, Packs<4>>,
    mut tiles: ViewMut<'_, u32, 2, Tiles<3>>,
    counts: ViewMut<'_, u32, 1, Atomic>,
    total: ViewMut<'_, f64, 1, Atomic>,
) {
    for at in thread.elements(out.shape()) {
        let [y, x] = at.at();
        out.set(at, out.get(at) + (y * 1000 + x) as f32);
        counts.add([x % 3], 1);
        total.add([0], y as f64);
    }
    thread.elements(out.shape()).for_each(|at| out.set(at, out.get(at) * 2.0));
    thread.packs(packs.shape()).for_each(|at| {
        let pack = packs.pack(at, 0.0);
        packs.set_pack(at, pack.map(|x| x + 2.0));
    });
    for at in thread.tiles(tiles.shape()) {
        for (number, at) in at.rows().enumerate() {
            tiles.set(at, tiles.get(at) + number as u32);
        }
    }
    let mut own = thread.elements(out.shape());
    let first = own.next();
    let rest = own.clone();
    let sum = own.map(|at| at.at()[1]).sum::<usize>() + first.map_or(0, |at| at.at()[1]);
    counts.add([3], sum as u32 + rest.count() as u32);
}

#[test]
fn plain_kernels_have_the_results_of_a_run() {
    let shapes: &[[usize; 2]] =
        if cfg!(miri) { &[[3, 7]] } else { &[[301, 7], [7, 301], [1, 1], [1, 5000], [0, 3]] };
    for &[rows, columns] in shapes {
        let result = |workers: Option<u32>| {
            let count = rows * columns;
            let (mut out, mut packs, mut tiles) = (vec![1.0; count], vec![1.0; count], vec![1; count]);
            let (mut counts, mut total) = ([0; 4], [0.0]);
            let shape = [rows, columns];
            let size =
                if workers.is_none() { LaunchSize { grid: (2, 1, 1), block: (3, 1, 1) } } else { large() };
            let out_views = (
                ViewMut::new(&mut out, shape),
                ViewMut::new(&mut packs, shape),
                ViewMut::new(&mut tiles, shape),
            );
            let (counted, summed) = (ViewMut::new(&mut counts, [4]), ViewMut::new(&mut total, [1]));
            match (workers, out_views) {
                (None, (out, packs, tiles)) => plain::run(size, out, packs, tiles, counted, summed),
                (Some(workers), (out, packs, tiles)) => {
                    launch::<plain>(workers, size, (out, packs, tiles, counted, summed));
                }
            }
            // What each thread counts of its own first element differs, but not the sum.
            (out, packs, tiles, counts[..3].to_vec(), total)
        };
        let expected = result(None);
        assert_eq!((result(Some(1)), result(Some(4))), (expected.clone(), expected), "{rows} x {columns}");
    }
}

/// Loops over other numbers of axes, of which one changes its kind on the way.
#[kernel]
fn number(
    thread: Thread<'_>,
    mut single: ViewMut<'_, u32, 0>,
    mut line: ViewMut<'_, u32, 1>,
    mut five: ViewMut<'_, u32, 5>,
) {
    for at in thread.elements(single.shape()) {
        single.set(at, single.get(at) + 1);
    }
    let mut own = thread.elements(line.shape());
    for at in own.by_ref().take(2) {
        line.set(at, line.get(at) + at.at()[0] as u32);
    }
    own.for_each(|at| line.set(at, line.get(at) + at.at()[0] as u32));
    for at in thread.elements(five.shape()) {
        let number = at.at().iter().zip(five.shape()).fold(0, |number, (at, extent)| number * extent + at);
        five.set(at, five.get(at) + number as u32);
    }
}

#[test]
fn loops_over_any_number_of_axes_visit_each_element_once() {
    for workers in [1, 4] {
        let (mut single, mut line, mut five) = ([1], [1; 21], [1; 120]);
        let parameters = (
            ViewMut::new(&mut single, []),
            ViewMut::new(&mut line, [21]),
            ViewMut::new(&mut five, [2, 3, 1, 4, 5]),
        );
        launch::<number>(workers, large(), parameters);
        assert_eq!(single, [2]);
        assert_eq!((line.to_vec(), five.to_vec()), ((1..22).collect(), (1..121).collect()));
    }
}

#[kernel]
fn block_sums(thread: BlockThread<'_>, x: View<'_, f32, 1>, mut sums: ViewMut<'_, f64, 1, Blocks>) {
    let mut sum = 0.0;
    for at in thread.elements(x.shape()) {
        sum += f64::from(x.get(at));
    }
    // SAFETY: all threads of the block get here.
    let sum = unsafe { thread.sum_of_block(sum) };
    if let Some(at) = thread.of_block(sums.shape()) {
        sums.set(at, sum);
    }
}

/// Threads that work together need all of their block, so the launch is that of a device.
#[test]
fn threads_of_a_block_run_as_on_a_device() {
    let count = if cfg!(miri) { 40 } else { 500 };
    let x: Vec<f32> = numbers(count);
    let size = LaunchSize { grid: (3, 1, 1), block: (32, 1, 1) };
    let [mut expected, mut found] = [[0.0; 3]; 2];
    block_sums::run(size, View::new(&x, [count]), ViewMut::new(&mut expected, [3]));
    launch::<block_sums>(4, size, (View::new(&x, [count]), ViewMut::new(&mut found, [3])));
    assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
}

#[kernel]
fn without_a_loop(thread: Thread<'_>, mut out: ViewMut<'_, f32, 1>) {
    if let Some(at) = thread.elements(out.shape()).next() {
        out.set(at, 1.0);
    }
}

#[kernel]
fn with_a_break(thread: Thread<'_>, mut out: ViewMut<'_, f32, 2>) {
    for at in thread.elements(out.shape()) {
        out.set(at, 1.0);
        if at.at() == [1, 1] {
            break;
        }
    }
}

/// Elements that a kernel leaves would have old values, without a word.
#[test]
fn a_kernel_that_leaves_elements_is_refused() {
    let elements = LaunchSize::for_units(6);
    let message = panic_of(|| launch::<without_a_loop>(1, elements, (ViewMut::new(&mut [0.0; 6], [6]),)));
    assert!(message.starts_with("kernel `without_a_loop` did not take all of its elements"), "{message}");
    assert!(message.contains("`for at in thread.elements(shape)`"), "{message}");
    let message = panic_of(|| launch::<with_a_break>(1, elements, (ViewMut::new(&mut [0.0; 6], [2, 3]),)));
    assert!(message.starts_with("kernel `with_a_break`"), "{message}");
    // Those of one element, and of none, are at their end.
    let mut one = [0.0];
    launch::<without_a_loop>(1, elements, (ViewMut::new(&mut one, [1]),));
    launch::<without_a_loop>(1, elements, (ViewMut::new(&mut [], [0]),));
    assert_eq!(bits(&one), bits(&[1.0]));
}

/// Asks for a number of its thread.
#[kernel]
fn asks(thread: Thread<'_>, which: u32, mut out: ViewMut<'_, u64, 1>) {
    let number = match which {
        0 => thread.number(),
        1 => thread.threads(),
        2 => thread.block(),
        3 => thread.blocks(),
        4 => thread.block_size().into(),
        _ => thread.number_in_block().into(),
    };
    thread.elements(out.shape()).for_each(|at| out.set(at, number));
}

#[test]
fn numbers_of_a_thread_of_a_device_are_refused() {
    let names = ["number", "threads", "block", "blocks", "block_size", "number_in_block"];
    for (which, name) in names.into_iter().enumerate() {
        let mut out = [0; 2];
        let parameters = (which as u32, ViewMut::new(&mut out, [2]));
        let message = panic_of(|| launch::<asks>(1, LaunchSize::for_units(2), parameters));
        let expected =
            format!("kernel `asks` calls `thread.{name}()`, which means nothing in a launch on the CPU");
        assert!(message.starts_with(&expected), "{message}");
        asks::run(
            LaunchSize { grid: (1, 1, 1), block: (2, 1, 1) },
            which as u32,
            ViewMut::new(&mut out, [2]),
        );
    }
}

#[kernel]
fn fails(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>,)>) {
    arrays.map_inplace(&thread, |x| if x > 2.0 { panic!("larger than 2") } else { -x });
}

#[kernel]
fn launches(thread: Thread<'_>, mut out: ViewMut<'_, f32, 1>) {
    thread.elements(out.shape()).for_each(|at| out.set(at, 1.0));
    launch::<without_a_loop>(1, LaunchSize::for_units(1), (ViewMut::new(&mut [0.0], [1]),));
}

fn arrays(x: &mut [f32]) -> Elementwise<'_, (Out<f32>,)> {
    Elementwise::new((ViewMut::<_, 1>::new(x, [3]),)).unwrap()
}

#[kernel]
fn label(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 1, Rows>, label: u32) {
    for row in team.rows(&x) {
        row.set(&mut out, x.get([row.number(), label as usize]));
    }
}

/// Of several kernels, the one that got a wrong label.
#[test]
fn a_wrong_index_names_the_kernel() {
    let mut out = [0.0; 2];
    let message = panic_of(|| {
        let parameters = (View::new(&[0.0; 6], [2, 3]), ViewMut::new(&mut out, [2]), 7_u32);
        launch::<label>(1, LaunchSize::for_rows::<f32>(2, 3), parameters);
    });
    assert_eq!(message, "kernel `label`: the index [0, 7] is outside of the shape [2, 3]");
}

/// A panic passes through the launch, after which the thread launches again.
#[test]
fn panics_of_a_kernel_are_those_of_its_launch() {
    let mut x = [1.0, 2.0, 3.0];
    let size = LaunchSize::for_units(3);
    assert_eq!(panic_of(|| launch::<fails>(1, size, (arrays(&mut x),))), "larger than 2");
    assert_eq!(bits(&x), bits(&[-1.0, -2.0, 3.0]), "what was written before");
    let message = panic_of(|| launch::<launches>(1, size, (ViewMut::new(&mut x, [3]),)));
    assert!(message.contains("is called in a kernel"), "{message}");
    x = [1.0, 2.0, 0.0];
    launch::<fails>(1, size, (arrays(&mut x),));
    assert_eq!(bits(&x), bits(&[-1.0, -2.0, -0.0]));
    let none = LaunchSize { grid: (1, 1, 1), block: (0, 1, 1) };
    let message = panic_of(|| launch::<fails>(1, none, (arrays(&mut x),)));
    assert!(message.contains("1 to 1024 threads in a block"), "{message}");
}

#[kernel(T = [f32, bf16, u8, i64])]
fn copy<T: KernelElement>(thread: Thread<'_>, arrays: Elementwise<'_, (Out<T>, In<T>), 1>) {
    arrays.map(&thread, |x| x);
}

/// Parts of one launch have different elements, whatever their number.
#[test]
fn parts_have_all_elements_together() {
    for count in if cfg!(miri) { 5..8 } else { 0..70 } {
        let from: Vec<i64> = (0..count).collect();
        let mut to = vec![-1; from.len()];
        let arrays = (ViewMut::<_, 1>::new(&mut to, [from.len()]), View::new(&from, [from.len()]));
        launch::<copy<i64>>(7, large(), (Elementwise::new(arrays).unwrap(),));
        assert_eq!(to, from);
    }
}
