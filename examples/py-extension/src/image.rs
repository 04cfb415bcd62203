//! Python functions that take and return a derived struct.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a mean is computed in double"
)]

use interop_core::{CudaArray, HostVec, Lease, LeaseMut, cuda};
use pyo3::prelude::*;
use std::cell::Cell;
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
    let width = obj.width;
    wait(py, &obj)?;
    // The view lasts from the first read to the last write, so nobody else writes or reads the image meanwhile.
    let mut image = obj.view_mut::<f32, 3>()?.host_view_mut()?;
    py.detach(|| -> interop_core::Result<()> {
        let pixels = image.as_cells()?;
        let length = (width * CHANNELS).max(1);
        let mut rows: Vec<f32> = pixels.iter().map(Cell::get).collect();
        each_line(&mut rows, length, |_, line| box_line(line, radius));
        box_columns(&rows, pixels, length, radius);
        Ok(())
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

/// Returns the first and the end of the `2 * radius + 1` numbers around `at`, or of fewer at the ends of `0..count`.
fn window(at: usize, radius: usize, count: usize) -> (usize, usize) {
    (at.saturating_sub(radius), at.saturating_add(radius).saturating_add(1).min(count))
}

/// Replaces each pixel of a line by the mean of the [`window`] around it.
fn box_line(line: &mut [f32], radius: usize) {
    // Those of the pixels in front of each one, and of the whole line: a window takes the difference of two.
    let mut sums = vec![[0.0; CHANNELS]];
    let mut sum = [0.0; CHANNELS];
    for pixel in line.chunks_exact(CHANNELS) {
        sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += f64::from(*value));
        sums.push(sum);
    }
    for (x, mean) in line.chunks_exact_mut(CHANNELS).enumerate() {
        let (first, end) = window(x, radius, sums.len() - 1);
        let scale = 1.0 / (end - first) as f64;
        for (channel, mean) in mean.iter_mut().enumerate() {
            *mean = ((sums[end][channel] - sums[first][channel]) * scale) as f32;
        }
    }
}

/// Writes the mean of the [`window`] of rows around each row to `means`. All columns move down at once.
fn box_columns(rows: &[f32], means: &[Cell<f32>], length: usize, radius: usize) {
    let mut sums = vec![0.0; length];
    let add = |sums: &mut [f64], y: usize, sign: f64| {
        let row = &rows[y * length..][..length];
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += sign * f64::from(*value));
    };
    let mut summed = 0..0;
    for (y, means) in means.chunks_exact(length).enumerate() {
        let (first, end) = window(y, radius, rows.len() / length);
        (summed.end..end).for_each(|y| add(&mut sums, y, 1.0));
        (summed.start..first).for_each(|y| add(&mut sums, y, -1.0));
        summed = first..end;
        let scale = 1.0 / summed.len() as f64;
        means.iter().zip(&sums).for_each(|(mean, sum)| mean.set((sum * scale) as f32));
    }
}
