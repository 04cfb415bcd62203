use interop_core::CudaArray;

#[derive(CudaArray)]
enum Image {
    #[cuda_array(data)]
    Host(Vec<f32>),
    Empty,
}

fn main() {}
