use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(data)]
struct DataOnTheStruct {
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(stream)]
struct StreamOnTheStruct {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct ExtentsOnAField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape = [height, width])]
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
struct LengthOnAnInteger {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(len)]
    len: usize,
}

#[derive(CudaArray)]
struct ReadonlyOnAField {
    #[cuda_array(data, readonly)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
