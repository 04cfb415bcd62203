//! A result in memory that the caller lends.

use interop_core::{CudaArray, lent::Borrowed};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn borrowed(row: Row<Borrowed<'_, f32>>) -> Row<Borrowed<'_, f32>> {
    row
}

interop_tvm_ffi::export! { borrowed(row) }

fn main() {}
