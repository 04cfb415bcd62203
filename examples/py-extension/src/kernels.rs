//! Operations on arrays whose element type is known only at run time: on the host here, on a GPU through `launch.rs`.
#![expect(unsafe_code, reason = "promises that the memory of a launch lives")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers are computed in double"
)]

use core::fmt::Display;

use half::{bf16, f16};
use interop_core::arrays::ArrayD;
use interop_core::python::{WithLibrary, extract_integer};
use interop_core::view::ReadOnlyCell;
use interop_core::{
    CudaArray, DType, Element, Error, ErrorKind, FromArray, Import, LaunchScope, Lease, SharedBuffer,
    StreamHandle,
};
use num_complex::Complex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyComplexMethods, PyFloat, PyInt};

use crate::array::{Argument, Array};
use crate::cuda::Place;
use crate::launch;

/// A number type of the operations.
trait Number: Element {
    const IS_FLOAT: bool;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// Multiplies all elements. The product is exact if they and the factor are integers.
    fn scale(array: &mut Argument, factor: f64) -> interop_core::Result<()> {
        array.map_inplace(|value: Self| Self::from_f64(value.to_f64() * factor))
    }
    /// Doubles the value; integers saturate.
    fn doubled(self) -> Self;
    /// Converts an integer. Returns `None` outside the range of an integer type.
    fn from_int(value: i128) -> Option<Self>;
}

/// All integers up to this one are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

macro_rules! integers {
    ($($type:ty, $product:ty;)*) => {
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

                fn scale(array: &mut Argument, factor: f64) -> interop_core::Result<()> {
                    if factor.fract() != 0.0 || factor.abs() > EXACT {
                        return array.map_inplace(|value: Self| Self::from_f64(value.to_f64() * factor));
                    }
                    let Ok(own) = Self::try_from(factor as i128) else {
                        return array.map_inplace(|value: Self| {
                            let product = value as i128 * factor as i128;
                            product.clamp(Self::MIN as i128, Self::MAX as i128) as Self
                        });
                    };
                    // The narrowest product type that is wide enough, so that more elements are multiplied per
                    // instruction.
                    array.map_inplace(|value: Self| {
                        let product = value as $product * own as $product;
                        product.clamp(Self::MIN as $product, Self::MAX as $product) as Self
                    })
                }

                fn doubled(self) -> Self {
                    self.saturating_mul(2)
                }

                fn from_int(value: i128) -> Option<Self> {
                    Self::try_from(value).ok()
                }
            }
        )*
    };
}

integers! {
    i8, i16;
    i16, i32;
    i32, i64;
    i64, i128;
    u8, u16;
    u16, u32;
    u32, u64;
    u64, u128;
}

macro_rules! floats {
    ($($type:ty, $to:expr, $from:expr $(, $scale:expr)?;)*) => {
        $(
            impl Number for $type {
                const IS_FLOAT: bool = true;

                $(
                    fn scale(array: &mut Argument, factor: f64) -> interop_core::Result<()> {
                        $scale(array, factor)
                    }
                )?

                fn to_f64(self) -> f64 {
                    $to(self)
                }

                fn from_f64(value: f64) -> Self {
                    $from(value)
                }

                fn doubled(self) -> Self {
                    self + self
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
    f32, f64::from, |value| value as f32, scale_singles;
    f64, core::convert::identity, core::convert::identity;
}

/// Multiplies `f32` values by a double, with one rounding. If the factor is an exact `f32`, a product in `f32` gives
/// the same result in half the time.
fn scale_singles(array: &mut Argument, factor: f64) -> interop_core::Result<()> {
    let single = factor as f32;
    if f64::from(single).to_bits() == factor.to_bits() {
        return array.map_inplace(|value: f32| value * single);
    }
    array.map_inplace(|value: f32| (f64::from(value) * factor) as f32)
}

/// The element types that `Array.full` supports, for error messages.
const FILLED: &str =
    "bool, integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64 and complex128";

/// Calls a function that is generic over the element type for a dtype. `allowed` lists the supported types.
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
            dtype => Err(Error::new(ErrorKind::DType, "dtype", dtype, $allowed).into()),
        }
    };
}

/// Multiplies every element by `factor`, in place, whatever the shape and strides. Integers are rounded towards zero
/// and saturate.
///
/// A kernel does this in memory that CUDA can access. It runs on the stream on which the caller works, or on `stream`. An
/// array of this module remembers a stream that is named. Other libraries do not learn of it. `then` is called once the kernel is
/// queued, while its scope is still open.
#[pyfunction]
#[pyo3(signature = (obj, factor, *, stream=None, then=None))]
pub(crate) fn scale_(
    obj: &Bound<'_, PyAny>,
    factor: Factor,
    stream: Option<Bound<'_, PyAny>>,
    then: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    fn scale<T: Number>(array: &mut Argument, factor: f64) -> interop_core::Result<()> {
        T::scale(array, factor)
    }
    let Factor(factor) = factor;
    let mut array = Argument::of(obj, stream)?;
    let info = array.info()?;
    if !info.device().device_type.is_cuda_accessible() {
        return Ok(match info.dtype() {
            DType::COMPLEX64 => array.map_inplace(|value: Complex<f32>| {
                let part = |part: f32| (f64::from(part) * factor) as f32;
                Complex::new(part(value.re), part(value.im))
            }),
            DType::COMPLEX128 => array.map_inplace(|value: Complex<f64>| value.scale(factor)),
            dtype => with_number!(dtype, scale(&mut array, factor), launch::SCALED),
        }?);
    }
    let scope = LaunchScope::new();
    let array = scope.write_any(&mut array)?;
    let stream = scope.stream()?;
    // Detached, because the stream may wait for a host function that needs the interpreter's lock.
    // SAFETY: the scope orders the kernel with all other work on the array, whose release comes after it.
    obj.py().detach(|| unsafe { launch::scale(&array, &array, factor, stream) })?;
    if let Some(then) = then {
        then.call0()?;
    }
    Ok(scope.finish()?)
}

/// Returns the sum of the elements as a double. It is computed on the array's device.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn checksum(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<f64> {
    fn sum<T: Number>(array: &Argument) -> interop_core::Result<f64> {
        let mut sum = 0.0;
        array.for_each_chunk(|chunk: &[ReadOnlyCell<T>]| {
            // Several independent sums, because each addition waits for the one before it.
            let mut sums = [0.0; 16];
            let mut parts = chunk.chunks_exact(sums.len());
            for part in &mut parts {
                for (sum, value) in sums.iter_mut().zip(part) {
                    *sum += value.get().to_f64();
                }
            }
            for (sum, value) in sums.iter_mut().zip(parts.remainder()) {
                *sum += value.get().to_f64();
            }
            sum += sums.iter().sum::<f64>();
        })?;
        Ok(sum)
    }
    let array = Argument::read(obj, stream)?;
    let info = array.info()?;
    if info.device().device_type.is_cuda_accessible() {
        let scope = LaunchScope::new();
        let (info, stream) = (scope.read_any(&array)?, scope.stream()?);
        // SAFETY: `array` keeps the memory alive, and the memory is ready on this stream.
        return Ok(obj.py().detach(|| unsafe { launch::sum(&info, stream) })?);
    }
    if info.dtype() == DType::BOOL {
        let count = array.fold(0, |count: u64, value: bool| count + u64::from(value))?;
        return Ok(count as f64);
    }
    Ok(with_number!(info.dtype(), sum(&array), launch::SUMMED)?)
}

/// Writes the elements of an array, each changed, to another array of the same shape and type.
fn fill<T: Element>(
    from: &impl CudaArray,
    to: &mut impl CudaArray,
    change: impl Fn(T) -> T,
) -> interop_core::Result<()> {
    to.zip_map_inplace(from, |_: T, value: T| change(value))
}

/// Returns the elements of an array, each changed, as a new array of the same kind as `object`.
fn changed<'py, T: Element + Send + Sync>(
    object: &Bound<'py, PyAny>,
    import: Import,
    change: impl Fn(T) -> T,
) -> PyResult<Bound<'py, PyAny>> {
    let from = ArrayD::<Lease<T>>::from_import(import)?;
    let mut values = from.to_vec::<T>()?;
    for element in &mut values {
        *element = change(*element);
    }
    WithLibrary::new(object, ArrayD { values, shape: from.shape, strides: None })?.into_pyobject(object.py())
}

/// Returns a new array of the same kind as `object` with every element doubled. `import` is an import of `object` in
/// host memory.
///
/// Rust owns the new memory: for host memory it does not matter which library allocated it.
pub(crate) fn doubled_on_host<'py>(
    object: &Bound<'py, PyAny>,
    import: Import,
) -> PyResult<Bound<'py, PyAny>> {
    fn number<'py, T: Number + Send + Sync>(
        object: &Bound<'py, PyAny>,
        import: Import,
    ) -> PyResult<Bound<'py, PyAny>> {
        changed(object, import, T::doubled)
    }
    match import.info().dtype() {
        DType::COMPLEX64 => changed(object, import, |value: Complex<f32>| value + value),
        DType::COMPLEX128 => changed(object, import, |value: Complex<f64>| value + value),
        dtype => with_number!(dtype, number(object, import), launch::SCALED),
    }
}

/// Writes the elements of an array, doubled, to an array of this module of the same shape and type.
pub(crate) fn double_on_host(from: &Argument, to: &mut Array) -> interop_core::Result<()> {
    fn number<T: Number>(from: &Argument, to: &mut Array) -> interop_core::Result<()> {
        fill(from, to, T::doubled)
    }
    match from.info()?.dtype() {
        DType::COMPLEX64 => fill(from, to, |value: Complex<f32>| value + value),
        DType::COMPLEX128 => fill(from, to, |value: Complex<f64>| value + value),
        dtype => with_number!(dtype, number(from, to), launch::SCALED),
    }
}

/// A Python number. Integers keep all their digits.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// `True` and `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// An integer of more than 128 bits, as the nearest double.
    Huge(f64),
    /// Any other real number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Value {
    /// Converts the value for a complex element.
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
        number(&object, "value", "a bool, an int, a float or a complex")
    }
}

/// A real number of Python, as a double.
#[derive(Clone, Copy)]
pub(crate) struct Factor(f64);

impl<'py> FromPyObject<'_, 'py> for Factor {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // Nearly all factors.
        if let Ok(value) = object.cast::<PyFloat>() {
            return Ok(Self(value.value()));
        }
        let allowed = "a real number within the range of float64";
        let refused = |kind, found| Err(Error::new(kind, "factor", found, allowed).into());
        match number(&object, "factor", allowed)? {
            Value::Complex(_) => refused(ErrorKind::Type, "a complex"),
            Value::Huge(value) if value.is_infinite() => refused(ErrorKind::Overflow, HUGE),
            value => Ok(Self(value.to_complex().re)),
        }
    }
}

/// Reads a number of Python. `location` is the name of the argument, and `allowed` is for an object that is no number.
fn number(object: &Bound<'_, PyAny>, location: &str, allowed: &str) -> PyResult<Value> {
    if let Ok(value) = object.extract::<bool>() {
        return Ok(Value::Bool(value));
    }
    match extract_integer(object, location) {
        Ok(value) => return Ok(Value::Int(value)),
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {}
        Err(_) if object.is_instance_of::<PyInt>() => {
            return Ok(Value::Huge(object.extract().unwrap_or(f64::INFINITY)));
        }
        Err(error) => return Err(error),
    }
    // Read before real numbers, because NumPy's complex numbers convert to a real one without their imaginary part.
    if let Some(value) = complex_number(object)? {
        return Ok(Value::Complex(value));
    }
    object.extract::<f64>().map(Value::Float).map_err(|_| {
        let found =
            object.get_type().fully_qualified_name().map_or_else(|_| "an object".into(), |n| n.to_string());
        Error::new(ErrorKind::Type, location, found, allowed).into()
    })
}

/// Returns the value of a complex number, or `None` if the object is a real number or none at all.
///
/// Fractions, decimals and arrays of real numbers also convert to a complex one, without an imaginary part.
fn complex_number(object: &Bound<'_, PyAny>) -> PyResult<Option<Complex<f64>>> {
    let py = object.py();
    if !object.hasattr("__complex__")? {
        return Ok(None);
    }
    let Ok(value) = py.get_type::<PyComplex>().call1((object,)) else { return Ok(None) };
    let value = value.cast::<PyComplex>()?;
    let value = Complex::new(value.real(), value.imag());
    let numbers = py.import("numbers")?;
    let is = |class: &str| object.is_instance(&numbers.getattr(class)?);
    let is_complex = value.im != 0.0 || (is("Complex")? && !is("Real")?);
    Ok(is_complex.then_some(value))
}

/// What is found where an integer is out of range.
const HUGE: &str = "an integer of more than 128 bits";

/// Returns new memory of `len` elements that are all `value`, and the stream on which it is filled.
pub(crate) fn filled(
    dtype: DType,
    len: usize,
    value: Value,
    place: Place,
) -> interop_core::Result<(SharedBuffer, StreamHandle)> {
    fn beyond(dtype: DType, value: &dyn Display) -> Error {
        let allowed = format!("a number within the range of {dtype}");
        Error::new(ErrorKind::Overflow, "value", value, allowed)
    }
    fn complex(dtype: DType) -> Error {
        Error::new(ErrorKind::Type, "value", "a complex", format_args!("a real number, for {dtype}"))
    }
    fn fill<T: Number>(
        len: usize,
        value: Value,
        place: Place,
    ) -> interop_core::Result<(SharedBuffer, StreamHandle)> {
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
        place.filled(len, value)
    }
    match (dtype, value) {
        (DType::COMPLEX64 | DType::COMPLEX128, Value::Huge(value)) if value.is_infinite() => {
            Err(beyond(dtype, &HUGE))
        }
        (DType::COMPLEX64, value) => {
            let Complex { re, im } = value.to_complex();
            place.filled(len, Complex::new(re as f32, im as f32))
        }
        (DType::COMPLEX128, value) => place.filled(len, value.to_complex()),
        (DType::BOOL, Value::Bool(value)) => place.filled(len, value),
        (DType::BOOL, Value::Int(value)) => place.filled(len, value != 0),
        (DType::BOOL, Value::Float(value) | Value::Huge(value)) => place.filled(len, value != 0.0),
        (DType::BOOL, Value::Complex(_)) => Err(complex(dtype)),
        _ => with_number!(dtype, fill(len, value, place), FILLED),
    }
}
