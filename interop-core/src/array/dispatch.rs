//! Selection of a Rust type by an element type that is known only at run time.

use crate::array::dtype::DType;
use crate::error::{Error, ErrorKind};

/// Runs code with the Rust type of an element type: `dispatch!(dtype, T => expression)`.
///
/// It also takes an [`Import`](crate::Import) or a [`BorrowedTensor`](crate::lent::BorrowedTensor) instead of a
/// [`DType`](crate::DType). The error then says where the array is from.
///
/// In the expression, `T` is the Rust type. Without a list it is any scalar element type of this crate: `bool`, the
/// integers of 8 to 64 bits, `f32`, `f64`, the floats of 8, 6 and 4 bits, and those of the features `half` and
/// `num-complex`. A list selects types: `dispatch!(dtype, [f32, f64], T => expression)`. The expression is compiled for
/// each type, so code that calculates needs a list of numbers. The value is a `Result`, with
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for any other type.
///
/// ```
/// use interop_core::{CudaArray, DType, ErrorKind, HostVec, Result, dispatch};
///
/// fn bytes_of(dtype: DType, len: usize) -> Result<usize> {
///     dispatch!(dtype, T => HostVec::<T>::try_zeroed(len)?.len() * size_of::<T>())
/// }
///
/// assert_eq!(bytes_of(DType::F64, 3)?, 24);
/// assert_eq!((bytes_of(DType::BOOL, 3)?, bytes_of(DType::F8_E4M3FN, 3)?), (3, 3));
/// assert_eq!(bytes_of(DType::new(77, 8, 1), 3).unwrap_err().kind(), ErrorKind::DType);
///
/// fn sum(array: &impl CudaArray) -> Result<f64> {
///     dispatch!(array.info()?.dtype(), [i32, f32, f64], T => array.fold::<T, _>(0.0, |sum, value| sum + f64::from(value))?)
/// }
/// # Ok::<(), interop_core::Error>(())
/// ```
#[macro_export]
macro_rules! dispatch {
    ($dtype:expr, $name:ident => $value:expr $(,)?) => {
        $crate::dispatch!(
            $dtype,
            [
                bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64,
                $crate::__interop_core::F16, $crate::__interop_core::BF16,
                $crate::__interop_core::Complex64, $crate::__interop_core::Complex128,
                $crate::element::MiniFloat<7>, $crate::element::MiniFloat<8>, $crate::element::MiniFloat<9>,
                $crate::element::MiniFloat<10>, $crate::element::MiniFloat<11>, $crate::element::MiniFloat<12>,
                $crate::element::MiniFloat<13>, $crate::element::MiniFloat<14>, $crate::element::MiniFloat<15>,
                $crate::element::MiniFloat<16>, $crate::element::MiniFloat<17>,
            ],
            $name => $value
        )
    };
    ($dtype:expr, [$($known:ty),+ $(,)?], $name:ident => $value:expr $(,)?) => {
        match &$dtype {
            of => match { use $crate::__interop_core::HasDType as _; of.dtype_to_dispatch() } {
                $(dtype if dtype == <$known as $crate::Element>::TYPE.dtype() => {
                    type $name = $known;
                    $crate::Result::<_, $crate::Error>::Ok($value)
                })+
                dtype => $crate::Result::<_, $crate::Error>::Err({
                    use $crate::__interop_core::HasDType as _;
                    of.named_in($crate::__interop_core::unlisted(dtype, &[$(<$known as $crate::Element>::TYPE.dtype()),+]))
                }),
            },
        }
    };
}

/// What `dispatch!` takes: an element type, or an array, whose origin is part of the error.
pub trait HasDType {
    /// The element type.
    fn dtype_to_dispatch(&self) -> DType;

    /// Says in an error where the array is from.
    fn named_in(&self, error: Error) -> Error;
}

impl HasDType for DType {
    fn dtype_to_dispatch(&self) -> DType {
        *self
    }

    fn named_in(&self, error: Error) -> Error {
        error
    }
}

/// The types of the optional features. Without the feature each is `bool`, which the list has already.
pub(crate) mod optional {
    #[cfg(not(feature = "half"))]
    pub use core::primitive::{bool as F16, bool as BF16};
    #[cfg(not(feature = "num-complex"))]
    pub use core::primitive::{bool as Complex64, bool as Complex128};

    #[cfg(feature = "half")]
    pub use half::{bf16 as BF16, f16 as F16};
    #[cfg(feature = "num-complex")]
    pub use num_complex::{Complex32 as Complex64, Complex64 as Complex128};
}

/// The error for an element type that is not in the list.
#[cold]
#[must_use]
pub fn unlisted(dtype: DType, known: &[DType]) -> Error {
    let first = known.iter().enumerate().filter(|(at, dtype)| !known[..*at].contains(dtype));
    let names: Vec<String> = first.map(|(_, dtype)| dtype.name()).collect();
    let error = Error::new(ErrorKind::DType, "dtype", dtype, names.join(", "));
    match dtype {
        DType::F16 | DType::BF16 if !cfg!(feature = "half") => {
            error.with_rust_hint("`half` of `interop-core` is the feature with this type")
        }
        DType::COMPLEX64 | DType::COMPLEX128 if !cfg!(feature = "num-complex") => {
            error.with_rust_hint("`num-complex` of `interop-core` is the feature with this type")
        }
        _ => error,
    }
}
