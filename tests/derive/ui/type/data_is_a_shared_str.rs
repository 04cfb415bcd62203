use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Text {
    #[cuda_array(data)]
    bytes: std::sync::Arc<str>,
    len: usize,
}

fn main() {}
