use std::cell::Cell;
use std::sync::Arc;

use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    count: Cell<u32>,
}

// While an export lives, other threads can see the struct.
fn main() {
    let image = Arc::new(Image { pixels: vec![0.0; 4], shape: [2, 2], count: Cell::new(0) });
    let _ = image.share_dlpack();
}
