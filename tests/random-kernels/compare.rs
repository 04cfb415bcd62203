//! Launches each random kernel over random arrays: by `run`, as a launch on the CPU with one thread and with several, and on a GPU. All leave
//! the same bits, also in the memory between the elements of an array.
#![expect(unused_mut, unused_variables, reason = "one text makes all arrays")]
#![expect(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "random numbers"
)]

use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::kernel::half::{bf16, f16};
use interop_core::kernel::{Elements, Elementwise, KernelElement, View, ViewMut};
use interop_core::{CudaArray, Element, HostVec, KernelModule, LaunchScope, LaunchSize, SharedBuffer};
use interop_random_kernels as kernels;
use rayon::ThreadPoolBuilder;

// SAFETY: the PTX is compiled from these kernels.
#[expect(unsafe_code, reason = "names the PTX")]
static KERNELS: KernelModule = unsafe { KernelModule::new(kernels::PTX) };

/// The launches of each kernel.
const LAUNCHES: u64 = 24;

const EXTENTS: [usize; 16] = [0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 100, 127, 257];

/// Where a kernel runs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Run,
    Cpu,
    Gpu,
}

/// A launch of a kernel: with one seed it is the same in every place.
struct Launch {
    place: Place,
    random: Random,
    /// The depth, rows and columns.
    shape: [usize; 3],
    threads: usize,
}

/// Makes the arrays of a kernel, launches it, and returns the bits of all arrays.
type Case = fn(Launch) -> Vec<Vec<u64>>;

impl Launch {
    fn new(seed: u64, place: Place) -> Self {
        let mut random = Random(seed);
        let shape = [random.below(4), random.pick(&EXTENTS), random.pick(&EXTENTS)];
        Self { place, shape, threads: random.below(1000), random }
    }

    /// Threads for elements: few, as many, or so many that threads of the CPU share them. They change no result.
    fn units(&self) -> LaunchSize {
        match self.threads % 3 {
            0 if self.place != Place::Run => LaunchSize { grid: (400, 1, 1), block: (256, 1, 1) },
            1 if self.place != Place::Run => LaunchSize::for_units(self.shape.into_iter().product()),
            _ => LaunchSize { grid: (2, 1, 1), block: (3, 1, 1) },
        }
    }

    /// Threads for rows. The number of those in a team decides the order of sums.
    fn rows(&self) -> LaunchSize {
        let ([_, rows, columns], teams) = (self.shape, [1, 2, 8, 32, 64, 96, 128, 256, 512]);
        let size = match teams.get(self.threads % 12) {
            Some(threads) => LaunchSize::for_teams(rows, *threads),
            None => LaunchSize::for_rows::<f32>(rows, columns),
        };
        let blocks = if self.place == Place::Run { 3 } else { size.grid.0.max(400) };
        LaunchSize { grid: (blocks, 1, 1), ..size }
    }

    /// An array with any order of axes, gaps between them, and first element; one that is read may repeat its elements.
    fn array<T: Number, const N: usize>(
        &mut self,
        name: &str,
        shape: [usize; N],
        is_written: bool,
    ) -> Tensor<T, N> {
        let random = &mut self.random;
        let mut order: Vec<usize> = (0..N).rev().collect();
        order.swap(0, if random.below(3) == 0 { random.below(N) } else { 0 });
        let (mut strides, mut step) = ([0; N], random.pick(&[1, 1, 1, 2]));
        for axis in order {
            strides[axis] = step as isize;
            step = step * shape[axis].max(1) + random.pick(&[0, 0, 1, 3, 8]);
        }
        if !is_written && random.below(6) == 0 {
            strides[random.below(N)] = 0;
        }
        let mut first = random.pick(&[0, 0, 1, 2, 8]);
        if random.below(6) == 0 {
            let axis = random.below(N);
            first += shape[axis].saturating_sub(1) * strides[axis].unsigned_abs();
            strides[axis] = -strides[axis];
        }
        // The address of the array over whose rows a team loops decides the order of sums. On the CPU its first element counts as aligned.
        if name == "x" {
            first = first.next_multiple_of(8);
        }
        let is_odd = random.below(4) == 0;
        let elements: Vec<T> = (0..first + step + 8)
            .map(|_| if name == "counts" { T::default() } else { T::random(random, is_odd) })
            .collect();
        let buffer = match self.place {
            Place::Gpu => {
                SharedBuffer::new(CudaBuffer::from_slice(MemoryKind::Device, 0, &elements).unwrap())
            }
            _ => SharedBuffer::new(HostVec::from(elements.clone())),
        };
        let data = buffer.byte_offset((first * size_of::<T>()) as isize).unwrap();
        let array = Array { data, shape: shape.to_vec(), strides: strides.to_vec() };
        Tensor { elements, first, shape, strides, array }
    }
}

#[derive(CudaArray)]
struct Array {
    #[cuda_array(data)]
    data: SharedBuffer,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
}

/// An array whose elements are in a slice, for `run`, and in a buffer, for launches.
struct Tensor<T, const N: usize> {
    elements: Vec<T>,
    first: usize,
    shape: [usize; N],
    strides: [isize; N],
    array: Array,
}

impl<T: Number, const N: usize> Tensor<T, N> {
    fn view(&self) -> View<'_, T, N> {
        View::strided(&self.elements, self.first, self.shape, self.strides)
    }

    fn view_mut<M>(&mut self) -> ViewMut<'_, T, N, M> {
        ViewMut::strided(&mut self.elements, self.first, self.shape, self.strides)
    }

    /// The bits of the whole memory.
    fn bits(&self, place: Place) -> Vec<u64> {
        if place == Place::Run {
            return self.elements.iter().copied().map(Number::bits).collect();
        }
        let data = self.array.data.byte_offset(-((self.first * size_of::<T>()) as isize)).unwrap();
        let all = Array { data, shape: vec![self.elements.len()], strides: vec![1] };
        all.to_vec::<T>().unwrap().into_iter().map(Number::bits).collect()
    }
}

/// An element of random arrays. All NaNs have the same bits.
trait Number: Element + KernelElement + Default {
    fn random(random: &mut Random, is_odd: bool) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn random(random: &mut Random, is_odd: bool) -> Self {
                if is_odd { random.next() as Self } else { random.below(100) as Self }
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ty: $from:expr;)*) => {$(
        impl Number for $type {
            fn random(random: &mut Random, is_odd: bool) -> Self {
                let number = (random.below(1 << 30) as f64 / f64::from(1 << 29) - 1.0) * random.pick(&[0.1, 1.0, 30.0]);
                let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, 3e-7, 3e38];
                $from(if is_odd && random.below(16) == 0 { random.pick(&odd) } else { number })
            }

            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_bits().into() }
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u32 u64);
floats!(f32: |x| x as f32; f64: |x| x; bf16: bf16::from_f64; f16: f16::from_f64;);

include!(concat!(env!("OUT_DIR"), "/cases.rs"));

/// Compares launches of all kernels in a place with `run`.
fn assert_as_run(place: Place, launch: impl Fn(Case, Launch) -> Vec<Vec<u64>>) {
    let (mut wrong, mut elements) = (Vec::new(), 0);
    for (name, case) in CASES {
        for seed in 0..LAUNCHES {
            let expected = case(Launch::new(seed, Place::Run));
            let found = launch(*case, Launch::new(seed, place));
            let pairs = expected.iter().zip(&found).enumerate();
            elements += expected.iter().map(Vec::len).sum::<usize>();
            for (array, (expected, found)) in pairs {
                let pairs = expected.iter().zip(found).enumerate();
                if let Some((at, (expected, found))) =
                    pairs.into_iter().find(|(_, (one, other))| one != other)
                {
                    let Launch { shape, threads, .. } = Launch::new(seed, place);
                    wrong.push(format!(
                        "{name}, launch {seed} of {shape:?}, {threads} threads: array {array} has {found:x} at {at}, and {expected:x} in `run`"
                    ));
                }
            }
        }
    }
    println!(
        "{} kernels, {LAUNCHES} launches each, {elements} elements: {} differ from `run`",
        CASES.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn launches_on_the_cpu_have_the_bits_of_a_run() {
    for threads in [1, 5] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_as_run(Place::Cpu, |case, launch| pool.install(|| case(launch)));
    }
}

#[test]
#[cfg_attr(
    not(has_ptx),
    ignore = "`cargo xtask gpu-bundle` builds it with the PTX of these kernels, for a GPU"
)]
fn launches_on_a_gpu_have_the_bits_of_a_run() {
    assert_as_run(Place::Gpu, |case, launch| case(launch));
}

include!("random.rs");
