//! A `no_std` crate that forbids unsafe code, names in another style, and what is not used, and requires documentation.
#![no_std]
#![forbid(unsafe_code, missing_docs, nonstandard_style, unused)]

extern crate std;

use interop_core::{CudaArray, Element, HostVec, StreamHandle};
use interop_kernel::{KernelElement, LaunchSize, Thread, ViewMut, kernel};

/// An image of pixels.
#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
pub struct Image {
    /// The pixels.
    #[cuda_array(data)]
    pub pixels: HostVec<Pixel>,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
    /// Where they were written.
    #[cuda_array(stream)]
    pub stream: StreamHandle,
    /// What was going on.
    #[cuda_array(default)]
    pub note: Option<&'static str>,
}

/// Red, green, blue.
#[derive(Clone, Copy, Element, KernelElement)]
#[repr(C)]
pub struct Pixel {
    /// Red, green, blue.
    pub channels: [u8; 3],
}

/// Swaps red and blue.
#[kernel]
pub fn swap_red_and_blue(thread: Thread<'_>, mut pixels: ViewMut<'_, Pixel, 1>) {
    for at in thread.elements(pixels.shape()) {
        let [red, green, blue] = pixels.get(at).channels;
        pixels.set(at, Pixel { channels: [blue, green, red] });
    }
}

/// A kernel that only its own crate has.
#[kernel]
fn unused_on_the_host(_: Thread<'_>) {}

fn main() {
    let mut pixels = [Pixel { channels: [1, 2, 3] }; 2];
    swap_red_and_blue::run(LaunchSize::for_units(2), ViewMut::new(&mut pixels, [2]));
    assert_eq!(pixels[1].channels, [3, 2, 1]);
    unused_on_the_host::run(LaunchSize::for_units(1));
    let pixels = HostVec::from([Pixel { channels: [1, 2, 3] }; 2]);
    let image = Image { pixels, height: 1, width: 2, stream: StreamHandle::NothingPending, note: None };
    assert_eq!(image.info().map(|info| info.numel()), Ok(2));
}
