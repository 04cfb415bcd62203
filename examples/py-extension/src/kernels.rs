//! Work on arrays whose element type is known at run time only.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers are computed in double"
)]

use half::{bf16, f16};
use interop_core::{CudaArray, DType, Element, Error, ErrorKind, FromArray, HostVec, Shared};
use pyo3::prelude::*;

use crate::array::Array;
use crate::facts::import_any;

/// Number types that the kernels compute with.
trait Number: Element {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// The product; exact for integers where the factor is one.
    fn times(self, factor: f64) -> Self {
        Self::from_f64(self.to_f64() * factor)
    }
    /// `None` outside the range of an integer type.
    fn from_int(value: i128) -> Option<Self>;
}

/// Up to here every integer is a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            #[expect(clippy::allow_attributes, reason = "which lints a cast meets depends on the type")]
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss, reason = "a scaled integer is rounded towards zero")]
            impl Number for $type {
                fn to_f64(self) -> f64 {
                    self as f64
                }

                fn from_f64(value: f64) -> Self {
                    value as Self
                }

                fn times(self, factor: f64) -> Self {
                    if factor.fract() != 0.0 || factor.abs() > EXACT {
                        return Self::from_f64(self.to_f64() * factor);
                    }
                    let product = self as i128 * factor as i128;
                    product.clamp(Self::MIN as i128, Self::MAX as i128) as Self
                }

                fn from_int(value: i128) -> Option<Self> {
                    Self::try_from(value).ok()
                }
            }
        )*
    };
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($type:ty, $to:expr, $from:expr;)*) => {
        $(
            impl Number for $type {
                fn to_f64(self) -> f64 {
                    $to(self)
                }

                fn from_f64(value: f64) -> Self {
                    $from(value)
                }

                fn from_int(value: i128) -> Option<Self> {
                    Some(Self::from_f64(value as f64))
                }
            }
        )*
    };
}

floats! {
    f16, f16::to_f64, f16::from_f64;
    bf16, bf16::to_f64, bf16::from_f64;
    f32, f64::from, |value| value as f32;
    f64, core::convert::identity, core::convert::identity;
}

/// Calls a function that is generic over the element type with the type that a dtype is.
macro_rules! with_number {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::I8 => $function::<i8>($($argument),*),
            DType::I16 => $function::<i16>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::U8 => $function::<u8>($($argument),*),
            DType::U16 => $function::<u16>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U64 => $function::<u64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            dtype => {
                let allowed = "integers of 8 to 64 bits, float16, bfloat16, float32 and float64";
                Err(Error::new(ErrorKind::DType, "dtype", dtype, allowed))
            }
        }
    };
}

/// Multiplies every element by `factor`, in place, whatever the array is; integers are rounded towards zero and kept
/// within their range.
#[pyfunction]
pub(crate) fn scale_(obj: &Bound<'_, PyAny>, factor: f64) -> PyResult<()> {
    fn scale<T: Number>(array: &mut Array, factor: f64) -> interop_core::Result<()> {
        array.apply::<T>(|value| value.times(factor))
    }
    let mut array = Array::from_import(import_any(obj, None)?.import)?;
    let dtype = array.facts()?.dtype();
    Ok(with_number!(dtype, scale(&mut array, factor))?)
}

/// The sum of the elements, as a double.
#[pyfunction]
pub(crate) fn checksum(obj: &Bound<'_, PyAny>) -> PyResult<f64> {
    fn sum<T: Number>(array: &Array) -> interop_core::Result<f64> {
        let mut sum = 0.0;
        array.for_each::<T>(|value| sum += value.to_f64())?;
        Ok(sum)
    }
    let array = Array::from_import(import_any(obj, None)?.import)?;
    let dtype = array.facts()?.dtype();
    if dtype == DType::BOOL {
        let mut count = 0.0;
        array.for_each::<bool>(|value| count += f64::from(value))?;
        return Ok(count);
    }
    Ok(with_number!(dtype, sum(&array))?)
}

/// A Python number: integers keep all their digits.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// `True` and `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// Any other real number.
    Float(f64),
}

impl<'py> FromPyObject<'_, 'py> for Value {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(value) = object.extract::<bool>() {
            return Ok(Self::Bool(value));
        }
        if let Ok(value) = object.extract::<i128>() {
            return Ok(Self::Int(value));
        }
        object.extract::<f64>().map(Self::Float).map_err(|_| {
            let found = object
                .get_type()
                .fully_qualified_name()
                .map_or_else(|_| "an object".into(), |n| n.to_string());
            Error::new(ErrorKind::Type, "value", found, "a bool, an int or a float").into()
        })
    }
}

/// New host memory of `len` elements, all `value`.
pub(crate) fn filled(dtype: DType, len: usize, value: Value) -> interop_core::Result<Shared> {
    fn fill<T: Number>(len: usize, value: Value) -> interop_core::Result<Shared> {
        let value = match value {
            Value::Bool(value) => T::from_f64(f64::from(value)),
            Value::Float(value) => T::from_f64(value),
            Value::Int(value) => T::from_int(value).ok_or_else(|| {
                let allowed = format!("an integer within the range of {}", T::TYPE.dtype().name());
                Error::new(ErrorKind::Overflow, "value", value, allowed)
            })?,
        };
        let mut elements = HostVec::<T>::try_zeroed(len)?;
        elements.as_mut_slice()?.fill(value);
        Ok(Shared::new(elements))
    }
    if dtype == DType::BOOL {
        let mut elements = HostVec::<bool>::try_zeroed(len)?;
        elements.as_mut_slice()?.fill(match value {
            Value::Bool(value) => value,
            Value::Int(value) => value != 0,
            Value::Float(value) => value != 0.0,
        });
        return Ok(Shared::new(elements));
    }
    with_number!(dtype, fill(len, value))
}
