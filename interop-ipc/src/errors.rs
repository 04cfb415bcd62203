//! The errors of this crate, as those of `interop-core`.

use core::fmt::Display;

use interop_core::{Error, ErrorKind};
use rustix::io::Errno;

/// An error of the message.
#[cold]
pub(crate) fn malformed(field: &str, found: impl Display, allowed: impl Display) -> Error {
    Error::new(ErrorKind::Type, format_args!("parcel.{field}"), found, allowed)
}

/// The other process is gone, or does not offer the array.
#[cold]
pub(crate) fn gone(sentence: impl Display) -> Error {
    Error::new(ErrorKind::Gone, "parcel", sentence, "")
}

/// The error of a system call. `what` names it.
#[cold]
pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| {
        let kind = match errno {
            Errno::NOMEM | Errno::NOSPC | Errno::FBIG | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => {
                ErrorKind::OutOfMemory
            }
            _ => ErrorKind::Unsupported,
        };
        Error::new(kind, what, errno, "")
    }
}
