//! A `no_std` crate that forbids unsafe code and requires documentation.
#![no_std]
#![forbid(unsafe_code, missing_docs)]

extern crate std;

use interop_core::{CudaArray, Element, HostVec, StreamHandle};

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
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Pixel {
    /// Red, green, blue.
    pub channels: [u8; 3],
}

fn main() {
    let pixels = HostVec::from_slice(&[Pixel { channels: [1, 2, 3] }; 2]);
    let image = Image { pixels, height: 1, width: 2, stream: StreamHandle::NothingPending, note: None };
    assert_eq!(image.info().map(|info| info.numel()), Ok(2));
}
