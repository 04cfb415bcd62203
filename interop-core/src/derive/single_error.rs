//! Makes a field of the wrong type cause one compiler error, not two.
//!
//! The export half of the derive requires `Storage`, the import half `FromImport`. A type that implements neither would
//! be reported twice. So the import half uses [`FieldProbe`], whose functions exist only for types that implement the
//! export trait. For all other types the compiler selects the functions of [`NeverCalled`], which have no bounds.
//!
//! A constant of `shape = [...]` that is not an integer is reported by [`constant`]; the methods called on its result
//! are in [`NeverCalled`] too.
//!
//! For a struct element whose field is not `Copy`, the compiler reports the struct itself, so only `Copy` fields are
//! checked here.
#![expect(unsafe_code, reason = "forwards `FromArray::assemble`")]

use core::marker::PhantomData;

use crate::array::element::{Element, ElementType};
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::Extent;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::derive::from_array::FromArray;
use crate::error::Result;
use crate::memory::extraction::{CheckedStorage, DataField, Extraction, FromImport, Requirements};
use crate::memory::storage::Storage;

/// The import trait of a type that implements the export trait.
pub struct FieldProbe<T>(PhantomData<T>);

impl<T: Storage> FieldProbe<T> {
    /// As [`FromImport::open`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`")]
    pub fn open(from: &mut Extraction<'_>, requirements: Requirements) -> CheckedStorage<T>
    where
        T: FromImport,
    {
        T::open(from, requirements)
    }
}

impl<T: CudaArray> FieldProbe<T> {
    /// As [`FromArray::assemble`].
    ///
    /// # Errors
    ///
    /// As that function.
    ///
    /// # Safety
    ///
    /// As for that function.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`")]
    pub unsafe fn assemble(from: &mut Extraction<'_>) -> Result<T>
    where
        T: FromArray,
    {
        // SAFETY: as the caller promises.
        unsafe { T::assemble(from) }
    }
}

impl<T: FromArray> FieldProbe<T> {
    /// As [`FromArray::DATA_FIELD`].
    pub const INNER_FIELD: DataField = T::DATA_FIELD;
}

impl<T: FromImport> FieldProbe<T> {
    /// As [`FromImport::DATA_FIELD`].
    pub const DATA_FIELD: DataField = T::DATA_FIELD;
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

/// The constant of [`FieldProbe`] for types that may be dropped in any context.
pub trait AnyContext {
    /// Whether the drop needs the context of the memory to be current.
    const NEEDS_CONTEXT: bool = false;
}

impl<T> AnyContext for FieldProbe<T> {}

/// Refuses a storage that Python would drop on a thread without its context.
///
/// # Panics
///
/// At compile time, if the drop needs the context.
pub const fn check_context(needs_context: bool) {
    assert!(
        !needs_context,
        "Python drops a class on any thread, where a buffer of `cust` leaks without its context; \
         help: write `InContext<DeviceBuffer<T>>` (`interop_core::adapters::cust::InContext`)"
    );
}

/// A reference `T` as an argument of a Python function.
struct ByReference<T>(PhantomData<T>);

impl<T> ByReference<T> {
    const REFUSED: () = panic!(
        "a Python function cannot borrow an array as an argument, because the import makes a struct; \
         help: write the parameter without `&`, such as `mut image: Image<LeaseMut<f32>>`"
    );
}

/// Does not compile: the conversion of an argument to a reference.
pub fn refuse_reference<T>() -> ! {
    let () = ByReference::<T>::REFUSED;
    unreachable!("the constant does not compile")
}

/// The items of [`FieldProbe`] for types without the export trait. Code that selects them does not compile for another
/// reason.
pub trait NeverCalled<T> {
    /// Never used.
    const FIELD: UnknownField = UnknownField;

    /// Never used.
    const DATA_FIELD: DataField = DataField::RAW;

    /// Never used.
    const INNER_FIELD: DataField = DataField::RAW;

    /// Never called.
    #[must_use]
    fn open(_: &mut Extraction<'_>, _: Requirements) -> CheckedStorage<T> {
        unreachable!("the export half does not compile")
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// # Safety
    ///
    /// None.
    unsafe fn assemble(_: &mut Extraction<'_>) -> Result<T> {
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

/// A constant of `shape = [...]`.
#[must_use]
pub struct Constant<T>(T);

/// Wraps the constant if its type is an integer.
pub const fn constant<T: Extent>(constant: T) -> Constant<T> {
    Constant(constant)
}

macro_rules! constants {
    ($($int:ty)*) => {
        $(
            impl Constant<$int> {
                /// The extent. A constant that cannot be an extent does not compile.
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
#[expect(clippy::cast_sign_loss, reason = "the assertions above bound the value")]
const fn extent(constant: i128) -> usize {
    assert!(constant >= 0, "a negative constant in `shape = [...]`: an extent is 0 or greater");
    assert!(
        constant <= isize::MAX as i128,
        "a constant above `isize::MAX` in `shape = [...]`: an extent is at most `isize::MAX`"
    );
    constant as usize
}

impl<T: Copy> FieldProbe<T> {
    /// The marker of a field whose type is `Copy`.
    pub const FIELD: KnownField<T> = KnownField(PhantomData);
}

/// The marker of a `Copy` field, with its type.
#[derive(Clone, Copy)]
pub struct KnownField<T>(PhantomData<T>);

/// The marker of a field that is not `Copy`.
#[derive(Clone, Copy)]
pub struct UnknownField;

/// The marker of a field of type `T`.
pub trait FieldElement<T>: Copy {
    /// The element type.
    const TYPE: ElementType;
}

impl<T: Element> FieldElement<T> for KnownField<T> {
    const TYPE: ElementType = T::TYPE;
}

/// Not used as an element type, because the struct does not compile. It has no bytes, so it is true for any field.
impl<T> FieldElement<T> for UnknownField {
    const TYPE: ElementType = ElementType { ndim: 1, size: 0, ..u8::TYPE };
}

impl ElementType {
    /// The type of a field. As a function of this type it is the one of this crate, whatever `crate = "path"` leads to,
    /// and the marker cannot be that of another field.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_field<T, P: FieldElement<T>>(_: P) -> Self {
        P::TYPE
    }

    /// As [`of_field`](Self::of_field), for a generic field.
    #[doc(hidden)]
    #[must_use]
    pub const fn of<T: Element>() -> Self {
        T::TYPE
    }
}
