//! The one error of the crate: what was found, what is allowed, where, and whose object it was.

use core::fmt;

/// What sort of rule was broken, for code that decides by the kind.
///
/// The Python layer turns each kind into the exception class that the array standards name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A required key is absent.
    MissingKey,
    /// A value is of the wrong type (a float among extents, a list where a tuple stands).
    Type,
    /// The version of a protocol or struct is one that cannot be read, or flags are of a later one.
    Version,
    /// An element type that does not exist, that the protocol cannot spell, or that was not the one asked for; bytes that
    /// are no value of it.
    DType,
    /// The number of axes.
    Rank,
    /// An extent: negative, or not the one asked for.
    Shape,
    /// A stride: their number, divisibility, or a layout that was not asked for.
    Strides,
    /// A number that its place cannot hold, or a product or sum that does not fit the address space.
    Overflow,
    /// A null address of an array that has elements, or a null pointer to its extents.
    NullPointer,
    /// An address that is not aligned for the element type.
    Alignment,
    /// Elements outside the memory that is there.
    OutOfBounds,
    /// An index outside the array.
    IndexOutOfBounds,
    /// A device or memory kind that is unknown, that cannot serve, or that the driver contradicts.
    Device,
    /// A stream value that the protocol forbids, or a stream that does not go with the array.
    Stream,
    /// Write access to memory that may not be written, or a protocol form that cannot say so.
    ReadOnly,
    /// A masked array.
    Mask,
    /// A capsule of another name, such as one that was consumed before.
    Capsule,
    /// A copy that is needed and was forbidden.
    CopyRequired,
    /// Memory that could not be allocated.
    OutOfMemory,
    /// A call of the CUDA driver that failed, or a machine without a driver.
    Driver,
    /// What would spoil the capture of a graph: an order with a stream outside it, a wait, a copy into new memory.
    StreamCapture,
    /// Memory that Rust code reads or writes at the moment, in a way that allows no other access.
    AlreadyBorrowed,
    /// The operation is not possible on this object.
    Unsupported,
}

/// A text for an error, put together when it is asked for. Unlike `format_args!` it can be kept in a variable by compilers
/// before Rust 1.89.
macro_rules! text {
    ($($part:tt)*) => {
        $crate::error::Text(|f: &mut ::core::fmt::Formatter<'_>| ::core::write!(f, $($part)*))
    };
}

/// What `text!` makes.
#[derive(Clone, Copy)]
pub(crate) struct Text<F>(pub(crate) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Text<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// An error that names the place, what was found there and what is allowed.
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
    place: String,
    found: String,
    allowed: String,
    origin: Option<String>,
    rust_hint: Option<&'static str>,
    python_hint: Option<&'static str>,
}

/// `Result` with this crate's [`Error`], unless another is named.
pub type Result<T, E = Error> = core::result::Result<T, E>;

impl Error {
    /// An error at `place` (a key, an axis, a field), with what was found there and what is allowed.
    #[cold]
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        place: impl fmt::Display,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self(Box::new(Parts {
            kind,
            place: place.to_string(),
            found: found.to_string(),
            allowed: allowed.to_string(),
            origin: None,
            rust_hint: None,
            python_hint: None,
        }))
    }

    /// Memory that could not be allocated.
    #[cold]
    pub(crate) fn no_memory(bytes: usize) -> Self {
        let found = text!("{bytes} bytes, which could not be allocated");
        Self::new(ErrorKind::OutOfMemory, "memory", found, "as much as is free")
    }

    /// The same error with the object that the value came from, such as `cupy.ndarray`.
    ///
    /// The origin that was set first stays: it is the nearest to the fault.
    #[must_use]
    pub fn with_origin(mut self, origin: impl fmt::Display) -> Self {
        if self.0.origin.is_none() {
            self.0.origin = Some(origin.to_string());
        }
        self
    }

    /// The same error with what the author of the Rust code may do about it. Python callers are not told: it is not their
    /// code.
    #[must_use]
    pub(crate) fn with_rust_hint(mut self, rust_hint: &'static str) -> Self {
        self.0.rust_hint = Some(rust_hint);
        self
    }

    /// The same error with what a Python caller may do about it, who is told nothing else.
    #[must_use]
    pub(crate) fn with_python_hint(mut self, python_hint: &'static str) -> Self {
        self.0.python_hint = Some(python_hint);
        self
    }

    /// The text with advice for Python callers in place of that for Rust authors.
    #[cfg(feature = "python")]
    pub(crate) fn into_python_message(mut self) -> String {
        self.0.rust_hint = self.0.python_hint;
        self.to_string()
    }

    /// The kind of rule that was broken.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The key, axis or field that the error is about.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.0.place
    }

    /// What was found there.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.0.found
    }

    /// What is allowed there.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.0.allowed
    }

    /// The object that the value came from, where known.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.0.origin.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { place, found, allowed, origin, rust_hint, .. } = &*self.0;
        write!(f, "`{place}`: found {found}, allowed: {allowed}")?;
        rust_hint.map_or(Ok(()), |advice| write!(f, "; {advice}"))?;
        origin.as_ref().map_or(Ok(()), |origin| write!(f, " (from {origin})"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.kind())
    }
}

impl core::error::Error for Error {}

/// A value that was not taken, with the reason: a refusal loses nothing.
///
/// An export that fails gives back the struct; an import that fails gives back what arrived. If you have no use for the
/// value, `?` turns the refusal into its [`Error`] and drops the value (an import is then released). Functions of yours that
/// return it with what was refused are large to `clippy::result_large_err`, whose `large-error-threshold` of 256 holds an import.
///
/// Where a function returns another error, such as `Box<dyn Error>` or that of `anyhow`, write `.map_err(Error::from)?`. A bare
/// `?` keeps the value for as long as that error lives, does not compile for a value that is not `Sync` or borrows something,
/// and what is then looked for in the error is a refusal and no [`Error`].
///
/// ```
/// use interop_core::{Error, ErrorKind, Refused};
///
/// let error = Error::new(ErrorKind::Rank, "shape", "3 axes", "2 axes");
/// let refused = Refused { value: vec![1.0], error };
/// assert_eq!(refused.value, [1.0]);
/// assert_eq!(Error::from(refused).kind(), ErrorKind::Rank);
///
/// fn elsewhere(refused: Refused<*const u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     Err(refused).map_err(Error::from)?
/// }
/// ```
pub struct Refused<T> {
    /// What was to be taken.
    pub value: T,
    /// Why it was not.
    pub error: Error,
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
