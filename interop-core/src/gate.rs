//! What keeps a field of the wrong type one message, for structs that go both ways.
//!
//! The export half of the derive asks for `Storage`, the import half for `FromImport`. A type that is neither would be
//! reported twice. So the import half asks through [`Gate`], whose functions exist only for types that have the export
//! role; for all others rustc takes the functions of [`Unreached`], which ask for nothing.

use core::marker::PhantomData;

use crate::arrival::{Arrival, Wanted};
use crate::roles::{AsStream, FromStream};
use crate::storage::{FromImport, Storage};

/// The import role of a type that has the export role.
pub struct Gate<T>(PhantomData<T>);

impl<T: Storage> Gate<T> {
    /// As [`FromImport::open`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`, like the call in it")]
    pub fn open(from: &mut Arrival, wanted: Wanted) -> Opened<T>
    where
        T: FromImport,
    {
        T::open(from, wanted)
    }
}

impl<T: AsStream> Gate<T> {
    /// As [`FromStream::take`].
    pub fn stream(from: &mut Arrival) -> Option<T>
    where
        T: FromStream,
    {
        T::take(from)
    }
}

/// The functions of [`Gate`] for types that have no role at all. Code that names them does not compile.
pub trait Unreached<T> {
    /// Never called.
    fn open(_: &mut Arrival, _: Wanted) -> Opened<T> {
        unreachable!("the export half does not compile")
    }

    /// Never called.
    #[must_use]
    fn stream(_: &mut Arrival) -> Option<T> {
        unreachable!("the export half does not compile")
    }
}

impl<T> Unreached<T> for Gate<T> {}

/// The storage of an arrival that was compared with it.
#[must_use]
pub struct Opened<T> {
    take: fn(&mut Arrival) -> Option<T>,
}

impl<T> Opened<T> {
    #[inline]
    pub(crate) const fn new(take: fn(&mut Arrival) -> Option<T>) -> Self {
        Self { take }
    }

    /// As [`Arrival::storage`].
    #[inline]
    pub fn take(self, from: &mut Arrival) -> Option<T> {
        (self.take)(from)
    }
}
