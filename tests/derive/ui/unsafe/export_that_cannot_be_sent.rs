use std::rc::Rc;

use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    parent: Rc<str>,
}

// The deleter of an export runs on any thread.
fn main() {
    let image = Image { pixels: vec![0.0; 4], shape: [2, 2], parent: "parent".into() };
    let _ = image.into_dlpack();
}
