use interop_core::storage::Owner;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
struct Braces {
    #[cuda_array { data }]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array[readonly]]
struct Brackets {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct BracketsAfterAWord {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(strides[bytes])]
    strides: [isize; 2],
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape[height, width])]
struct BracketsWithoutEquals {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(order: "C")]
struct ColonForEquals {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(, export)]
struct CommaFirst {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DashForUnderscore {
    #[cuda_array(data(unsafe-raw))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

#[derive(CudaArray)]
#[cuda_array(order = "C" readonly)]
struct NoCommaAfterAValue {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct OperatorForEquals {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(default == 3)]
    rate: u32,
}

#[derive(CudaArray)]
#[cuda_array(readonly?)]
struct Question {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct QuotedWord {
    #[cuda_array("data")]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(readonly; shape = [height, width], order = "C")]
struct Semicolon {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(readonly,, export)]
struct TwoCommas {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width] + [3], readonly)]
struct MoreAfterAValue {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[CUDA_ARRAY(shape = [len])]
struct AttributeInCapitals {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[interop_core::cuda_array(shape = [len])]
struct AttributeWithAPath {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(3)]
struct NumberForAWord {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct PathForAWord {
    #[cuda_array(interop::data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(
    /// Rows of pixels.
    shape = [height, width]
)]
struct DocCommentForAWord {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
