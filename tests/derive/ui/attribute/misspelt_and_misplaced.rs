use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_aray(shape = [len])]
struct MisspeltAttribute {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct MisspeltAttributeOnAField {
    #[cuda_arrray(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
struct OnAGenericParameter<#[cuda_array(data)] S> {
    #[cuda_array(data)]
    pixels: S,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
