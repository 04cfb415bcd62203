//! The error type of the crate: location, value found, values allowed, and source object.

use core::fmt;
use std::borrow::Cow;

/// The category of an [`Error`], for code that branches on it.
///
/// The Python layer maps each category to the exception class that the array standards require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A required key is missing.
    MissingKey,
    /// A value has the wrong type, such as a float extent or a list in place of a tuple.
    Type,
    /// The version of a protocol or struct is not supported, or a flag belongs to a later version.
    Version,
    /// The element type does not exist, cannot be expressed in the protocol, or is not the requested one. Also: bytes
    /// that are not a valid value of the element type.
    DType,
    /// The number of axes is wrong.
    Rank,
    /// An extent is negative or differs from the requested one.
    Shape,
    /// The strides are wrong: their number, their divisibility by the element size, or a layout that was not requested.
    Strides,
    /// A number does not fit its field, or a product or sum does not fit the address space.
    Overflow,
    /// An array with elements has a null address, or a tensor with axes has a null pointer to its extents.
    NullPointer,
    /// The address is not aligned for the element type.
    Alignment,
    /// Elements lie outside the available memory.
    OutOfBounds,
    /// An index is outside the array.
    IndexOutOfBounds,
    /// The device or memory type is unknown, is not supported, or contradicts the driver.
    Device,
    /// The protocol forbids the stream value, or the stream does not belong to the array's device.
    Stream,
    /// Write access to read-only memory was requested, or the protocol version cannot express read-only.
    ReadOnly,
    /// The array has a mask.
    Mask,
    /// The capsule has another name, for example because it was consumed before.
    Capsule,
    /// A copy is necessary but was forbidden.
    CopyRequired,
    /// Memory could not be allocated.
    OutOfMemory,
    /// A CUDA driver call failed, or the machine has no driver.
    Driver,
    /// The operation would invalidate a stream capture: a wait on a stream outside it, a host wait, a copy into new
    /// memory.
    StreamCapture,
    /// Rust code is borrowing the memory in a way that excludes this access.
    AlreadyBorrowed,
    /// The object does not support the operation.
    Unsupported,
    /// The other process has ended, or does not offer the array any more.
    Gone,
}

/// An error text that is formatted only when it is needed. `format_args!` cannot be kept in a variable before Rust
/// 1.89.
macro_rules! text {
    ($($part:tt)*) => {
        $crate::error::Text(|f: &mut ::core::fmt::Formatter<'_>| ::core::write!(f, $($part)*))
    };
}

/// The result of `text!`.
#[derive(Clone, Copy)]
pub(crate) struct Text<F>(pub(crate) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Text<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// An error with its location, the value found there and the values allowed there.
///
/// It prints as one line, in lower case and without a full stop:
///
/// ```
/// use interop_core::{DType, ErrorKind};
///
/// let error = DType::from_typestr(">f4").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::DType);
/// assert_eq!(error.location(), "typestr");
/// assert!(error.to_string().starts_with("`typestr`: found \">f4\""));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    kind: ErrorKind,
    /// The struct that an import does not fit; empty if there is none.
    of_struct: &'static str,
    location: String,
    found: String,
    allowed: String,
    origin: Option<String>,
    rust_hint: Option<Cow<'static, str>>,
    python_hint: Option<Cure>,
    /// The library of the object that the value came from; empty if it is not known.
    library: &'static str,
}

/// Advice for a Python caller. Most of it depends on the library that the array is from, which is known later.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Cure {
    /// The same for all libraries.
    Say(&'static str),
    /// Convert the elements to the type of this name.
    Convert(String),
    /// Make the array C-contiguous.
    COrder,
    /// Make the array F-contiguous.
    FOrder,
    /// Copy the array.
    Copy,
    /// Copy the array to the host.
    ToHost,
    /// Copy the array to a device.
    ToDevice,
}

/// Where a value came from: in words, such as the name of a Python class, and its library, which is empty if it is not known.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) text: String,
    pub(crate) library: &'static str,
}

impl From<&'static str> for Cure {
    fn from(words: &'static str) -> Self {
        Self::Say(words)
    }
}

/// `Result` with this crate's [`Error`] as the default error type.
pub type Result<T, E = Error> = core::result::Result<T, E>;

impl Error {
    /// Creates an error at `location` (a key, an axis, a field), with the value found and the values allowed there.
    #[cold]
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        location: impl fmt::Display,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self::from_texts(kind, [&location, &found, &allowed])
    }

    /// As [`new`](Self::new). Compiled once: there are hundreds of callers, each with types of its own.
    #[cold]
    fn from_texts(kind: ErrorKind, [location, found, allowed]: [&dyn fmt::Display; 3]) -> Self {
        Self(Box::new(Parts {
            kind,
            of_struct: "",
            location: location.to_string(),
            found: found.to_string(),
            allowed: allowed.to_string(),
            origin: None,
            rust_hint: None,
            python_hint: None,
            library: "",
        }))
    }

    /// The error for a failed allocation of `bytes` bytes.
    #[cold]
    pub(crate) fn no_memory(bytes: usize) -> Self {
        Self::state(ErrorKind::OutOfMemory, "memory", text!("could not allocate {bytes} bytes"))
    }

    /// Creates an error that states a condition in a sentence, where no value could be found or allowed.
    #[cold]
    pub(crate) fn state(kind: ErrorKind, location: impl fmt::Display, sentence: impl fmt::Display) -> Self {
        Self::new(kind, location, sentence, "")
    }

    /// Adds the type of the object that the value came from, such as `cupy.ndarray`.
    ///
    /// An origin that is already set stays, because it is nearer to the cause.
    #[must_use]
    pub fn with_origin(mut self, origin: impl fmt::Display) -> Self {
        if self.0.origin.is_none() {
            self.0.origin = Some(origin.to_string());
        }
        self
    }

    /// Adds the name of the struct that the import does not fit, so that an error tells several arguments apart.
    #[cold]
    #[must_use]
    pub(crate) fn of_struct(mut self, name: &'static str) -> Self {
        self.0.of_struct = name;
        self
    }

    /// Adds advice for the author of the Rust code. Python callers do not see it, because they cannot change that code.
    #[must_use]
    pub(crate) fn with_rust_hint(mut self, rust_hint: &'static str) -> Self {
        self.0.rust_hint = Some(rust_hint.into());
        self
    }

    /// Adds advice for a Python caller, which replaces the advice for the Rust author there.
    #[must_use]
    pub(crate) fn with_python_hint(mut self, python_hint: impl Into<Cure>) -> Self {
        self.0.python_hint = Some(python_hint.into());
        self
    }

    /// Returns whether there is advice for a Python caller.
    #[cfg(feature = "python")]
    pub(crate) fn has_python_hint(&self) -> bool {
        self.0.python_hint.is_some()
    }

    /// Adds where the array is from, and its library for the advice.
    pub(crate) fn with_object(mut self, origin: &Origin) -> Self {
        self.0.library = origin.library;
        self.with_origin(&origin.text)
    }

    /// The message with the advice for Python callers in place of the one for Rust authors. `in_words` formats it for a
    /// library.
    #[cfg(feature = "python")]
    pub(crate) fn into_python_message(mut self, in_words: fn(&Cure, &str) -> Cow<'static, str>) -> String {
        let Parts { python_hint, library, .. } = &*self.0;
        self.0.rust_hint = python_hint.as_ref().map(|cure| in_words(cure, library));
        self.to_string()
    }

    /// The category of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The key, axis or field that the error is about.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.0.location
    }

    /// The value that was found there, or a sentence that states what is wrong.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.0.found
    }

    /// The values that are allowed there. It is empty if the error states a condition instead of a value.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.0.allowed
    }

    /// The type of the object that the value came from, if known.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.0.origin.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { of_struct, location, found, allowed, origin, rust_hint, .. } = &*self.0;
        if !of_struct.is_empty() {
            write!(f, "`{of_struct}`: ")?;
        }
        match &**allowed {
            "" => write!(f, "`{location}`: {found}")?,
            allowed => write!(f, "`{location}`: found {found}, allowed: {allowed}")?,
        }
        rust_hint.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))?;
        origin.as_ref().map_or(Ok(()), |origin| write!(f, " (from {origin})"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.kind())
    }
}

impl core::error::Error for Error {}

impl interop_kernel::OfArgument for Error {
    fn of_argument(self, kernel: &'static str, parameter: &'static str) -> Self {
        self.with_origin(text!("argument `{parameter}` of kernel `{kernel}`"))
    }
}

impl From<interop_kernel::ArgumentError> for Error {
    fn from(error: interop_kernel::ArgumentError) -> Self {
        let kind = match error.kind() {
            interop_kernel::MistakeKind::Rank => ErrorKind::Rank,
            interop_kernel::MistakeKind::Overflow => ErrorKind::Overflow,
            interop_kernel::MistakeKind::Strides => ErrorKind::Strides,
            _ => ErrorKind::Shape,
        };
        Self::new(kind, error.location(), error.found(), error.allowed())
    }
}

/// A value that an operation did not accept, returned together with the [`Error`].
///
/// A failed export returns the struct; a failed import returns the tensor or array.
///
/// If you do not need the value, `?` converts this into its [`Error`] and drops the value, which releases an import.
///
/// If your function returns another error type, such as `Box<dyn Error>` or `anyhow::Error`, write
/// `.map_err(Error::from)?`. A bare `?` would store the value in that error, does not compile if the value is not
/// `Sync` or has a borrow, and hides the [`Error`] from a downcast.
///
/// ```
/// use interop_core::{Error, ErrorKind, Refused};
///
/// let error = Error::new(ErrorKind::Rank, "shape", "3 axes", "2 axes");
/// let refused = Refused { value: Box::new(vec![1.0]), error };
/// assert_eq!(*refused.value, [1.0]);
/// assert_eq!(Error::from(refused).kind(), ErrorKind::Rank);
///
/// fn elsewhere(refused: Refused<*const u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     Err(refused).map_err(Error::from)?
/// }
/// ```
pub struct Refused<T> {
    /// The value that was not accepted. In a box, so that a `Result` with this error stays small.
    pub value: Box<T>,
    /// The reason.
    pub error: Error,
}

impl<T> Refused<T> {
    pub(crate) fn new(value: T, error: Error) -> Self {
        Self { value: Box::new(value), error }
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({})", self.error)
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> core::error::Error for Refused<T> {}

pub(crate) use text;
