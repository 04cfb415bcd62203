//! Work on arrays whose element type is known at run time only: on the host here, on a GPU by way of `launch.rs`.
#![expect(unsafe_code, reason = "vouches for the memory that kernels are launched on")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers are computed in double"
)]

use core::fmt::Display;

use half::{bf16, f16};
use interop_core::python::{extract_integer, extract_stream, make_producer_wait};
use interop_core::{
    ArrayInfo, CudaArray, DType, Element, Error, ErrorKind, FromArray, HostVec, SharedBuffer, StreamHandle,
    cuda,
};
use num_complex::Complex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyComplexMethods, PyInt};

use crate::array::Array;
use crate::cuda::Place;
use crate::describe::import_any;
use crate::launch;

/// Number types that the kernels compute with.
trait Number: Element {
    const IS_FLOAT: bool;
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
                const IS_FLOAT: bool = false;

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
                const IS_FLOAT: bool = true;

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

/// What `Array.full` makes elements of, for messages.
const FILLED: &str =
    "bool, integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64 and complex128";

/// Calls a function that is generic over the element type with the type that a dtype is; `allowed` says of which types it may be.
macro_rules! with_number {
    ($dtype:expr, $function:ident($($argument:expr),*), $allowed:expr) => {
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
            dtype => Err(Error::new(ErrorKind::DType, "dtype", dtype, $allowed)),
        }
    };
}

/// Multiplies every element by `factor`, in place, whatever the array is; integers are rounded towards zero and kept
/// within their range.
///
/// In memory that CUDA reaches a kernel does it. It goes to `stream`, or to the one where the array is ready, as it does
/// for -1. An array of this module knows then where it was last written. No other library does: without a `stream` its
/// later work is made to wait for the kernel, and so is the host where it reaches the memory.
#[pyfunction]
#[pyo3(signature = (obj, factor, *, stream=None))]
pub(crate) fn scale_(obj: &Bound<'_, PyAny>, factor: f64, stream: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    fn scale<T: Number>(array: &mut Array, factor: f64) -> interop_core::Result<()> {
        array.map_inplace::<T>(|value| value.times(factor))
    }
    let mut work = Work::on(obj, stream)?;
    if work.is_for_devices() {
        obj.py().detach(|| work.scale(factor))?;
        return if work.is_silent {
            make_producer_wait(obj, work.stream, work.info.device())
        } else {
            Ok(())
        };
    }
    Ok(with_number!(work.info.dtype(), scale(&mut work.array, factor), launch::SCALED)?)
}

/// The sum of the elements, as a double; computed where the array is.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn checksum(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<f64> {
    fn sum<T: Number>(array: &Array) -> interop_core::Result<f64> {
        let mut sum = 0.0;
        array.for_each::<T>(|value| sum += value.to_f64())?;
        Ok(sum)
    }
    let Work { array, info, stream, .. } = &Work::on(obj, stream)?;
    if info.device().device_type.is_cuda_accessible() {
        // SAFETY: the array keeps the memory, which is ready on this stream.
        return Ok(obj.py().detach(|| unsafe { launch::sum(info, *stream) })?);
    }
    if info.dtype() == DType::BOOL {
        let mut count = 0.0;
        array.for_each::<bool>(|value| count += f64::from(value))?;
        return Ok(count);
    }
    Ok(with_number!(info.dtype(), sum(array), launch::SUMMED)?)
}

/// An array on its way to a kernel, and the stream that the kernel goes to.
struct Work {
    array: Array,
    info: ArrayInfo,
    stream: StreamHandle,
    /// Whether the array is of a library that does not learn of the stream.
    is_silent: bool,
}

impl Work {
    /// The array behind an object, ready on `stream`; on one of our choice if that is `None`.
    fn on(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let (mut is_silent, mut array) = (stream.is_none(), None);
        if let Ok(own) = obj.cast::<Array>()
            && own.get().info()?.device().device_type.is_cuda_accessible()
        {
            (is_silent, array) = (false, Some(own.get().alias()));
        }
        let array = match (array, stream) {
            (Some(array), Some(stream)) => {
                match extract_stream(&stream)? {
                    // -1 names no stream: what is pending stays pending where it is, and the kernel goes there.
                    StreamHandle::NothingPending => {}
                    stream => {
                        array.make_stream_wait(stream)?;
                        array.stream.set(stream);
                    }
                }
                array
            }
            (Some(array), None) => array,
            (None, stream) => Array::from_import(import_any(obj, stream)?.import)?,
        };
        let info = array.info()?;
        let stream = match info.stream() {
            // What is ready may be worked on anywhere.
            StreamHandle::NothingPending => StreamHandle::LegacyDefault,
            stream => stream,
        };
        Ok(Self { array, info, stream, is_silent })
    }

    fn is_for_devices(&self) -> bool {
        self.info.device().device_type.is_cuda_accessible()
    }

    /// Queues the kernel.
    fn scale(&self, factor: f64) -> interop_core::Result<()> {
        // SAFETY: the array is ready on this stream, and its memory is released after the work of the context: by the
        // driver, which waits before it frees, or by the ordered release of imports and of memory from a pool.
        unsafe { launch::scale(&self.info, factor, self.stream) }?;
        self.array.stream.set(self.stream);
        let on_host = self.is_silent && self.info.device().device_type.is_host_accessible();
        if on_host { cuda::stream_synchronize(self.stream, self.info.device()) } else { Ok(()) }
    }
}

/// A Python number: integers keep all their digits.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// `True` and `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// An integer of more than 128 bits, as near as a double comes.
    Huge(f64),
    /// Any other real number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Value {
    /// The value of a complex element.
    fn to_complex(self) -> Complex<f64> {
        match self {
            Self::Bool(value) => f64::from(value).into(),
            Self::Int(value) => (value as f64).into(),
            Self::Huge(value) | Self::Float(value) => value.into(),
            Self::Complex(value) => value,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Value {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(value) = object.extract::<bool>() {
            return Ok(Self::Bool(value));
        }
        match extract_integer(&object, "value") {
            Ok(value) => return Ok(Self::Int(value)),
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {}
            Err(_) if object.is_instance_of::<PyInt>() => {
                return Ok(Self::Huge(object.extract().unwrap_or(f64::INFINITY)));
            }
            Err(error) => return Err(error),
        }
        // Before it is asked for a real number, which a complex one of NumPy's gives without its other half.
        if let Ok(value) = object.cast::<PyComplex>() {
            return Ok(Self::Complex(Complex::new(value.real(), value.imag())));
        }
        object.extract::<f64>().map(Self::Float).map_err(|_| {
            let found = object
                .get_type()
                .fully_qualified_name()
                .map_or_else(|_| "an object".into(), |n| n.to_string());
            Error::new(ErrorKind::Type, "value", found, "a bool, an int, a float or a complex").into()
        })
    }
}

/// New memory of `len` elements, all `value`.
pub(crate) fn filled(
    dtype: DType,
    len: usize,
    value: Value,
    place: Place,
) -> interop_core::Result<SharedBuffer> {
    const HUGE: &str = "an integer of more than 128 bits";
    fn beyond(dtype: DType, value: &dyn Display) -> Error {
        let allowed = format!("a number within the range of {}", dtype.name());
        Error::new(ErrorKind::Overflow, "value", value, allowed)
    }
    fn complex(dtype: DType) -> Error {
        Error::new(ErrorKind::Type, "value", "a complex", format_args!("a real number, for {dtype}"))
    }
    fn all<T: Element>(len: usize, value: T, place: Place) -> interop_core::Result<SharedBuffer> {
        let mut elements = HostVec::<T>::try_zeroed(len)?;
        elements.as_mut_slice()?.fill(value);
        place.keep(elements)
    }
    fn fill<T: Number>(len: usize, value: Value, place: Place) -> interop_core::Result<SharedBuffer> {
        let beyond = |value: &dyn Display| beyond(T::TYPE.dtype(), value);
        let value = match value {
            Value::Bool(value) => T::from_f64(f64::from(value)),
            Value::Float(value) if T::IS_FLOAT => T::from_f64(value),
            Value::Float(value) if value.is_nan() => return Err(beyond(&value)),
            Value::Float(value) => T::from_int(value as i128).ok_or_else(|| beyond(&value))?,
            Value::Int(value) => T::from_int(value).ok_or_else(|| beyond(&value))?,
            Value::Huge(value) if T::IS_FLOAT && value.is_finite() => T::from_f64(value),
            Value::Huge(_) => return Err(beyond(&HUGE)),
            Value::Complex(_) => return Err(complex(T::TYPE.dtype())),
        };
        all(len, value, place)
    }
    match (dtype, value) {
        (DType::COMPLEX64 | DType::COMPLEX128, Value::Huge(value)) if value.is_infinite() => {
            Err(beyond(dtype, &HUGE))
        }
        (DType::COMPLEX64, value) => {
            let Complex { re, im } = value.to_complex();
            all(len, Complex::new(re as f32, im as f32), place)
        }
        (DType::COMPLEX128, value) => all(len, value.to_complex(), place),
        (DType::BOOL, Value::Bool(value)) => all(len, value, place),
        (DType::BOOL, Value::Int(value)) => all(len, value != 0, place),
        (DType::BOOL, Value::Float(value) | Value::Huge(value)) => all(len, value != 0.0, place),
        (DType::BOOL, Value::Complex(_)) => Err(complex(dtype)),
        _ => with_number!(dtype, fill(len, value, place), FILLED),
    }
}
