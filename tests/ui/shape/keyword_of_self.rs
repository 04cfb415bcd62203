use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [self.type])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    r#type: usize,
}

fn main() {}
