use interop_core::CudaArray;

// As other crates have it: none of its names is ours.
mod other {
    pub mod __private {}
}

#[derive(CudaArray)]
#[cuda_array(crate = "crate::other")]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
