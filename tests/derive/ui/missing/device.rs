use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
