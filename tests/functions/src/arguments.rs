//! One function for each kind of arguments and results.
#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "a function takes its arguments")]

use std::sync::Arc;

use interop_core::arrays::ArrayD;
use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor};
use interop_core::{CudaArray, DType, Device, Error, ErrorKind, HostVec, Result, dispatch};
use interop_tvm_ffi::{Call, CallError, NewArray};

/// A contiguous row in host memory.
#[derive(CudaArray)]
#[cuda_array(shape = [len], device = "cpu")]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// A row in a struct of another kind.
#[derive(CudaArray)]
struct Named<S> {
    #[cuda_array(inner)]
    row: Row<S>,
    #[cuda_array(default = "row")]
    name: &'static str,
}

/// A row in device memory.
#[derive(CudaArray)]
#[cuda_array(shape = [len], device = "cuda")]
struct CudaRow<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

fn scale_row_(mut row: Row<BorrowedMut<'_, f32>>, factor: f32) -> Result<()> {
    row.map_inplace(|value: f32| value * factor)
}

fn scale_named_(mut named: Named<BorrowedMut<'_, f32>>, factor: f32) -> Result<()> {
    assert_eq!(named.name, "row");
    named.row.map_inplace(|value: f32| value * factor)
}

fn shared_len(row: Arc<Row<Borrowed<'_, f32>>>) -> usize {
    row.len
}

fn cuda_len(row: CudaRow<Borrowed<'_, f32>>) -> usize {
    row.len
}

/// In memory of Rust.
fn ramp(len: u16) -> Row<HostVec<f32>> {
    Row { values: (0..len).map(f32::from).collect(), len: len.into() }
}

fn sum(array: ArrayD<Borrowed<'_, f32>>, other: Option<ArrayD<Borrowed<'_, f32>>>) -> Result<f64> {
    let sum = |array: &ArrayD<Borrowed<'_, f32>>| array.fold(0.0, |sum, value: f32| sum + f64::from(value));
    Ok(sum(&array)? + other.map_or(Ok(0.0), |other| sum(&other))?)
}

fn sum_of_any(array: BorrowedTensor<'_>) -> Result<f64, CallError> {
    Ok(dispatch!(array, [u8, i16, f32, f64], T => {
        let array: ArrayD<Borrowed<'_, T>> = array.into_array()?;
        array.fold(0.0, |sum, value: T| sum + Into::<f64>::into(value))?
    })?)
}

/// A new array as the library has made it.
fn zeros_like<'c>(
    call: &'c Call<'_>,
    array: ArrayD<Borrowed<'_, f32>>,
) -> Result<NewArray<ArrayD<BorrowedMut<'c, f32>>>, CallError> {
    call.new_like(&array)
}

/// A copy, which the function may keep.
fn copied(row: Row<Vec<f32>>) -> f32 {
    row.values.iter().sum()
}

fn values(
    number: i64,
    small: u8,
    float: f64,
    flag: bool,
    text: &str,
    more: Option<i32>,
) -> Result<bool, String> {
    if text == "fail" {
        return Err(format!("number {number}, small {small}, float {float}, flag {flag}, more {more:?}"));
    }
    Ok(flag && i64::try_from(text.len()) == Ok(number))
}

fn itemsize(dtype: DType, device: Device) -> Result<usize, String> {
    if device == Device::CPU { Ok(usize::from(dtype.bits) / 8) } else { Err(device.to_string()) }
}

/// The sums of all rows, weighted, and of the names.
fn lists(
    rows: Vec<Row<Borrowed<'_, f32>>>,
    weights: Vec<f64>,
    (name, count): (&str, Option<u32>),
) -> Result<f64> {
    let mut total = f64::from(count.unwrap_or(0)) + f64::from(u8::try_from(name.len()).unwrap_or(0));
    for (row, weight) in rows.iter().zip(&weights) {
        total += row.fold(0.0, |sum, value: f32| sum + f64::from(value))? * weight;
    }
    Ok(total)
}

/// Writes the second array to the first one.
fn assign_((mut to, from): (Row<BorrowedMut<'_, f32>>, Row<Borrowed<'_, f32>>)) -> Result<()> {
    to.zip_map_inplace(&from, |_: f32, value: f32| value)
}

fn fail(kind: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let error = |kind| Error::new(kind, "here", "this", "that");
    Err(match kind {
        "index" => error(ErrorKind::IndexOutOfBounds).into(),
        "memory" => error(ErrorKind::OutOfMemory).into(),
        "key" => CallError::new(c"KeyError", "no such key").into(),
        "nul" => "a\0b".into(),
        other => other.into(),
    })
}

fn explode(row: Row<Borrowed<'_, f32>>) {
    panic!("row of {}", row.len);
}

fn nothing() {}

fn has_stream(call: &Call<'_>) -> bool {
    call.stream(Device::cuda(0)).is_some()
}

fn huge() -> u64 {
    u64::MAX
}

interop_tvm_ffi::export! {
    scale_row_(row, factor);
    scale_named_(named, factor);
    shared_len(row);
    cuda_len(row);
    ramp(len);
    sum(array, other);
    sum_of_any(array);
    zeros_like(call, array);
    copied(row);
    values(number, small, float, flag, text, more);
    itemsize(dtype, device);
    lists(rows, weights, extra);
    assign_(pair);
    fail(kind);
    explode(row);
    nothing();
    has_stream(call);
    huge();
}
