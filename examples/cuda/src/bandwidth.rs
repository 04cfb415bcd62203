//! Measures the kernels against a copy by the driver, and a launch with an array argument against one with plain
//! numbers.
#![expect(unsafe_code, reason = "a kernel does what its source says")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use interop_core::{CudaArray, LaunchScope};
use interop_demo_kernels::{Arrays, KERNELS_PTX, blur_size, kernels};

use crate::{KERNELS, Outcome};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Vector {
    #[cuda_array(data)]
    values: CudaSlice<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3], export)]
struct Picture {
    #[cuda_array(data)]
    pixels: CudaSlice<f32>,
    height: usize,
    width: usize,
}

type Any<T> = Result<T, Box<dyn std::error::Error>>;

/// Times a copy, `vector_add` and `blur_f32` over `len` elements each, and launches.
///
/// # Errors
///
/// Returns an error if a driver call fails.
pub fn run(len: usize) -> Outcome {
    let context = interop_core::adapters::cudarc::context(0)?;
    let stream = context.new_stream()?;
    let bench = Bench { context, stream };
    let (copy, add) = bench.copy_and_add(len)?;
    let width = 8192.min(len / 3).max(1);
    let height = (len / 3 / width).max(1);
    let blur = bench.blur(height, width)?;
    let mut text = String::from("| what | GB/s | of the copy |\n|---|---|---|\n");
    let blur_name = format!("blur, {height} x {width} x 3");
    for (what, rate) in [("copy by the driver", copy), ("vector_add", add), (&blur_name, blur)] {
        writeln!(text, "| {what} | {:.0} | {:.0} % |", rate / 1e9, 100.0 * rate / copy)?;
    }
    text.push_str(&bench.launches()?);
    Ok(text)
}

/// The context and the stream of all measurements.
struct Bench {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Bench {
    fn load(&self, name: &str) -> Any<CudaFunction> {
        Ok(self.context.load_module(Ptx::from_src(KERNELS_PTX))?.load_function(name)?)
    }

    /// The median of `ROUNDS` times in seconds, measured with events before and after the work.
    fn seconds(&self, mut work: impl FnMut() -> Any<()>) -> Any<f64> {
        const ROUNDS: usize = 15;
        let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let (before, after) = (self.context.new_event(timing)?, self.context.new_event(timing)?);
            before.record(&self.stream)?;
            work()?;
            after.record(&self.stream)?;
            times.push(f64::from(before.elapsed_ms(&after)?) / 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }

    /// The bytes per second that a copy by the driver reads and writes, and those of `vector_add`.
    fn copy_and_add(&self, len: usize) -> Any<(f64, f64)> {
        let vector = || -> Any<Vector> { Ok(Vector { values: self.stream.alloc_zeros::<f32>(len)?, len }) };
        let (left, right, mut sum) = (vector()?, vector()?, vector()?);
        let bytes = (len * size_of::<f32>()) as f64;
        let copied = self.seconds(|| Ok(self.stream.memcpy_dtod(&left.values, &mut sum.values)?))?;

        let added = self.seconds(|| {
            let scope = LaunchScope::new();
            let arrays = scope.elementwise((&mut sum, &left, &right))?;
            scope.launch(&KERNELS, arrays.launch_size(), kernels::vector_add::with(arrays))?;
            Ok(scope.finish()?)
        })?;
        Ok((2.0 * bytes / copied, 3.0 * bytes / added))
    }

    /// The bytes per second that `blur_f32` reads and writes.
    fn blur(&self, height: usize, width: usize) -> Any<f64> {
        let picture = || -> Any<Picture> {
            Ok(Picture { pixels: self.stream.alloc_zeros::<f32>(height * width * 3)?, height, width })
        };
        let (from, mut to) = (picture()?, picture()?);
        let blurred = self.seconds(|| {
            let scope = LaunchScope::new();
            let arguments = kernels::blur_f32::with(scope.read(&from)?, scope.write(&mut to)?);
            scope.launch(&KERNELS, blur_size(height, width, 3), arguments)?;
            Ok(scope.finish()?)
        })?;
        Ok(2.0 * (height * width * 3 * size_of::<f32>()) as f64 / blurred)
    }

    /// Measures a launch with an array that was prepared before, and a launch with the same bytes as plain numbers.
    fn launches(&self) -> Any<String> {
        const ROUNDS: usize = 15;
        const LAUNCHES: u32 = 1000;
        let stream = &self.stream;
        let kernel = self.load("fill_f32")?;
        let mut vector = Vector { values: stream.alloc_zeros::<f32>(256)?, len: 256 };
        let array: Arrays<'_, 1> = Arrays::new([&vector.view_mut::<f32, 1>()?.kernel_view_mut()?])?;
        // SAFETY: both types consist of integers without padding.
        let bytes = Bytes(unsafe { core::mem::transmute::<Arrays<'_, 1>, [u64; WORDS]>(array) });
        let value = 1.0_f32;
        let one = LaunchConfig::for_num_elems(256);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (which, times) in times.iter_mut().enumerate() {
                stream.synchronize()?;
                let start = Instant::now();
                for _ in 0..LAUNCHES {
                    if which == 0 {
                        // SAFETY: `fill_f32` takes the bytes of this array and a value.
                        unsafe { stream.launch_builder(&kernel).arg(&bytes).arg(&value).launch(one)? };
                    } else {
                        // SAFETY: `fill_f32` takes this array and a value.
                        unsafe { stream.launch_builder(&kernel).arg(&array).arg(&value).launch(one)? };
                    }
                }
                times.push(start.elapsed().as_nanos() as f64 / f64::from(LAUNCHES));
            }
        }
        let [bare, viewed] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[0]
        });
        Ok(format!(
            "launch: {bare:.0} ns with plain numbers, {viewed:.0} ns with an array, ratio {:.3}\n",
            viewed / bare
        ))
    }
}

/// The bytes of an argument, without its type.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bytes([u64; WORDS]);

const WORDS: usize = size_of::<Arrays<'_, 1>>() / 8;

// SAFETY: the struct contains only integers.
unsafe impl cudarc::driver::DeviceRepr for Bytes {}
