//! Compares kernels in Rust with the same algorithms in C++, on one GPU in one run:
//! `cargo bench --package interop-benches --bench rust_kernels`.
//!
//! `cargo xtask ptx` compiles those in C++ (`kernels/twins.cu`), which are not in the repository as PTX.
//!
//! Both have the same names and parameters, so one launch runs either. The program prints the rates, and fails if results differ
//! or if a rate in Rust is less than its part of the one in C++. On the simulated driver it compares results only.
#![expect(unsafe_code, reason = "names the PTX of the kernels")]
#![expect(clippy::cast_precision_loss, reason = "small numbers, and rates")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;
use std::{env, fs};

use interop_core::cuda::{self, CudaBuffer, MemoryKind};
use interop_core::{CudaArray, Device, Element, KernelModule, LaunchScope, LaunchSize, Result, StreamHandle};
use interop_demo_kernels::{KERNELS_PTX, MOST_PARTS, blur_size, kernels};

// SAFETY: the PTX is compiled from the functions of `interop_demo_kernels::kernels`.
static RUST: KernelModule = unsafe { KernelModule::new(KERNELS_PTX) };
static CPP: LazyLock<KernelModule> = LazyLock::new(|| {
    let ptx = twins().expect("`main` has found it").leak();
    // SAFETY: `kernels/twins.cu` has kernels with the names and the parameters of those functions.
    unsafe { KernelModule::new(ptx) }
});

/// The PTX of the kernels in C++: beside this program, or where `cargo xtask ptx` writes it.
fn twins() -> Option<String> {
    let beside = env::current_exe().ok()?.with_file_name("twins.ptx");
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/twins/twins.ptx");
    fs::read_to_string(beside).or_else(|_| fs::read_to_string(built)).ok()
}

const ROUNDS: usize = 9;
const LAUNCHES: u32 = 30;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Array {
    #[cuda_array(data)]
    data: CudaBuffer,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Option<Vec<isize>>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

impl Array {
    /// An array of small numbers in `count` elements of memory.
    fn new(count: usize, shape: &[usize], strides: Option<&[isize]>) -> Result<Self> {
        let numbers: Vec<f32> = (0..count).map(|number| (number % 8191) as f32 / 64.0).collect();
        Ok(Self { shape: shape.to_vec(), strides: strides.map(<[isize]>::to_vec), ..Self::of(&numbers)? })
    }

    /// A row of these numbers.
    fn of<T: Element>(numbers: &[T]) -> Result<Self> {
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, numbers)?;
        Ok(Self { data, shape: vec![numbers.len()], strides: None, stream: StreamHandle::LegacyDefault })
    }
}

/// The arrays of a comparison.
struct Arrays {
    out: Array,
    left: Array,
    right: Array,
    /// The partial sums, of `f64`.
    parts: Array,
    /// The bins of a histogram, of `u32`.
    counts: Array,
}

/// A launch from one of the modules.
type Launch = fn(&KernelModule, &mut Arrays) -> Result<()>;

/// A comparison.
struct Case {
    name: &'static str,
    /// How often each byte of an array is read or written, for all arrays.
    passes: f64,
    /// The least part of the rate in C++.
    least: f64,
    layout: Layout,
    launch: Launch,
}

#[derive(Clone, Copy)]
enum Layout {
    Row,
    Transposed,
    /// Every second element of a row.
    Second,
    /// Rows with a gap, of an odd number of elements.
    Gaps,
    /// Three axes that do not merge, of odd extents.
    Cube,
    Image,
}

impl Layout {
    fn arrays(self, side: usize) -> Result<Arrays> {
        let len = side * side;
        let row = side as isize;
        let (shape, strides) = match self {
            Self::Row => (vec![len], None),
            Self::Transposed => (vec![side, side], Some(vec![1, row])),
            Self::Second => (vec![side, side / 2], Some(vec![row, 2])),
            Self::Gaps => (vec![side, side - 1], Some(vec![row, 1])),
            Self::Cube => (vec![side / 4, 3, side - 1], Some(vec![4 * row, row, 1])),
            Self::Image => (vec![side, side / 4, 4], None),
        };
        let new = || Array::new(len, &shape, strides.as_deref());
        let (parts, counts) = (Array::of(&[0.0_f64; MOST_PARTS as usize])?, Array::of(&[0_u32; 256])?);
        Ok(Arrays { out: new()?, left: new()?, right: new()?, parts, counts })
    }
}

fn scale(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let array = scope.elementwise((&mut arrays.out,))?;
    scope.launch(module, array.launch_size(), kernels::scale_f32::with(array, 1.25))?;
    scope.finish()
}

fn add(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let all = scope.elementwise((&mut arrays.out, &arrays.left, &arrays.right))?;
    scope.launch(module, all.launch_size(), kernels::vector_add::with(all))?;
    scope.finish()
}

fn fill(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let array = scope.elementwise((&mut arrays.out,))?;
    scope.launch(module, array.launch_size(), kernels::fill_f32::with(array, 7.0))?;
    scope.finish()
}

fn sum(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let array = scope.elementwise((&arrays.left,))?;
    let size = array.launch_size_within(MOST_PARTS);
    // One for each block.
    arrays.parts.shape = vec![size.grid.0 as usize];
    let parts = scope.write(&mut arrays.parts)?;
    scope.launch(module, size, kernels::sum_f32::with(array, parts))?;
    scope.finish()
}

fn histogram(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let (array, counts) = (scope.elementwise((&arrays.left,))?, scope.write(&mut arrays.counts)?);
    scope.launch(module, array.launch_size(), kernels::histogram_f32::with(array, 0.0, 2.0, counts))?;
    scope.finish()
}

fn row(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let row = scope.write(&mut arrays.out)?;
    scope.launch(module, LaunchSize::for_units(row.numel()), kernels::scale_row::with(row, 1.25))?;
    scope.finish()
}

fn packs(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let row = scope.write(&mut arrays.out)?;
    scope.launch(module, LaunchSize::for_units(row.numel() / 4), kernels::scale_packs::with(row, 1.25))?;
    scope.finish()
}

fn blur(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let [height, width, channels] = arrays.out.shape[..] else { unreachable!("an image has three axes") };
    let scope = LaunchScope::new();
    let arguments = kernels::blur_f32::with(scope.read(&arrays.left)?, scope.write(&mut arrays.out)?);
    scope.launch(module, blur_size(height, width, channels), arguments)?;
    scope.finish()
}

fn blur_by_pixel(module: &KernelModule, arrays: &mut Arrays) -> Result<()> {
    let scope = LaunchScope::new();
    let (from, to) = (scope.read(&arrays.left)?, scope.write(&mut arrays.out)?);
    let size = LaunchSize::for_units(to.numel());
    scope.launch(module, size, kernels::blur_pixels::with(from, to))?;
    scope.finish()
}

const CASES: [Case; 16] = [
    Case { name: "scale", passes: 2.0, least: 0.95, layout: Layout::Row, launch: scale },
    Case { name: "scale, transposed", passes: 2.0, least: 0.95, layout: Layout::Transposed, launch: scale },
    Case { name: "scale, every second", passes: 2.0, least: 0.95, layout: Layout::Second, launch: scale },
    Case { name: "scale, rows with gaps", passes: 2.0, least: 0.95, layout: Layout::Gaps, launch: scale },
    Case { name: "scale, cube", passes: 1.5, least: 0.95, layout: Layout::Cube, launch: scale },
    Case { name: "add, cube", passes: 2.25, least: 0.95, layout: Layout::Cube, launch: add },
    Case { name: "sum, every second", passes: 1.0, least: 0.95, layout: Layout::Second, launch: sum },
    Case { name: "sum, cube", passes: 0.75, least: 0.95, layout: Layout::Cube, launch: sum },
    Case { name: "add", passes: 3.0, least: 0.95, layout: Layout::Row, launch: add },
    Case { name: "fill", passes: 1.0, least: 0.95, layout: Layout::Row, launch: fill },
    Case { name: "sum", passes: 1.0, least: 0.95, layout: Layout::Row, launch: sum },
    Case { name: "histogram", passes: 1.0, least: 0.95, layout: Layout::Row, launch: histogram },
    Case { name: "row by elements", passes: 2.0, least: 0.95, layout: Layout::Row, launch: row },
    Case { name: "row by packs", passes: 2.0, least: 0.95, layout: Layout::Row, launch: packs },
    Case { name: "blur by tiles", passes: 2.0, least: 0.95, layout: Layout::Image, launch: blur },
    Case { name: "blur by pixels", passes: 2.0, least: 0.8, layout: Layout::Image, launch: blur_by_pixel },
];

fn finish() -> Result<()> {
    cuda::stream_synchronize(StreamHandle::LegacyDefault, Device::cuda(0))
}

impl Case {
    /// Whether both modules leave the same bits in new arrays.
    fn is_equal(&self, side: usize) -> Result<bool> {
        let results = |module| -> Result<_> {
            let mut arrays = self.layout.arrays(side)?;
            (self.launch)(module, &mut arrays)?;
            let out: Vec<u32> = arrays.out.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect();
            let parts: Vec<u64> = arrays.parts.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect();
            Ok((out, parts, arrays.counts.to_vec::<u32>()?))
        };
        Ok(results(&RUST)? == results(&CPP)?)
    }

    /// The medians of the rates of both modules, in GB/s. Their rounds take turns.
    fn rates(&self, side: usize) -> Result<[f64; 2]> {
        let mut arrays = self.layout.arrays(side)?;
        let bytes = self.passes * (side * side * size_of::<f32>()) as f64;
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (module, rates) in [&RUST, &*CPP].into_iter().zip(&mut rates) {
                (self.launch)(module, &mut arrays)?;
                finish()?;
                let start = Instant::now();
                (0..LAUNCHES).try_for_each(|_| (self.launch)(module, &mut arrays))?;
                finish()?;
                rates.push(bytes * f64::from(LAUNCHES) / start.elapsed().as_secs_f64() / 1e9);
            }
        }
        Ok(rates.map(|mut rates| {
            rates.sort_unstable_by(f64::total_cmp);
            rates[ROUNDS / 2]
        }))
    }
}

/// Compares the results, also of sides that are no multiple of anything, and the rates. Returns whether all is as it must be.
fn compare(is_timed: bool) -> Result<bool> {
    let mut is_right = true;
    println!("| kernel | Rust, GB/s | C++, GB/s | part | at least |\n|---|---|---|---|---|");
    for case in &CASES {
        for side in [4, 60, 1004] {
            if (is_timed || side < 100) && !case.is_equal(side)? {
                println!("{} of {side} x {side}: the results differ", case.name);
                is_right = false;
            }
        }
        if is_timed {
            let [rust, cpp] = case.rates(8192)?;
            let (part, least) = (rust / cpp, case.least);
            println!("| {} | {rust:.0} | {cpp:.0} | {part:.3} | {least} |", case.name);
            is_right &= part >= least;
        }
    }
    Ok(is_right)
}

/// Registers the kernels with the simulated driver. Returns whether there is one.
fn is_simulated() -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(sim) = simulated_cuda::find() {
        use interop_demo_kernels::host::find;
        for name in interop_demo_kernels::entries(KERNELS_PTX) {
            let kernel = find::<simulated_cuda::DeviceMemory>(name).expect("a kernel that the host has, too");
            sim.register_kernel(name, kernel.sizes, kernel.run);
        }
        return true;
    }
    false
}

fn main() -> ExitCode {
    if !cuda::is_available() {
        println!("skipped: no CUDA driver on this machine");
        return ExitCode::SUCCESS;
    }
    if twins().is_none() {
        println!("skipped: `cargo xtask ptx` has not compiled the kernels in C++");
        return ExitCode::SUCCESS;
    }
    match compare(!is_simulated()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
