use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
enum Samples {
    Host {
        #[cuda_array(data)]
        values: Vec<f32>,
        len: usize,
    },
}

fn main() {}
