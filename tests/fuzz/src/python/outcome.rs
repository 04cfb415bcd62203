//! The expected outcome of a call: a result, or a set of errors.

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::world::World;

/// A set of error kinds. Several are expected if several things are wrong.
pub(super) type Kinds = u16;
/// A result, or the kinds of errors of which the call raises one.
pub(super) type Expected<T> = Result<T, Kinds>;

/// The producer's own errors are the bits from here on, in the order of `OWN` in Python.
pub(super) const OWN: Kinds = 1;
pub(super) const OWN_KEYWORD: Kinds = 1 << 3;
pub(super) const OWN_ATTRIBUTE: Kinds = 1 << 4;
pub(super) const OWN_INTERRUPT: Kinds = 1 << 5;
/// A `TypeError`.
pub(super) const TYPE: Kinds = 1 << 6;
/// An `ArrayError`, which is a `BufferError` and a `ValueError`.
pub(super) const REFUSED: Kinds = 1 << 7;
/// An `AttributeError`: a member that the protocol requires is missing.
pub(super) const MISSING: Kinds = 1 << 8;

/// Not a kind: the error comes from a second call and has the first error as its cause, or the error of a property.
pub(super) const CAUSED: Kinds = 1 << 15;
/// Not a kind: the error may concern an object with `__index__`. Its cause is then the error that Python raised for it.
pub(super) const MAY_BE_CAUSED: Kinds = 1 << 14;

/// Returns the kind of an error. Every error must have a text.
///
/// # Panics
///
/// If the kind is unknown: a panic, an error of the interpreter.
pub(super) fn kind(world: &World<'_>, error: &PyErr) -> Kinds {
    let py = world.py();
    assert!(!error.value(py).to_string().is_empty(), "an error without a text: {error:?}");
    if let Some(own) = world.which_own(error) {
        return 1 << own;
    }
    let is = |class: &Bound<'_, PyAny>| error.is_instance(py, class);
    if is(&py.get_type::<PyBufferError>()) && is(&py.get_type::<PyValueError>()) {
        return REFUSED;
    }
    let kinds = [(py.get_type::<PyTypeError>(), TYPE), (py.get_type::<PyAttributeError>(), MISSING)];
    let known = kinds.into_iter().find(|(class, _)| error.get_type(py).is(class));
    known.map_or_else(|| panic!("an error of no known kind: {error}"), |(_, kind)| kind)
}

/// Compares the outcome of a call with the expected one.
///
/// # Panics
///
/// If they differ.
pub(super) fn judge<T, E>(
    world: &World<'_>,
    found: PyResult<T>,
    expected: Expected<E>,
    told: &dyn std::fmt::Debug,
) -> Option<(T, E)> {
    assert!(PyErr::take(world.py()).is_none(), "an exception was left behind: {told:?}");
    match (found, expected) {
        (Ok(found), Ok(expected)) => Some((found, expected)),
        (Err(error), Err(kinds)) => {
            let kind = kind(world, &error);
            assert!(kind & kinds != 0, "{error} is none of the kinds {kinds:#b}: {told:?}");
            let caused = error.cause(world.py()).is_some();
            let may_be = kind == TYPE && kinds & MAY_BE_CAUSED != 0;
            assert!(may_be || caused == (kinds & CAUSED != 0), "the cause of {error}: {told:?}");
            None
        }
        (Ok(_), Err(kinds)) => panic!("something that is wrong was taken, {kinds:#b}: {told:?}"),
        (Err(error), Ok(_)) => panic!("{error}: {told:?}"),
    }
}
