//! Operators with each kind of arguments, results and rules.
#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "a function takes its arguments")]

use std::sync::atomic::{AtomicI64, Ordering};

use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor};
use interop_core::{CudaArray, DType, Device, HostVec, Result, dispatch};
use interop_tvm_ffi::{Call, CallError, NewArray};

/// Any layout, on the host.
#[derive(CudaArray)]
#[cuda_array(device = "cpu")]
struct Array<S> {
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
}

type In<'a, T = f64> = Array<Borrowed<'a, T>>;
type Out<'a, T = f64> = Array<BorrowedMut<'a, T>>;
type New<'c, T = f64> = NewArray<Array<BorrowedMut<'c, T>>>;

fn shift_(mut array: Out<'_>, by: f64) -> Result<()> {
    array.map_inplace(|value: f64| value + by)
}

fn product<'c>(call: &'c Call<'_>, a: In<'_>, b: In<'_>) -> Result<New<'c>, CallError> {
    let mut to: New<'_> = call.new_like(&a)?;
    to.zip_map_inplace(&a, |_: f64, value: f64| value)?;
    to.zip_map_inplace(&b, |to: f64, value: f64| to * value)?;
    Ok(to)
}

fn product_into(a: In<'_>, b: In<'_>, mut to: Out<'_>) -> Result<()> {
    to.zip_map_inplace(&a, |_: f64, value: f64| value)?;
    to.zip_map_inplace(&b, |to: f64, value: f64| to * value)
}

/// `e` to the power of each element: its gradient uses the result.
fn exponential<'c>(call: &'c Call<'_>, from: In<'_>) -> Result<New<'c>, CallError> {
    let mut to: New<'_> = call.new_like(&from)?;
    to.zip_map_inplace(&from, |_: f64, value: f64| value.exp())?;
    Ok(to)
}

fn exponential_into(from: In<'_>, mut to: Out<'_>) -> Result<()> {
    to.zip_map_inplace(&from, |_: f64, value: f64| value.exp())
}

/// A table with a row for each element of `a`.
fn outer<'c>(call: &'c Call<'_>, a: In<'_>, b: In<'_>) -> Result<New<'c>, CallError> {
    let (a, b) = (a.to_vec::<f64>()?, b.to_vec::<f64>()?);
    let table: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| x * y)).collect();
    filled(call, &[a.len(), b.len()], DType::F64, table)
}

/// The array without its first rows, then `count` rows of zeros.
fn shifted_rows<'c>(
    call: &'c Call<'_>,
    array: In<'_>,
    skip: usize,
    count: usize,
) -> Result<New<'c>, CallError> {
    let shape = array.info()?.shape().to_vec();
    let row: usize = shape[1..].iter().product();
    let mut values = array.to_vec::<f64>()?.split_off(skip * row);
    values.resize(values.len() + count * row, 0.0);
    filled(call, &[&[shape[0] - skip + count], &shape[1..]].concat(), DType::F64, values)
}

/// The number of positive elements in each row.
fn positives<'c>(call: &'c Call<'_>, table: In<'_>) -> Result<New<'c, i64>, CallError> {
    let columns = table.info()?.shape()[1];
    let values = table.to_vec::<f64>()?;
    let counts = values.chunks(columns).map(|row| row.iter().filter(|value| **value > 0.0).count());
    let counts: Vec<i64> = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX)).collect();
    filled(call, &[counts.len()], DType::I64, counts)
}

/// A new array with these elements in C order.
fn filled<'c, T: interop_core::Element>(
    call: &'c Call<'_>,
    shape: &[usize],
    dtype: DType,
    values: Vec<T>,
) -> Result<New<'c, T>, CallError> {
    let mut to: New<'_, T> = call.new_array(shape, dtype, Device::CPU)?;
    let mut stride = 1_isize;
    let mut strides: Vec<isize> = shape
        .iter()
        .rev()
        .map(|extent| {
            let next = stride * isize::try_from((*extent).max(1)).unwrap_or(isize::MAX);
            core::mem::replace(&mut stride, next)
        })
        .collect();
    strides.reverse();
    let from = Array { values: HostVec::from(values), shape: shape.to_vec(), strides };
    to.zip_map_inplace(&from, |_: T, value: T| value)?;
    Ok(to)
}

/// For two element types.
fn squared(call: &Call<'_>, from: BorrowedTensor<'_>) -> Result<NewArray<()>, CallError> {
    Ok(dispatch!(from, [f32, f64], T => {
        let from: In<'_, T> = from.into_array()?;
        let mut to: New<'_, T> = call.new_like(&from)?;
        to.zip_map_inplace(&from, |_: T, value: T| value * value)?;
        to.untyped()
    })?)
}

/// In memory of Rust.
fn owned(array: In<'_>) -> Result<Array<HostVec<f64>>> {
    let values = HostVec::from(array.to_vec::<f64>()?);
    let len = values.len();
    Ok(Array { values, shape: vec![len], strides: vec![1] })
}

fn sum_all(
    arrays: Vec<In<'_>>,
    weights: Vec<f64>,
    extra: Option<In<'_>>,
    offset: Option<f64>,
) -> Result<f64> {
    let mut total = offset.unwrap_or(0.0);
    for (array, weight) in arrays.iter().chain(&extra).zip(weights.iter().chain([&1.0])) {
        total += array.fold(0.0, |sum, value: f64| sum + value)? * weight;
    }
    Ok(total)
}

/// The sum of a list as an array: its gradient is not known, and it takes lists.
fn total<'c>(call: &'c Call<'_>, arrays: Vec<In<'_>>) -> Result<New<'c>, CallError> {
    let mut to: New<'_> = call.new_like(&arrays[0])?;
    for array in &arrays {
        to.zip_map_inplace(array, |sum: f64, value: f64| sum + value)?;
    }
    Ok(to)
}

fn shift_all_(mut arrays: Vec<Out<'_>>, by: f64) -> Result<()> {
    arrays.iter_mut().try_for_each(|array| array.map_inplace(|value: f64| value + by))
}

#[expect(clippy::too_many_arguments, reason = "one of each kind")]
fn describe(
    array: BorrowedTensor<'_>,
    r#in: i64,
    factor: f32,
    flag: bool,
    name: &str,
    dtype: DType,
    device: Device,
    axes: Vec<i64>,
    flags: Vec<bool>,
    names: Vec<&str>,
    limit: Option<i64>,
) -> Result<(), CallError> {
    let sum = dispatch!(array.info()?.dtype(), [i32, f32, f64], T => {
        let array: Array<Borrowed<'_, T>> = array.into_array()?;
        array.fold(0.0, |sum, value: T| sum + Into::<f64>::into(value))?
    })?;
    Err(CallError::new(
        c"RuntimeError",
        format!("{sum} {in} {factor} {flag} {name} {dtype} {device} {axes:?} {flags:?} {names:?} {limit:?}"),
    ))
}

/// Writes to a tensor of any type, which the schema does not tell.
fn write_any(array: BorrowedTensor<'_>) -> Result<(), CallError> {
    let mut array: Out<'_> = array.into_array()?;
    Ok(array.map_inplace(|value: f64| value + 1.0)?)
}

static DROPPED: AtomicI64 = AtomicI64::new(0);

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn fails(_array: In<'_>, how: &str) -> Result<(), CallError> {
    let _counted = Counted;
    match how {
        "panic" => panic!("on purpose"),
        "value" => Err(CallError::new(c"ValueError", "a value")),
        "nul" => Err(CallError::new(c"RuntimeError", "a\0b and ü")),
        _ => Ok(()),
    }
}

fn dropped() -> i64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Has a gradient of a wrong shape.
fn halved<'c>(call: &'c Call<'_>, from: In<'_>) -> Result<New<'c>, CallError> {
    let mut to: New<'_> = call.new_like(&from)?;
    to.zip_map_inplace(&from, |_: f64, value: f64| value / 2.0)?;
    Ok(to)
}

interop_tvm_ffi::export! {
    operators "interop_tests";
    shift_(array, by);
    product_into(a, b, to);
    #[elementwise(a)]
    #[into(product_into)]
    #[gradient(a = product(gradient, b), b = product(gradient, a))]
    product(call, a, b);
    exponential_into(from, to);
    #[elementwise(from)]
    #[into(exponential_into)]
    #[gradient(from = product(gradient, result))]
    exponential(call, from);
    #[shape(a: [a.0, b.0])]
    outer(call, a, b);
    #[shape(array: [array.0 - skip + count, ..array[1..]])]
    shifted_rows(call, array, skip, count);
    #[shape(table: [max(table.0, 0)], dtype = int64)]
    positives(call, table);
    #[like(from)]
    #[gradient(from = 2 * gradient * from)]
    squared(call, from);
    #[like(array)]
    owned(array);
    sum_all(arrays, weights, extra, offset);
    total(call, arrays);
    shift_all_(arrays, by);
    describe(array, r#in, factor, flag, name, dtype, device, axes, flags, names, limit);
    write_any(array);
    fails(array, how);
    dropped();
}

interop_tvm_ffi::export! {
    operators "interop_more_tests";
    #[like(from)]
    #[gradient(from = halved(outer_of(gradient)))]
    halved(call, from);
    #[like(from)]
    outer_of(call, from);
}

fn outer_of<'c>(call: &'c Call<'_>, from: In<'_>) -> Result<New<'c>, CallError> {
    filled(call, &[7], DType::F64, from.to_vec::<f64>().map(|_| vec![0.0; 7])?)
}
