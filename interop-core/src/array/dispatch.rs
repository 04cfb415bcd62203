//! Selection of a Rust type by an element type that is known only at run time.

use core::str::FromStr;

use crate::array::dtype::DType;
use crate::array::element::Element;
use crate::error::{Error, ErrorKind, Result};

impl DType {
    /// Returns the element type of a Rust type. For a struct these are opaque bytes of its size, for an array it is the
    /// element type of its items.
    ///
    /// ```
    /// use interop_core::DType;
    ///
    /// assert_eq!(DType::of::<f32>(), DType::F32);
    /// ```
    #[must_use]
    pub const fn of<T: Element>() -> Self {
        T::TYPE.dtype
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a typestr or a name: `"<f4"`, `"float32"`, `"bfloat16"`.
    ///
    /// ```
    /// use interop_core::{DType, ErrorKind};
    ///
    /// assert_eq!("<f4".parse(), Ok(DType::F32));
    /// assert_eq!("float32".parse(), Ok(DType::F32));
    /// assert_eq!("real".parse::<DType>().unwrap_err().kind(), ErrorKind::DType);
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        let named = Self::from_name(text).or_else(|| Self::from_typestr(text).ok());
        named.ok_or_else(|| {
            let allowed = "a name such as `float32` or `bfloat16`, or a typestr such as `<f4`";
            Error::new(ErrorKind::DType, "dtype", format_args!("`{text}`"), allowed)
        })
    }
}

/// Runs code with the Rust type of an element type: `dispatch!(dtype, T => expression)`.
///
/// In the expression, `T` is the Rust type. By default it is an integer of 8 to 64 bits, an `f32` or an `f64`. A list
/// selects other types: `dispatch!(dtype, [f32, bool], T => expression)`. The expression is compiled for each type. The
/// value is a `Result`, with [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a type that is not listed.
///
/// ```
/// use interop_core::{CudaArray, DType, ErrorKind, HostVec, Result, dispatch};
///
/// fn bytes_of(dtype: DType, len: usize) -> Result<usize> {
///     dispatch!(dtype, T => HostVec::<T>::try_zeroed(len)?.len() * size_of::<T>())
/// }
///
/// assert_eq!(bytes_of(DType::F64, 3)?, 24);
/// assert_eq!(bytes_of(DType::BOOL, 3).unwrap_err().kind(), ErrorKind::DType);
/// assert_eq!(dispatch!(DType::BOOL, [bool, u8], T => size_of::<T>())?, 1);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[macro_export]
macro_rules! dispatch {
    ($dtype:expr, $name:ident => $value:expr $(,)?) => {
        $crate::dispatch!($dtype, [i8, i16, i32, i64, u8, u16, u32, u64, f32, f64], $name => $value)
    };
    ($dtype:expr, [$($known:ty),+ $(,)?], $name:ident => $value:expr $(,)?) => {{
        let dtype: $crate::DType = $dtype;
        $(if dtype == $crate::DType::of::<$known>() {
            type $name = $known;
            $crate::Result::<_, $crate::Error>::Ok($value)
        } else)+ {
            $crate::Result::<_, $crate::Error>::Err($crate::__interop_core::unlisted(dtype, &[$($crate::DType::of::<$known>()),+]))
        }
    }};
}

/// The error for an element type that is not in the list.
#[doc(hidden)]
#[cold]
#[must_use]
pub fn unlisted(dtype: DType, known: &[DType]) -> Error {
    let names: Vec<String> = known.iter().map(|known| known.name()).collect();
    Error::new(ErrorKind::DType, "dtype", dtype, names.join(", "))
}
