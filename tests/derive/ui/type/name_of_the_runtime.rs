use interop_core::CudaArray;

mod __p {
    pub type Values = Vec<f32>;
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: __p::Values,
    len: usize,
}

fn main() {}
