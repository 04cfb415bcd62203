//! Types that no argument and no result can have.

use std::collections::HashMap;

use interop_core::{CudaArray, lent::Borrowed};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn map(_: HashMap<String, f32>) {}
fn text() -> String {
    String::new()
}
fn borrowed(row: Row<Borrowed<'_, f32>>) -> Row<Borrowed<'_, f32>> {
    row
}

interop_tvm_ffi::export! { map(map) }
interop_tvm_ffi::export! { text() }
interop_tvm_ffi::export! { borrowed(row) }

fn main() {}
