use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [HEIGHT, width])]
struct ConstantInTheCaseOfAField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.size.height, width])]
struct NestedField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(default)]
    size: (),
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2
])]
struct TooManyAxes {
    #[cuda_array(data)]
    amplitudes: Vec<f32>,
}

#[derive(CudaArray)]
struct TooManyAxesInAField {
    #[cuda_array(data)]
    amplitudes: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 65],
}

fn main() {}
