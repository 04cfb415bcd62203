//! Measures launches over arrays of the CPU beside loops over slices: `cargo bench --package interop-benches --bench host_launches`,
//! `-- <words>` for a part of it.
//!
//! It prints one table of milliseconds, the best of several rounds; the columns of a row take turns. `RAYON_NUM_THREADS=1` gives a launch one
//! thread, as the loops have. Then the program fails if a launch takes longer than its limit times the loop.
#![expect(unsafe_code, reason = "names a PTX that is not loaded")]
#![expect(clippy::cast_precision_loss, reason = "small whole numbers in floats")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interop_core::kernel::{
    Arguments, Atomic, Elementwise, In, Kernel, Out, Rows, Team, Thread, View, ViewMut, kernel, math,
};
use interop_core::{CudaArray, HostVec, KernelModule, LaunchScope, LaunchSize};

// SAFETY: launches over arrays of the CPU do not load it.
static KERNELS: KernelModule = unsafe { KernelModule::new("") };

const ROUNDS: usize = 15;

/// The number of rows and of columns: 16 MB of `f32`.
const SIDE: usize = 2048;
const COUNT: usize = SIDE * SIDE;

/// Accumulators that a loop over a slice needs, so that additions do not wait for one another.
const LANES: usize = 32;

#[kernel]
fn scale(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>,)>, factor: f32) {
    arrays.map_inplace(&thread, |x| x * factor);
}

#[kernel]
fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>, In<f32>)>) {
    arrays.map(&thread, |left, right| left + right);
}

#[kernel]
fn sigmoid(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {
    arrays.map(&thread, |x| 1.0 / (1.0 + math::exp(-x)));
}

#[kernel(same_shape(out, left, right))]
fn blend_one_axis(
    thread: Thread<'_>,
    mut out: ViewMut<'_, f32, 1>,
    left: View<'_, f32, 1>,
    right: View<'_, f32, 1>,
) {
    for at in thread.elements(out.shape()) {
        out.set(at, left.get(at) + 0.5 * right.get(at));
    }
}

#[kernel(same_shape(out, left, right))]
fn blend_by_for(
    thread: Thread<'_>,
    mut out: ViewMut<'_, f32, 2>,
    left: View<'_, f32, 2>,
    right: View<'_, f32, 2>,
) {
    for at in thread.elements(out.shape()) {
        out.set(at, left.get(at) + 0.5 * right.get(at));
    }
}

#[kernel(same_shape(out, left, right))]
fn blend_by_for_each(
    thread: Thread<'_>,
    mut out: ViewMut<'_, f32, 2>,
    left: View<'_, f32, 2>,
    right: View<'_, f32, 2>,
) {
    thread.elements(out.shape()).for_each(|at| out.set(at, left.get(at) + 0.5 * right.get(at)));
}

#[kernel]
fn histogram(thread: Thread<'_>, bytes: View<'_, u8, 1>, counts: ViewMut<'_, u32, 1, Atomic>) {
    for at in thread.elements(bytes.shape()) {
        counts.add([bytes.get(at).into()], 1);
    }
}

#[kernel(same_rows(x, sums))]
fn row_sum(mut team: Team<'_>, x: View<'_, f32, 2>, mut sums: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        row.set(&mut sums, row.sum(&x, |x| x));
    }
}

#[kernel(same_shape(x, out))]
fn rms_norm(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let factor = math::rsqrt(row.sum(&x, |x| x * x) / row.columns() + 1e-6);
        row.write(&mut out, &x, move |x| x * factor);
    }
}

#[kernel(same_shape(x, out))]
fn softmax(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        let sum = row.sum(&x, move |x| math::exp(x - max));
        row.write(&mut out, &x, move |x| math::exp(x - max) / sum);
    }
}

/// An array of any shape and layout.
#[derive(CudaArray)]
struct Array<T> {
    #[cuda_array(data)]
    values: HostVec<T>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Option<Vec<isize>>,
}

impl Array<f32> {
    fn new(shape: &[usize]) -> Self {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|at| (at % 1000) as f32 / 500.0 - 1.0).collect();
        Self { values: HostVec::from(values), shape: shape.to_vec(), strides: None }
    }
}

fn launch<K: Kernel>(scope: &LaunchScope<'_>, size: LaunchSize, arguments: Arguments<'_, K>) {
    scope.launch(&KERNELS, size, arguments).expect("a launch on the CPU");
}

/// The table, and whether a row is over its limit.
struct Table {
    words: Vec<String>,
    is_over: bool,
}

impl Table {
    /// Prints a row: a loop over slices, and a launch, which takes turns.
    fn row(&mut self, name: &str, limit: f64, slices: &mut dyn FnMut(), ours: &mut dyn FnMut()) {
        if !self.words.iter().all(|word| name.contains(word)) {
            return;
        }
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            best = [timed(slices).min(best[0]), timed(ours).min(best[1])];
        }
        let [slices, ours] = best.map(|time| time.as_secs_f64() * 1e3);
        let mark = if ours > limit * slices { "over its limit" } else { "" };
        self.is_over |= !mark.is_empty();
        println!("{name:<32} {slices:>9.3} {ours:>9.3} {:>7.2} {limit:>7.2} {mark}", ours / slices);
    }

    fn elementwise(&mut self) {
        let (mut slice, other) = (vec![1.0_f32; COUNT], vec![0.5_f32; COUNT]);
        let [mut out, left, right] = [(); 3].map(|()| Array::new(&[SIDE, SIDE]));
        let turned = Array { strides: Some(vec![1, 2048]), ..Array::new(&[SIDE, SIDE]) };
        let map = |out: &mut Array<f32>, left: &Array<f32>| {
            let scope = LaunchScope::new();
            let arrays = scope.elementwise((out, left, &right)).expect("one shape");
            launch(&scope, arrays.launch_size(), add::with(arrays));
        };
        let mut added = vec![0.0_f32; COUNT];
        let mut add_slices = || {
            added.iter_mut().zip(&slice).zip(&other).for_each(|((sum, x), y)| *sum = x + y);
            black_box(&added);
        };
        self.row("add", 1.2, &mut add_slices, &mut || map(&mut out, &left));
        self.row("add, one array transposed", 3.5, &mut add_slices, &mut || map(&mut out, &turned));
        let scaled = &mut || slice.iter_mut().for_each(|x| *x *= 1.000_1);
        self.row("scale in place", 1.2, scaled, &mut || {
            let scope = LaunchScope::new();
            let arrays = scope.elementwise((&mut out,)).expect("one shape");
            launch(&scope, arrays.launch_size(), scale::with(arrays, 1.000_1));
        });
        let mut of_slice = vec![0.0_f32; COUNT];
        let method = &mut || {
            of_slice.iter_mut().zip(&other).for_each(|(y, x)| *y = 1.0 / (1.0 + (-x).exp()));
            black_box(&of_slice);
        };
        self.row("sigmoid, beside `f32::exp`", 0.7, method, &mut || {
            let scope = LaunchScope::new();
            let arrays = scope.elementwise((&mut out, &left)).expect("one shape");
            launch(&scope, arrays.launch_size(), sigmoid::with(arrays));
        });
    }

    fn loops(&mut self) {
        let (mut slice, first, second) = (vec![0.0_f32; COUNT], vec![1.0_f32; COUNT], vec![0.5_f32; COUNT]);
        let mut blend = || {
            slice.iter_mut().zip(&first).zip(&second).for_each(|((out, x), y)| *out = x + 0.5 * y);
            black_box(&slice);
        };
        let size = LaunchSize::for_units(COUNT);
        let [mut out, left, right] = [(); 3].map(|()| Array::new(&[COUNT]));
        self.row("blend, `for`, one axis", 1.5, &mut blend, &mut || {
            let scope = LaunchScope::new();
            let (left, right) = (scope.read(&left), scope.read(&right));
            launch(&scope, size, blend_one_axis::try_with(scope.write(&mut out), left, right).expect("rows"));
        });
        let [mut out, left, right] = [(); 3].map(|()| Array::new(&[SIDE, SIDE]));
        self.row("blend, `for_each`, two axes", 1.5, &mut blend, &mut || {
            let scope = LaunchScope::new();
            let (left, right) = (scope.read(&left), scope.read(&right));
            launch(
                &scope,
                size,
                blend_by_for_each::try_with(scope.write(&mut out), left, right).expect("images"),
            );
        });
        self.row("blend, `for`, two axes", 1.5, &mut blend, &mut || {
            let scope = LaunchScope::new();
            let (left, right) = (scope.read(&left), scope.read(&right));
            launch(&scope, size, blend_by_for::try_with(scope.write(&mut out), left, right).expect("images"));
        });
        let bytes: Vec<u8> = (0..=250).cycle().take(COUNT * 4).collect();
        let array = Array { values: HostVec::from(bytes.clone()), shape: vec![bytes.len()], strides: None };
        let mut counts = Array { values: HostVec::from(vec![0_u32; 256]), shape: vec![256], strides: None };
        let counted = &mut || {
            let mut counts = [0_u32; 256];
            for byte in &bytes {
                counts[usize::from(*byte)] += 1;
            }
            black_box(counts);
        };
        self.row("histogram", 2.6, counted, &mut || {
            let scope = LaunchScope::new();
            let arguments = histogram::try_with(scope.read(&array), scope.write(&mut counts)).expect("bytes");
            launch(&scope, LaunchSize::for_units(bytes.len()), arguments);
        });
    }

    fn rows(&mut self, columns: usize) {
        let rows = COUNT / columns;
        let (x, mut out, mut sums) =
            (Array::new(&[rows, columns]), Array::new(&[rows, columns]), Array::new(&[rows]));
        let slice: Vec<f32> = x.to_vec().expect("host memory");
        let size = LaunchSize::for_rows::<f32>(rows, columns);
        let mut of_slice = vec![0.0_f32; slice.len()];
        let summed = &mut || {
            slice.chunks_exact(columns).for_each(|row| _ = black_box(sum_of(row, |x| x)));
        };
        self.row(&format!("sum of {columns} columns"), 1.5, summed, &mut || {
            let scope = LaunchScope::new();
            launch(&scope, size, row_sum::try_with(scope.read(&x), scope.write(&mut sums)).expect("rows"));
        });
        let normed = &mut || {
            for (row, out) in slice.chunks_exact(columns).zip(of_slice.chunks_exact_mut(columns)) {
                let factor = (sum_of(row, |x| x * x) / columns as f32 + 1e-6).sqrt().recip();
                out.iter_mut().zip(row).for_each(|(out, x)| *out = x * factor);
            }
        };
        self.row(&format!("rms_norm of {columns} columns"), 1.5, normed, &mut || {
            let scope = LaunchScope::new();
            launch(&scope, size, rms_norm::try_with(scope.read(&x), scope.write(&mut out)).expect("rows"));
        });
        let soft = &mut || {
            for (row, out) in slice.chunks_exact(columns).zip(of_slice.chunks_exact_mut(columns)) {
                let max = row.iter().fold(f32::NEG_INFINITY, |max, x| max.max(*x));
                let sum = sum_of(row, |x| (x - max).exp());
                out.iter_mut().zip(row).for_each(|(out, x)| *out = (x - max).exp() / sum);
            }
        };
        self.row(&format!("softmax of {columns} columns"), 0.8, soft, &mut || {
            let scope = LaunchScope::new();
            launch(&scope, size, softmax::try_with(scope.read(&x), scope.write(&mut out)).expect("rows"));
        });
    }
}

fn timed(work: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Sums a function in several accumulators, which the compiler vectorizes.
fn sum_of(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|x| f(*x)).sum();
    chunks.for_each(|chunk| sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f(*x)));
    sums.iter().sum::<f32>() + rest
}

fn main() -> ExitCode {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut table = Table { words, is_over: false };
    println!("{:<32} {:>9} {:>9} {:>7} {:>7}", "milliseconds", "slices", "launch", "ratio", "limit");
    table.elementwise();
    table.loops();
    for columns in [100, 1024, 4096, 32_768] {
        table.rows(columns);
    }
    let is_one_thread = std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1");
    if table.is_over && is_one_thread { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
