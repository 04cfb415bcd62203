//! What keeps a field of the wrong type one message, for structs that go both ways.
//!
//! The export half of the derive asks for `Storage`, the import half for `FromImport`. A type that is neither would be
//! reported twice. So the import half asks through [`FieldProbe`], whose functions exist only for types that have the export
//! role; for all others rustc takes the functions of [`NeverCalled`], which ask for nothing.
//!
//! Likewise a constant of `shape = [...]` that is no integer: [`constant`] says so, and what would be called of it is there.
//!
//! Likewise the fields of an element: of one that is not `Copy` rustc says so for the struct, so the gate asks only others for
//! what they are.

use core::marker::PhantomData;

use crate::array::element::{Element, ElementType};
use crate::derive::fields::axes::Extent;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::memory::extraction::{Extraction, Requirements};
use crate::memory::from_import::{CheckedStorage, FromImport};
use crate::memory::storage::Storage;

/// The import role of a type that has the export role.
pub struct FieldProbe<T>(PhantomData<T>);

impl<T: Storage> FieldProbe<T> {
    /// As [`FromImport::open`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`, like the call in it")]
    pub fn open(from: &mut Extraction<'_>, requirements: Requirements) -> CheckedStorage<T>
    where
        T: FromImport,
    {
        T::open(from, requirements)
    }
}

impl<T: AsStream> FieldProbe<T> {
    /// As [`FromStream::take`].
    pub fn stream(from: &mut Extraction<'_>) -> Option<T>
    where
        T: FromStream,
    {
        T::take(from)
    }
}

/// The items of [`FieldProbe`] for types that have no role at all. Code that names them does not compile.
pub trait NeverCalled<T> {
    /// Never used.
    const FIELD: UnknownField = UnknownField;

    /// Never called.
    fn open(_: &mut Extraction<'_>, _: Requirements) -> CheckedStorage<T> {
        unreachable!("the export half does not compile")
    }

    /// Never called.
    #[must_use]
    fn extent(self) -> usize
    where
        Self: Sized,
    {
        unreachable!("`constant` does not compile")
    }

    /// Never called.
    #[must_use]
    fn stream(_: &mut Extraction<'_>) -> Option<T> {
        unreachable!("the export half does not compile")
    }
}

impl<T> NeverCalled<T> for FieldProbe<T> {}

impl<T> NeverCalled<T> for Constant<T> {}

/// A constant of `shape = [...]`, whose value is known when the struct is compiled.
#[must_use]
pub struct Constant<T>(T);

/// The constant, if its type is that of an extent.
pub const fn constant<T: Extent>(constant: T) -> Constant<T> {
    Constant(constant)
}

macro_rules! constants {
    ($($int:ty)*) => {
        $(
            impl Constant<$int> {
                /// The extent; rustc refuses a struct with one that no array has.
                #[must_use]
                #[track_caller]
                #[allow(clippy::cast_lossless, reason = "`usize` has no `From` into `i128`")]
                pub const fn extent(self) -> usize {
                    extent(self.0 as i128)
                }
            }
        )*
    };
}

constants!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

#[track_caller]
#[expect(clippy::cast_sign_loss, reason = "compared before")]
const fn extent(constant: i128) -> usize {
    assert!(constant >= 0, "a constant below 0 in `shape = [...]`: an extent is 0 or more");
    assert!(
        constant <= isize::MAX as i128,
        "a constant above `isize::MAX` in `shape = [...]`: no array is as big"
    );
    constant as usize
}

impl<T: Copy> FieldProbe<T> {
    /// The field of an element, if it can be one.
    pub const FIELD: KnownField<T> = KnownField(PhantomData);
}

/// A field of an element, by its type.
#[derive(Clone, Copy)]
pub struct KnownField<T>(PhantomData<T>);

/// A field that is not `Copy`.
#[derive(Clone, Copy)]
pub struct UnknownField;

/// What has an element type.
pub trait FieldElement: Copy {
    /// That type.
    const TYPE: ElementType;
}

impl<T: Element> FieldElement for KnownField<T> {
    const TYPE: ElementType = T::TYPE;
}

/// Never the type of an element: rustc refuses the struct.
impl FieldElement for UnknownField {
    const TYPE: ElementType = u8::TYPE;
}

/// What a field of an element is.
#[must_use]
pub const fn element<P: FieldElement>(_: P) -> ElementType {
    P::TYPE
}
