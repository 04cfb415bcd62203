//! Errors, with the class of the Python exception that they become.

use core::error::Error as StdError;
use core::ffi::CStr;
use core::fmt;

use interop_core::{Error, ErrorKind, Refused};

/// An error of an exported function: the class of its exception in Python, and its text.
///
/// Functions may return any error type. An [`interop_core::Error`] becomes the exception of its kind, and any other error
/// a `RuntimeError`. Return a `CallError` to choose another class.
///
/// ```
/// use interop_tvm_ffi::CallError;
///
/// fn root(number: f64) -> Result<f64, CallError> {
///     if number < 0.0 {
///         return Err(CallError::new(c"ValueError", format!("`number`: found {number}, allowed: 0 or greater")));
///     }
///     Ok(number.sqrt())
/// }
///
/// interop_tvm_ffi::export! { root(number) }
/// assert_eq!(root(-1.0).unwrap_err().to_string(), "`number`: found -1, allowed: 0 or greater");
/// ```
pub struct CallError {
    pub(crate) class: &'static CStr,
    pub(crate) text: String,
    /// Whether it is of `interop-core`, and does not say where it is from.
    pub(crate) lacks_origin: bool,
}

impl CallError {
    /// Creates an error.
    ///
    /// These classes exist in Python: `TypeError`, `ValueError`, `RuntimeError`, `IndexError`, `KeyError`,
    /// `AttributeError`, `AssertionError` and `MemoryError`. TVM FFI makes a `RuntimeError` of all others.
    #[cold]
    #[must_use]
    pub fn new(class: &'static CStr, text: impl Into<String>) -> Self {
        Self { class, text: text.into(), lacks_origin: false }
    }

    /// The error that the library has already set.
    pub(crate) const RAISED: Self = Self { class: c"", text: String::new(), lacks_origin: false };

    /// The error of a function with this name.
    #[cold]
    pub(crate) fn of_function(error: Box<dyn StdError + Send + Sync>, function: &str) -> Self {
        match error.downcast::<Self>().map_err(<dyn StdError + Send + Sync>::downcast::<Error>) {
            Ok(own) if own.lacks_origin => Self { text: format!("{own} (from `{function}`)"), ..*own },
            Ok(own) => *own,
            // A nearer origin stays.
            Err(Ok(error)) => error.with_origin(format_args!("`{function}`")).into(),
            Err(Err(other)) => Self::new(c"RuntimeError", other.to_string()),
        }
    }
}

/// The class for an error of `interop-core`.
///
/// Memory that must not be written is a `ValueError`, because TVM FFI knows no `BufferError`.
fn class(kind: ErrorKind) -> &'static CStr {
    match kind {
        ErrorKind::Type | ErrorKind::DType => c"TypeError",
        ErrorKind::IndexOutOfBounds => c"IndexError",
        ErrorKind::OutOfMemory => c"MemoryError",
        ErrorKind::Driver | ErrorKind::StreamCapture | ErrorKind::Stream | ErrorKind::Version => {
            c"RuntimeError"
        }
        _ => c"ValueError",
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let lacks_origin = error.origin().is_none();
        Self { lacks_origin, ..Self::new(class(error.kind()), error.to_string()) }
    }
}

impl<T> From<Refused<T>> for CallError {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.class.to_string_lossy(), self.text)
    }
}

impl StdError for CallError {}
