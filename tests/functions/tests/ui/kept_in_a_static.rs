//! An argument that a function puts into a static, or borrows for ever.

use std::sync::Mutex;

use interop_core::{CudaArray, lent::{Borrowed, BorrowedMut}};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

static KEPT: Mutex<Vec<Row<Borrowed<'static, f32>>>> = Mutex::new(Vec::new());

fn keep(row: Row<Borrowed<'_, f32>>) {
    KEPT.lock().unwrap().push(row);
}

fn export(row: Row<Borrowed<'_, f32>>) {
    row.into_dlpack().unwrap();
}

fn for_ever(_: Row<BorrowedMut<'static, f32>>) {}

interop_tvm_ffi::export! { for_ever(row) }

fn main() {}
