//! Types that no argument and no result can have: one message each, on the name of the parameter or of the function.

use std::collections::HashMap;
use std::sync::Mutex;

use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn map(factor: f32, table: HashMap<String, f32>) -> f32 {
    factor * table["a"]
}
fn by_reference(row: &Row<Vec<f32>>) -> usize {
    row.len
}
fn list(rows: Vec<String>) -> usize {
    rows.len()
}
fn text() -> String {
    String::new()
}
fn fails() -> Result<Mutex<f32>, std::fmt::Error> {
    Err(std::fmt::Error)
}
fn optional(by: i64) -> Option<i64> {
    Some(by)
}

interop_tvm_ffi::export! {
    map(factor, table);
    by_reference(row);
    list(rows);
    text();
    fails();
    optional(by);
}

fn main() {}
