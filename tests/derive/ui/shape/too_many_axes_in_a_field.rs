use interop_core::CudaArray;

#[derive(CudaArray)]
struct Qubits {
    #[cuda_array(data)]
    amplitudes: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 65],
}

fn main() {}
