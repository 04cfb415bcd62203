use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [{ height }, width])]
struct Block {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.height(), width])]
struct Call {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height as usize, 3])]
struct Cast {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: u32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height * width])]
struct Expression {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 3.0])]
struct Float {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 2.5])]
struct FloatWithAFraction {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.sizes[0], 3])]
struct ItemOfAList {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    sizes: [usize; 1],
}

#[derive(CudaArray)]
#[cuda_array(shape = [self[1]])]
struct ItemOfSelf(#[cuda_array(data)] Vec<f32>, usize);

#[derive(CudaArray)]
#[cuda_array(shape = [type])]
struct Keyword {
    #[cuda_array(data)]
    values: HostVec<f32>,
    r#type: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.type])]
struct KeywordOfSelf {
    #[cuda_array(data)]
    values: Vec<f32>,
    r#type: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, -3])]
struct Negative {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [n; 3])]
struct Repeat {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    n: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = ["height", width])]
struct String {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 3i32])]
struct Suffix {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, T])]
struct TypeParameter<T> {
    #[cuda_array(data)]
    pixels: Vec<T>,
    height: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 9223372036854775808])]
struct TooBig {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
