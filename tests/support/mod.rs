//! What the runtime tests share: fake producers and memory, an allocator that keeps a tally, and brute force.

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

/// What an error has to say: its kind and place, and words of what was found and what is allowed.
pub(crate) type Told = (ErrorKind, &'static str, &'static str, &'static str);

/// Compares an error with what it has to say.
#[track_caller]
pub(crate) fn assert_told(error: &Error, told: (ErrorKind, &str, &str, &str)) {
    let (kind, place, found, allowed) = told;
    assert_eq!((error.kind(), error.location()), (kind, place), "{error}");
    assert!(error.found().contains(found), "no {found:?} in what was found: {error}");
    // What is allowed, and what the author of the code is advised to do.
    let text = error.to_string();
    let (_, rest) = text.split_once(", allowed: ").unwrap_or_default();
    assert!(rest.contains(allowed), "no {allowed:?} in what is allowed: {error}");
}

/// A number of elements or bytes as the protocols count it.
pub(crate) fn signed<T: TryInto<S>, S>(number: T) -> S
where
    T::Error: std::fmt::Debug,
{
    number.try_into().expect("a number of a test fits")
}
