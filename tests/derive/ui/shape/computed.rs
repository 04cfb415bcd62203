//! An import cannot fill what an expression computes. The type of an expression is an integer or an `Option` of one.

use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [self.rows(), self.sizes[0] as usize, 1 << self.bits])]
struct Imported {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(default)]
    sizes: Vec<u8>,
    #[cuda_array(default)]
    bits: u32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.rows(), 1 << 3], export)]
struct Exported {
    #[cuda_array(data)]
    values: Vec<f32>,
}

impl Exported {
    fn rows(&self) -> f32 {
        1.0
    }
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows + 1], export)]
struct WithoutSelf {
    #[cuda_array(data)]
    values: Vec<f32>,
    rows: usize,
}

fn main() {}
