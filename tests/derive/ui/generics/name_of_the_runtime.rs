use interop_core::CudaArray;

#[allow(non_camel_case_types)]
#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples<__p> {
    #[cuda_array(data)]
    values: Vec<__p>,
    len: usize,
}

fn main() {}
