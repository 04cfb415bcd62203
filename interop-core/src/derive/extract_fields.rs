//! The import half of the derive: the value of each field kind.
#![expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]

use crate::array::device::{Device, DeviceType};
use crate::array::element::{Element, ElementType};
use crate::array::mutability::Mutability;
use crate::derive::fields::axes::{Extent, ShapeField, StridesField, extent_of};
use crate::derive::fields::device_and_owner::FromOwner;
use crate::derive::fields::raw_pointer::{RawAddress, RawPointer};
use crate::error::{Cure, Error, ErrorKind, text};
use crate::memory::extraction::{Extraction, Requirements};
use crate::memory::lease::check_writable;

/// The error for a negative constant, which no extent can equal.
#[cold]
fn negative_constant(axis: usize, extent: i128) -> Error {
    Error::new(
        ErrorKind::Shape,
        format_args!("shape[{axis}]"),
        format_args!("{extent} in the struct"),
        "0 or greater",
    )
}

#[cold]
fn wrong_device(found: Device, devices: &[DeviceType]) -> Error {
    let allowed: Vec<String> = devices.iter().map(DeviceType::to_string).collect();
    let error = Error::new(ErrorKind::Device, "device", found, allowed.join(" or "));
    if devices.contains(&DeviceType::CPU) {
        return error.with_python_hint(Cure::ToHost);
    }
    if devices.contains(&DeviceType::CUDA) { error.with_python_hint(Cure::ToDevice) } else { error }
}

impl Extraction<'_> {
    /// Checks the device of the import against the list in `device = ...`.
    ///
    /// Fails with [`ErrorKind::Device`].
    pub fn on_one_of(&mut self, devices: &[DeviceType]) {
        self.step(|this| {
            let found = this.info()?.device();
            if devices.contains(&found.device_type) { Ok(()) } else { Err(wrong_device(found, devices)) }
        });
    }

    /// As [`open`](Self::open), for a struct with a raw pointer.
    pub fn open_raw<P: RawPointer>(&mut self, requirements: Requirements) {
        self.check_in_place(P::Element::TYPE, P::MUTABILITY, requirements);
    }

    /// As [`open`](Self::open), for a struct with an integer address.
    pub fn open_address<T: Element, A: RawAddress>(&mut self, requirements: Requirements) {
        self.check_in_place(T::TYPE, A::MUTABILITY, requirements);
    }

    /// As [`check_layout`](Self::check_layout), for a struct with a pointer or address, which needs writable memory
    /// unless `mutability` is `ReadOnly`.
    fn check_in_place(&mut self, element: ElementType, mutability: Mutability, requirements: Requirements) {
        self.step(|this| {
            if mutability != Mutability::ReadOnly {
                check_writable(this.info()?)?;
            }
            this.check_layout(Some(&element), requirements, false)
        });
    }

    /// Checks an extent against a literal of `shape = [...]`.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn literal(&mut self, axis: usize, extent: usize) {
        self.step(|this| {
            let found = this.layout().shape()[axis];
            if found == extent {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), found, extent))
        });
    }

    /// As [`literal`](Self::literal), for a constant of any integer type.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn constant(&mut self, axis: usize, extent: i128) {
        if let Some(extent) =
            self.step(|_| usize::try_from(extent).map_err(|_| negative_constant(axis, extent)))
        {
            self.literal(axis, extent);
        }
    }

    /// Checks that two axes with the same field have the same extent.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn same_extent(&mut self, axis: usize, other: usize, field: &'static str) {
        self.step(|this| {
            let (extent, found) = (this.layout().shape()[axis], this.layout().shape()[other]);
            if extent == found {
                return Ok(());
            }
            let allowed = text!("{extent}, as on axis {axis}, because both use the field `{field}`");
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{other}]"), found, allowed))
        });
    }

    /// The value of a field for one extent.
    ///
    /// Fails with [`ErrorKind::Overflow`] if the field's type cannot hold the extent.
    #[inline(always)]
    pub fn extent<I: Extent>(&mut self, axis: usize, field: &'static str) -> I {
        self.step(|this| extent_of(this.layout().shape()[axis], field)).unwrap_or_default()
    }

    /// The value of the `shape` field.
    ///
    /// Fails with [`ErrorKind::Rank`] or [`ErrorKind::Overflow`] if the field's type cannot hold the extents.
    pub fn shape<F: ShapeField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_extents(this.layout().shape(), field)).unwrap_or_else(F::blank)
    }

    /// The value of the `strides` field.
    ///
    /// Fails with [`ErrorKind::Rank`] or [`ErrorKind::Overflow`] if the field's type cannot hold the strides.
    pub fn strides<F: StridesField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_strides(this.layout().strides(), field)).unwrap_or_else(F::blank)
    }

    /// The value of the `strides(bytes)` field.
    ///
    /// Fails like [`strides`](Self::strides), and with [`ErrorKind::Strides`] for elements packed below the byte.
    pub fn strides_in_bytes<F: StridesField>(&mut self, field: &'static str) -> F {
        let strides = self.step(|this| {
            if this.item_bytes == 0 {
                let found = "elements packed below the byte";
                let allowed = "elements of whole bytes, because the field holds strides in bytes";
                return Err(Error::new(ErrorKind::Strides, field, found, allowed));
            }
            F::from_strides(&this.layout().strides_in_bytes(this.item_bytes), field)
        });
        strides.unwrap_or_else(F::blank)
    }

    /// The value of the `owner` field next to a raw pointer. Nothing can be taken afterwards.
    ///
    /// Fails like [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn owner<F: FromOwner>(&mut self) -> Option<F> {
        self.step(|this| {
            this.info()?;
            this.finish()?;
            this.taken = true;
            Ok(F::from_owner(this.import.take_owner()))
        })
    }
}
