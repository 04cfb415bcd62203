//! Field types for extents, shapes and strides.

use crate::array::dims::{Dims, signed};
use crate::array::info::ArrayInfo;
use crate::array::layout::errors::axes_in_words;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::extraction::Extraction;
use crate::memory::storage::{InfoBuilder, StridesSource};

/// The type of a field named in `shape = [...]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an extent of a shape",
    label = "not an integer type",
    note = "the type of a field or constant in `shape = [...]` is one of `usize`, `u8`…`u64`, `isize`, `i8`…`i64`"
)]
pub trait Extent: Copy + Default {
    /// Called by expanded code for exports: the extent as an `i128`, which holds every integer type's values.
    fn describe_field(&self) -> i128;
    /// Converts an extent, or returns `None` if it does not fit.
    fn from_usize(extent: usize) -> Option<Self>;

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

/// The item type of a `strides` field.
pub trait Stride: Copy + Default {
    /// The stride as an `i128`, which holds every integer type's values.
    fn to_i128(self) -> i128;
    /// Converts a stride, or returns `None` if it does not fit.
    fn from_isize(stride: isize) -> Option<Self>;
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

                fn from_usize(extent: usize) -> Option<Self> {
                    Self::try_from(extent).ok()
                }
            }

            impl Stride for $int {
                #[inline]
                #[allow(clippy::cast_lossless, reason = "`usize` has no `From` into `i128`")]
                fn to_i128(self) -> i128 {
                    self as i128
                }

                fn from_isize(stride: isize) -> Option<Self> {
                    Self::try_from(stride).ok()
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
    /// Whether the type fixes the length.
    const IS_FIXED: bool = false;
    /// The items.
    fn items(&self) -> &[Self::Item];
    /// Creates a list of `len` items.
    ///
    /// # Errors
    ///
    /// Errors of `item`, and [`ErrorKind::Rank`] if the list cannot have this length.
    fn collect(len: usize, item: impl FnMut(usize) -> Result<Self::Item>) -> Result<Self>;
    /// Creates a placeholder of zeros, of any length.
    fn blank() -> Self;
}

macro_rules! heap_lists {
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

                fn blank() -> Self {
                    Self::default()
                }
            }
        )*
    };
}

heap_lists!(Vec<I>, Box<[I]>);

impl<I: Copy + Default> AxisList for Dims<I> {
    type Item = I;

    #[inline]
    fn items(&self) -> &[I] {
        self
    }

    #[inline]
    fn collect(len: usize, item: impl FnMut(usize) -> Result<I>) -> Result<Self> {
        Self::collected(len, item)
    }

    fn blank() -> Self {
        Self::zeroed(0)
    }
}

impl<I: Copy + Default, const N: usize> AxisList for [I; N] {
    type Item = I;
    const IS_FIXED: bool = true;

    #[inline]
    fn items(&self) -> &[I] {
        self
    }

    fn collect(len: usize, item: impl FnMut(usize) -> Result<I>) -> Result<Self> {
        if len != N {
            return Err(Error::new(ErrorKind::Rank, "shape", axes_in_words(len), axes_in_words(N)));
        }
        let items: Vec<I> = (0..len).map(item).collect::<Result<_>>()?;
        Ok(Self::try_from(items).unwrap_or_else(|_| unreachable!("the length was checked")))
    }

    fn blank() -> Self {
        [I::default(); N]
    }
}

/// The type of a `shape` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `shape` of a `CudaArray`",
    label = "not a list of extents",
    note = "write `[usize; N]`, `Vec<usize>` or `Dims<usize>` (any integer type), or name integer fields: `#[cuda_array(shape = [height, width])]`"
)]
pub trait ShapeField {
    /// Whether the type fixes the number of axes.
    #[doc(hidden)]
    #[must_use]
    fn is_fixed() -> bool
    where
        Self: Sized,
    {
        false
    }
    /// The number of axes.
    fn count(&self) -> usize;
    /// Writes the extents to `to`, which has one item for each axis.
    ///
    /// # Errors
    ///
    /// If an extent does not fit a signed 64-bit integer.
    fn write(&self, to: &mut [i64]) -> Result<()>;
    /// Converts the extents.
    ///
    /// # Errors
    ///
    /// If the type cannot hold their number, or one of them.
    fn from_extents(extents: &[usize], field: &str) -> Result<Self>
    where
        Self: Sized;
    /// A placeholder for a struct that is not returned.
    fn blank() -> Self
    where
        Self: Sized;

    /// Called last by expanded code for exports.
    #[doc(hidden)]
    #[inline]
    fn finish(&self, of: InfoBuilder<'_>) -> Result<ArrayInfo>
    where
        Self: Sized,
    {
        let mut extents = Dims::zeroed(self.count());
        self.write(&mut extents)?;
        if Self::is_fixed() { of.finish_fixed(&extents) } else { of.finish(&extents) }
    }

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>, field: &'static str) -> Self
    where
        Self: Sized,
    {
        from.step(|this| Self::from_extents(this.layout().shape(), field)).unwrap_or_else(Self::blank)
    }
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Extent>> ShapeField for L {
    #[inline]
    fn is_fixed() -> bool {
        L::IS_FIXED
    }

    #[inline]
    fn count(&self) -> usize {
        self.items().len()
    }

    #[inline]
    fn write(&self, to: &mut [i64]) -> Result<()> {
        for (axis, (extent, item)) in to.iter_mut().zip(self.items()).enumerate() {
            *extent = signed("shape", axis, item.describe_field())?;
        }
        Ok(())
    }

    fn from_extents(extents: &[usize], field: &str) -> Result<Self> {
        Self::collect(extents.len(), |axis| extent_of(extents[axis], field))
    }

    fn blank() -> Self {
        AxisList::blank()
    }
}

/// The type of a `strides` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `strides` of a `CudaArray`",
    label = "not a list of strides",
    note = "write `[isize; N]`, `Vec<isize>` or `Dims<isize>`, or an `Option` of one, where `None` means contiguous"
)]
pub trait StridesField {
    /// The number of strides, or `None` for a contiguous array.
    fn count(&self) -> Option<usize>;
    /// Writes the strides to `to`, which has one item for each axis, in elements or bytes as the attribute says.
    ///
    /// # Errors
    ///
    /// If a stride does not fit a signed 64-bit integer.
    fn write(&self, to: &mut [i64]) -> Result<()>;
    /// Converts the strides.
    ///
    /// # Errors
    ///
    /// If the type cannot hold their number, or one of them.
    fn from_strides(strides: &[isize], field: &str) -> Result<Self>
    where
        Self: Sized;
    /// A placeholder for a struct that is not returned.
    fn blank() -> Self
    where
        Self: Sized;

    /// Called by expanded code for exports.
    #[doc(hidden)]
    #[inline]
    fn describe_field<'a>(&'a self, to: InfoBuilder<'a>) -> InfoBuilder<'a>
    where
        Self: Sized,
    {
        to.strides(self, false)
    }

    /// Called by expanded code for exports, for `strides(bytes)`.
    #[doc(hidden)]
    #[inline]
    fn describe_field_in_bytes<'a>(&'a self, to: InfoBuilder<'a>) -> InfoBuilder<'a>
    where
        Self: Sized,
    {
        to.strides(self, true)
    }

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>, field: &'static str) -> Self
    where
        Self: Sized,
    {
        from.step(|this| Self::from_strides(this.layout().strides(), field)).unwrap_or_else(Self::blank)
    }

    /// Called by expanded code for imports, for `strides(bytes)`.
    #[doc(hidden)]
    fn take_in_bytes(from: &mut Extraction<'_>, field: &'static str) -> Self
    where
        Self: Sized,
    {
        from.step(|this| Self::from_strides(&this.strides_in_bytes(field)?, field))
            .unwrap_or_else(Self::blank)
    }
}

impl<F: StridesField> StridesSource for F {
    #[inline]
    fn list(&self, to: &mut Dims<i64>) -> Result<bool> {
        let Some(count) = self.count() else { return Ok(false) };
        *to = Dims::zeroed(count);
        self.write(to)?;
        Ok(true)
    }
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Stride>> StridesField for L {
    #[inline]
    fn count(&self) -> Option<usize> {
        Some(self.items().len())
    }

    #[inline]
    fn write(&self, to: &mut [i64]) -> Result<()> {
        for (axis, (stride, item)) in to.iter_mut().zip(self.items()).enumerate() {
            *stride = signed("strides", axis, item.to_i128())?;
        }
        Ok(())
    }

    fn from_strides(strides: &[isize], field: &str) -> Result<Self> {
        Self::collect(strides.len(), |axis| {
            L::Item::from_isize(strides[axis]).ok_or_else(|| {
                let location = text!("strides[{axis}]");
                let allowed = text!("a stride that fits the items of the field `{field}`");
                Error::new(ErrorKind::Overflow, location, strides[axis], allowed)
            })
        })
    }

    fn blank() -> Self {
        AxisList::blank()
    }
}

#[diagnostic::do_not_recommend]
impl<L: AxisList<Item: Stride>> StridesField for Option<L> {
    #[inline]
    fn count(&self) -> Option<usize> {
        self.as_ref().and_then(StridesField::count)
    }

    #[inline]
    fn write(&self, to: &mut [i64]) -> Result<()> {
        self.as_ref().map_or(Ok(()), |strides| StridesField::write(strides, to))
    }

    fn from_strides(strides: &[isize], field: &str) -> Result<Self> {
        L::from_strides(strides, field).map(Some)
    }

    fn blank() -> Self {
        None
    }
}

/// Converts an extent to the field's type.
#[inline]
pub(crate) fn extent_of<I: Extent>(extent: usize, field: &str) -> Result<I> {
    I::from_usize(extent).ok_or_else(|| {
        let allowed = text!("an extent that fits its type, `{}`", core::any::type_name::<I>());
        Error::new(ErrorKind::Overflow, field, extent, allowed)
    })
}
