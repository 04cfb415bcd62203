use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
#[repr(C, packed(2))]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
