use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(pyclass, export)]
struct Image<'a> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: &'a [usize; 2],
}

fn main() {}
