use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Text {
    len: usize,
    #[cuda_array(data)]
    bytes: str,
}

fn main() {}
