use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data, unsafe_raw)]
    values: *const f32,
    len: usize,
    #[cuda_array(device)]
    device: interop_core::Device,
}

fn main() {}
