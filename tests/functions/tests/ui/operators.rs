//! Functions and rules that a list of operators cannot have.

use interop_core::CudaArray;
use interop_core::lent::Borrowed;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn pair(_: (i64, f64)) {}
fn nested(_: Vec<Vec<i64>>) {}
fn twice(_: Option<Option<i64>>) {}
fn sum(row: Row<Borrowed<'_, f32>>, _count: i64) -> f64 {
    row.fold(0.0, |sum, value: f32| sum + f64::from(value)).unwrap_or(0.0)
}

interop_tvm_ffi::export! { operators "mine"; pair(pair) }
interop_tvm_ffi::export! { operators "mine"; nested(lists) }
interop_tvm_ffi::export! { operators "mine"; twice(option) }
interop_tvm_ffi::export! { operators "my-operators"; sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[like(array)] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[shape(row: [row.0, other.1])] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[shape(row: [row.0 & 1])] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[gradient(row = sum(gradient, size))] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[into(sum_into)] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[strides(row)] sum(row, count) }
interop_tvm_ffi::export! { operators "mine"; #[like(row)] #[elementwise(row)] sum(row, count) }

fn main() {}
