//! Shared helpers of the runtime tests: fake producers and memory, a counting allocator, and brute force.

pub(crate) mod allocator;
pub(crate) mod arrays;
pub(crate) mod brute_force;
pub(crate) mod compiler;
pub(crate) mod counted_owners;
pub(crate) mod foreign_tensors;
pub(crate) mod owner_chains;
pub(crate) mod streams;
mod subprocess;

use interop_core::{Error, ErrorKind};
pub(crate) use subprocess::run_alone;

/// The expected parts of an error: its kind and location, and words of the value found and of the allowed values.
pub(crate) type Told = (ErrorKind, &'static str, &'static str, &'static str);

/// Compares an error with the expected parts.
#[track_caller]
pub(crate) fn assert_told(error: &Error, told: (ErrorKind, &str, &str, &str)) {
    let (kind, place, found, allowed) = told;
    assert_eq!((error.kind(), error.location()), (kind, place), "{error}");
    assert!(error.found().contains(found), "no {found:?} in what was found: {error}");
    // The allowed values and the advice for the author of the code.
    let text = error.to_string();
    let (_, rest) = text.split_once(", allowed: ").unwrap_or_default();
    assert!(rest.contains(allowed), "no {allowed:?} in what is allowed: {error}");
}

/// Converts a number of elements or bytes to the integer type of the protocols.
pub(crate) fn signed<T: TryInto<S>, S>(number: T) -> S
where
    T::Error: std::fmt::Debug,
{
    number.try_into().expect("a number of a test fits")
}
