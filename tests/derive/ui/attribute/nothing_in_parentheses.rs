use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataWithNothingInParentheses {
    #[cuda_array(data())]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape())]
struct ShapeWithNothingInParentheses {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct StridesWithNothingInParentheses {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(strides())]
    strides: [isize; 1],
}

#[derive(CudaArray)]
struct NoWords {
    #[cuda_array]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape)]
struct ShapeWithoutExtents {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array = "readonly"]
struct ValueInsteadOfWords {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
