//! Blurs strided views with `cudarc`: reads a region of a larger picture upside down, and writes a contiguous picture.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use interop_core::{CudaArray, LaunchScope, SharedBuffer};
use interop_demo_kernels::{blur_size, kernels};

use crate::{KERNELS, Outcome};

/// A picture, whose rows need not be contiguous with each other.
#[derive(CudaArray)]
#[cuda_array(export)]
struct Picture<S = CudaSlice<f32>> {
    #[cuda_array(data)]
    pixels: S,
    #[cuda_array(shape)]
    shape: [usize; 3],
    #[cuda_array(strides)]
    strides: Option<[isize; 3]>,
    #[cuda_array(stream)]
    stream: Arc<CudaStream>,
}

const CHANNELS: usize = 3;

/// Blurs the lower half of a picture of `height` × `width` pixels, starting with its last row.
///
/// # Errors
///
/// Returns an error if a driver call fails.
pub fn run(height: usize, width: usize) -> Outcome {
    let context = interop_core::adapters::cudarc::context(0)?;
    let stream = context.new_stream()?;

    let row = width * CHANNELS;
    let source: Vec<f32> = (0..height * row).map(|index| (index % 251) as f32).collect();
    let pixels = stream.clone_htod(&source)?;
    let half = height / 2;
    // The view starts at the first pixel of the last row and has a negative row stride.
    let pixels = SharedBuffer::new(pixels).byte_offset(((height - 1) * row * size_of::<f32>()) as isize)?;
    let turned = Picture {
        pixels,
        shape: [half, width, CHANNELS],
        strides: Some([-(row as isize), CHANNELS as isize, 1]),
        stream: stream.clone(),
    };
    let mut blurred = Picture {
        pixels: stream.alloc_zeros::<f32>(half * row)?,
        shape: [half, width, CHANNELS],
        strides: None,
        stream: stream.clone(),
    };

    let scope = LaunchScope::new();
    let (from, to) = (scope.read(&turned)?, scope.write(&mut blurred)?);
    scope.launch(&KERNELS, blur_size(half, width, CHANNELS), kernels::blur_f32::with(from, to))?;
    scope.finish()?;

    let picture = blurred.to_vec::<f32>()?;
    let expected = reference(&source, height, width);
    let farthest = picture.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let close = if farthest < 1e-3 { "as on the host" } else { "not as on the host" };
    Ok(format!("blur: {half} x {width} x {CHANNELS} of {height} rows, upside down, {close}\n"))
}

/// Computes the same blur on the host.
fn reference(source: &[f32], height: usize, width: usize) -> Vec<f32> {
    let half = height / 2;
    let at = |y: isize, x: isize, channel: usize| {
        let y = y.clamp(0, half as isize - 1) as usize;
        let x = x.clamp(0, width as isize - 1) as usize;
        source[((height - 1 - y) * width + x) * CHANNELS + channel]
    };
    let mut mean = Vec::with_capacity(half * width * CHANNELS);
    for y in 0..half as isize {
        for x in 0..width as isize {
            for channel in 0..CHANNELS {
                let around = (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dy, dx)));
                mean.push(around.map(|(dy, dx)| at(y + dy, x + dx, channel)).sum::<f32>() / 9.0);
            }
        }
    }
    mean
}
