use std::sync::Arc;
use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultThatBeginsWithAnOperator {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(default = .len())]
    rate: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct DefaultThatIsABinding {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    #[cuda_array(default = let title = String::new())]
    title: String,
}

#[derive(CudaArray)]
struct DefaultWithHalfAnExpression {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(default = 3 +, stream)]
    stream: interop_core::StreamHandle,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct DefaultWithNothingInParentheses {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    #[cuda_array(default())]
    title: String,
}

#[derive(CudaArray)]
struct DefaultWithOptions {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(default(3))]
    count: u32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultWithTwoValues {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(default = 1 2)]
    gain: u8,
}

#[derive(CudaArray)]
struct DefaultWithoutExpression {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(default =)]
    name: String,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultOfAnOwnerWithoutExpression {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(owner, default = )]
    owner: Option<Arc<u8>>,
}

fn main() {}
