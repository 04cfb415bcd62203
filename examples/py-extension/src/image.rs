//! Python functions that take and return a derived struct.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a mean is computed in double"
)]

use interop_core::{CudaArray, HostVec, Lease, LeaseMut, cuda};
use pyo3::prelude::*;
use std::num::NonZero;
use std::thread;

/// A colour image of `f32` in memory that the host can access. The storage type determines who owns the memory.
#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3], device = ["cpu", "cuda_host", "cuda_managed"], python)]
pub(crate) struct Image<S> {
    #[cuda_array(data)]
    pixels: S,
    height: usize,
    width: usize,
}

const CHANNELS: usize = 3;

/// Blurs the image in place: every pixel becomes the mean of the square of side `2 * radius + 1` around it.
///
/// The image may be any writable array: a NumPy array, or an `Array` of this module. JAX's arrays are read-only, so
/// they raise an error.
#[pyfunction]
pub(crate) fn blur_(py: Python<'_>, mut obj: Image<LeaseMut<f32>>, radius: usize) -> PyResult<()> {
    let (height, width) = (obj.height, obj.width);
    wait(py, &obj)?;
    // The pass over rows reads from a copy. The pass over columns writes its result to the image. Nobody else writes or reads
    // it meanwhile, because the view lasts from the first read to the last write.
    let mut image = obj.view_mut::<f32, 3>()?.host_view_mut()?;
    py.detach(|| -> interop_core::Result<()> {
        let source: Vec<f32> = image.as_view().iter().collect();
        let length = (width * CHANNELS).max(1);
        let mut rows = vec![0.0; source.len()];
        each_line(&mut rows, length, |y, means| {
            box_line(&source[y * length..][..length], means, CHANNELS, radius);
        });
        let blurred = box_columns(&rows, height, length, radius);
        blurred.iter().enumerate().try_for_each(|(at, value)| {
            image.write([at / length, at % length / CHANNELS, at % CHANNELS], *value)
        })
    })?;
    Ok(())
}

/// Returns the edges of an image in new memory that Rust owns: the length of the gradient of each channel.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
pub(crate) fn edges(py: Python<'_>, obj: Image<Lease<f32>>) -> PyResult<Image<HostVec<f32>>> {
    let (height, width) = (obj.height, obj.width);
    wait(py, &obj)?;
    let source = obj.to_vec::<f32>()?;
    let mut pixels = HostVec::try_zeroed(source.len())?;
    let edges = pixels.as_mut_slice()?;
    py.detach(|| {
        let at = |y: usize, x: usize, channel: usize| source[(y * width + x) * CHANNELS + channel];
        each_line(edges, (width * CHANNELS).max(1), |y, line| {
            for (index, edge) in line.iter_mut().enumerate() {
                let (x, channel) = (index / CHANNELS, index % CHANNELS);
                let across = at(y, (x + 1).min(width - 1), channel) - at(y, x.saturating_sub(1), channel);
                let down = at((y + 1).min(height - 1), x, channel) - at(y.saturating_sub(1), x, channel);
                *edge = across.hypot(down);
            }
        });
    });
    Ok(Image { pixels, height, width })
}

/// Calls `work` with each line of `length` elements and its number. Large images are shared among threads, which live as
/// long as the call: a pool of threads would be missing in a forked process, and its tasks would never run there.
fn each_line(elements: &mut [f32], length: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    /// Smaller images take less time than the start of a thread.
    const SMALL: usize = 1 << 15;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(elements.len() / SMALL).max(1);
    let share = (elements.len() / length).div_ceil(threads).max(1);
    let lines = |first: usize, part: &mut [f32]| {
        part.chunks_mut(length).enumerate().for_each(|(y, line)| work(first + y, line));
    };
    if threads == 1 {
        return lines(0, elements);
    }
    thread::scope(|scope| {
        for (at, part) in elements.chunks_mut(share * length).enumerate() {
            scope.spawn(move || lines(at * share, part));
        }
    });
}

/// Waits for the pending work on an image without the interpreter's lock, because that work may need the lock.
///
/// The lock is held again when the image is accessed. Other users hold it too while they borrow the image, so the image
/// is never found borrowed.
fn wait(py: Python<'_>, image: &impl CudaArray) -> PyResult<()> {
    let info = image.info()?;
    // Without a driver no work is pending.
    match info.stream().filter(|_| cuda::is_available()) {
        Some(stream) => Ok(py.detach(|| cuda::stream_synchronize(stream, info.device()))?),
        None => Ok(()),
    }
}

/// Computes the mean of the `2 * radius + 1` pixels around each pixel of a line, or of fewer at its ends.
fn box_line(line: &[f32], means: &mut [f32], channels: usize, radius: usize) {
    let pixels = line.len() / channels;
    // A larger radius covers the whole line too.
    let radius = radius.min(pixels);
    for channel in 0..channels {
        let value = |pixel: usize| f64::from(line[pixel * channels + channel]);
        let mut sum: f64 = (0..radius).map(value).sum();
        for pixel in 0..pixels {
            if pixel + radius < pixels {
                sum += value(pixel + radius);
            }
            if let Some(gone) = pixel.checked_sub(radius + 1) {
                sum -= value(gone);
            }
            let first = pixel.saturating_sub(radius);
            let count = (pixel + radius + 1).min(pixels) - first;
            means[pixel * channels + channel] = (sum / count as f64) as f32;
        }
    }
}

/// As [`box_line`], for all columns at once: the sums move down row by row.
fn box_columns(rows: &[f32], height: usize, length: usize, radius: usize) -> Vec<f32> {
    let row = |y: usize| &rows[y * length..][..length];
    let radius = radius.min(height);
    let mut sums = vec![0.0; length];
    let add = |sums: &mut [f64], y: usize, sign: f64| {
        for (sum, value) in sums.iter_mut().zip(row(y)) {
            *sum += sign * f64::from(*value);
        }
    };
    let mut means = Vec::with_capacity(rows.len());
    for y in 0..rows.len() / length {
        if y == 0 {
            (0..radius).for_each(|y| add(&mut sums, y, 1.0));
        }
        if y + radius < height {
            add(&mut sums, y + radius, 1.0);
        }
        if let Some(gone) = y.checked_sub(radius + 1) {
            add(&mut sums, gone, -1.0);
        }
        let count = (y + radius + 1).min(height) - y.saturating_sub(radius);
        means.extend(sums.iter().map(|sum| (sum / count as f64) as f32));
    }
    means
}
