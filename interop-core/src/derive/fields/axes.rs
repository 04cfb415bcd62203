//! Field types for extents, shapes and strides.

use crate::array::dims::{Dims, signed};
use crate::array::layout::errors::axes_in_words;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::extraction::Extraction;
use crate::memory::storage::{InfoBuilder, StridesSource};
use crate::order::array_info::ArrayInfo;

/// The type of a field named in `shape = [...]`, and of the items of `shape` and `strides` fields.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an extent of a shape",
    label = "not an integer type",
    note = "the type of a field or constant in `shape = [...]` is one of `usize`, `u8`…`u64`, `isize`, `i8`…`i64`"
)]
pub trait Extent: Copy + Default {
    /// Called by expanded code for exports: the number as an `i128`, which holds every integer type's values.
    fn describe_field(&self) -> i128;
    /// Converts a number, or returns `None` if it does not fit.
    fn from_number(number: i128) -> Option<Self>;

    /// Called by expanded code for imports.
    #[doc(hidden)]
    #[inline]
    fn take(from: &mut Extraction<'_>, axis: usize, field: &'static str) -> Self {
        from.step(|this| extent_of(this.layout().shape()[axis], field)).unwrap_or_default()
    }
}

/// The type of an expression in `shape = [...]`, which only exports can have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an extent of a shape",
    label = "not an integer type, nor an `Option` of one",
    note = "the type of an expression in `shape = [...]` is one of `usize`, `u8`…`u64`, `isize`, `i8`…`i64`, or an `Option` of it"
)]
pub trait ComputedExtent {
    /// The extent as an `i128`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`] for `None`, with the expression.
    fn to_extent(self, axis: usize, expression: &'static str) -> Result<i128>;
}

impl<E: Extent> ComputedExtent for E {
    #[inline]
    fn to_extent(self, _: usize, _: &'static str) -> Result<i128> {
        Ok(self.describe_field())
    }
}

impl<E: Extent> ComputedExtent for Option<E> {
    #[inline]
    fn to_extent(self, axis: usize, expression: &'static str) -> Result<i128> {
        self.map(|extent| extent.describe_field()).ok_or_else(|| {
            let (at, found) = (text!("shape[{axis}]"), text!("`None` from `{expression}`"));
            Error::new(ErrorKind::Shape, at, found, "an extent")
        })
    }
}

macro_rules! integers {
    ($($int:ty)*) => {
        $(
            impl Extent for $int {
                #[inline]
                #[allow(clippy::cast_lossless, reason = "`usize` has no `From` into `i128`")]
                fn describe_field(&self) -> i128 {
                    *self as i128
                }

                fn from_number(number: i128) -> Option<Self> {
                    Self::try_from(number).ok()
                }
            }
        )*
    };
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

/// A list with one item for each axis: the type of `shape` and `strides` fields.
pub trait AxisList: Sized {
    /// The item type.
    type Item: Copy + Default;
    /// The items.
    fn items(&self) -> &[Self::Item];
    /// Creates a list of `len` items.
    ///
    /// # Errors
    ///
    /// Errors of `item`, and [`ErrorKind::Rank`] if the list cannot have this length.
    fn collect(len: usize, item: impl FnMut(usize) -> Result<Self::Item>) -> Result<Self>;
}

macro_rules! lists {
    ($($list:ty),*) => {
        $(
            impl<I: Copy + Default> AxisList for $list {
                type Item = I;

                #[inline]
                fn items(&self) -> &[I] {
                    self
                }

                fn collect(len: usize, item: impl FnMut(usize) -> Result<I>) -> Result<Self> {
                    (0..len).map(item).collect()
                }
            }
        )*
    };
}

lists!(Vec<I>, Box<[I]>, Dims<I>);

impl<I: Copy + Default, const N: usize> AxisList for [I; N] {
    type Item = I;

    #[inline]
    fn items(&self) -> &[I] {
        self
    }

    fn collect(len: usize, mut item: impl FnMut(usize) -> Result<I>) -> Result<Self> {
        if len != N {
            return Err(Error::new(ErrorKind::Rank, "shape", axes_in_words(len), axes_in_words(N)));
        }
        let mut items = [I::default(); N];
        for (axis, place) in items.iter_mut().enumerate() {
            *place = item(axis)?;
        }
        Ok(items)
    }
}

/// Writes the items of a list, whose name is `name` in messages, in their place (see `ImportSlot`).
#[inline]
fn write_numbers<I: Extent>(items: &[I], name: &str, to: &mut Dims<i64>) -> Result<()> {
    *to = Dims::zeroed(items.len());
    for (axis, (number, item)) in to.iter_mut().zip(items).enumerate() {
        *number = signed(name, axis, item.describe_field())?;
    }
    Ok(())
}

/// The type of a `shape` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `shape` of a `CudaArray`",
    label = "not a list of extents",
    note = "write `[usize; N]`, `Vec<usize>` or `Dims<usize>` (any integer type), or name integer fields: `#[cuda_array(shape = [height, width])]`"
)]
pub trait ShapeField {
    /// Called last by expanded code for exports.
    ///
    /// # Errors
    ///
    /// If an extent does not fit a signed 64-bit integer, and as `validate`.
    #[doc(hidden)]
    fn finish(&self, of: InfoBuilder<'_>) -> Result<ArrayInfo>;

    /// Called by expanded code for imports. `None` if the type cannot hold the number of extents, or one of them.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>, field: &'static str) -> Option<Self>
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Extent>> ShapeField for L {
    #[inline]
    fn finish(&self, of: InfoBuilder<'_>) -> Result<ArrayInfo> {
        let mut extents = Dims::zeroed(0);
        write_numbers(self.items(), "shape", &mut extents)?;
        of.finish(&extents)
    }

    fn take(from: &mut Extraction<'_>, field: &'static str) -> Option<Self> {
        from.step(|this| {
            let extents = this.layout().shape();
            L::collect(extents.len(), |axis| extent_of(extents[axis], field))
        })
    }
}

/// The type of a `strides` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `strides` of a `CudaArray`",
    label = "not a list of strides",
    note = "write `[isize; N]`, `Vec<isize>` or `Dims<isize>`, or an `Option` of one, where `None` means contiguous"
)]
pub trait StridesField {
    /// Writes the strides to `to`, in elements or bytes as the attribute says. Returns `false` for a contiguous array.
    ///
    /// # Errors
    ///
    /// If a stride does not fit a signed 64-bit integer.
    fn write(&self, to: &mut Dims<i64>) -> Result<bool>;
    /// Converts the strides.
    ///
    /// # Errors
    ///
    /// If the type cannot hold their number, or one of them.
    fn from_strides(strides: &[isize], field: &str) -> Result<Self>
    where
        Self: Sized;

    /// Called by expanded code for exports.
    #[doc(hidden)]
    #[inline]
    fn describe_field<'a>(&'a self, to: InfoBuilder<'a>, in_bytes: bool) -> InfoBuilder<'a>
    where
        Self: Sized,
    {
        to.strides(self, in_bytes)
    }

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>, field: &'static str, in_bytes: bool) -> Option<Self>
    where
        Self: Sized,
    {
        from.step(|this| {
            if in_bytes {
                Self::from_strides(&this.strides_in_bytes(field)?, field)
            } else {
                Self::from_strides(this.layout().strides(), field)
            }
        })
    }
}

impl<F: StridesField> StridesSource for F {
    #[inline]
    fn list(&self, to: &mut Dims<i64>) -> Result<bool> {
        self.write(to)
    }
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Extent>> StridesField for L {
    #[inline]
    fn write(&self, to: &mut Dims<i64>) -> Result<bool> {
        write_numbers(self.items(), "strides", to).map(|()| true)
    }

    fn from_strides(strides: &[isize], field: &str) -> Result<Self> {
        Self::collect(strides.len(), |axis| {
            L::Item::from_number(strides[axis] as i128).ok_or_else(|| {
                let location = text!("strides[{axis}]");
                let allowed = text!("a stride that fits the items of the field `{field}`");
                Error::new(ErrorKind::Overflow, location, strides[axis], allowed)
            })
        })
    }
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Extent>> StridesField for Option<L> {
    #[inline]
    fn write(&self, to: &mut Dims<i64>) -> Result<bool> {
        self.as_ref().map_or(Ok(false), |strides| strides.write(to))
    }

    fn from_strides(strides: &[isize], field: &str) -> Result<Self> {
        L::from_strides(strides, field).map(Some)
    }
}

/// Converts an extent to the field's type.
#[inline]
fn extent_of<I: Extent>(extent: usize, field: &str) -> Result<I> {
    I::from_number(extent as i128).ok_or_else(|| {
        let allowed = text!("an extent that fits its type, `{}`", core::any::type_name::<I>());
        Error::new(ErrorKind::Overflow, field, extent, allowed)
    })
}
