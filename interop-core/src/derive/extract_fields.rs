//! The import half of the derive: how each kind of field is filled.
#![expect(
    clippy::inline_always,
    reason = "what is known of the struct where it is made is not compared there"
)]

use crate::array::device::{Device, DeviceType};
use crate::array::element::{Element, ElementType};
use crate::array::mutability::Mutability;
use crate::derive::fields::axes::{Extent, ShapeField, StridesField, extent_of};
use crate::derive::fields::device_and_owner::FromOwner;
use crate::derive::fields::raw_pointer::{RawAddress, RawPointer};
use crate::error::{Error, ErrorKind, text};
use crate::memory::extraction::{Extraction, Requirements};
use crate::memory::lease::writable;

/// A constant that no array has as an extent.
#[cold]
fn never(axis: usize, extent: i128) -> Error {
    Error::new(
        ErrorKind::Shape,
        format_args!("shape[{axis}]"),
        format_args!("{extent} in the struct"),
        "0 and up",
    )
}

#[cold]
fn elsewhere(found: Device, devices: &[DeviceType]) -> Error {
    let devices: Vec<String> = devices.iter().map(DeviceType::to_string).collect();
    Error::new(ErrorKind::Device, "device", found, devices.join(" or "))
}

impl Extraction<'_> {
    /// Compares the import with the devices that `device = ...` lists.
    ///
    /// Refuses by [`ErrorKind::Device`].
    pub fn on_one_of(&mut self, devices: &[DeviceType]) {
        self.step(|this| {
            let found = this.info()?.device();
            if devices.contains(&found.device_type) { Ok(()) } else { Err(elsewhere(found, devices)) }
        });
    }

    /// As [`open`](Self::open), for a struct with a raw pointer.
    pub fn open_raw<P: RawPointer>(&mut self, requirements: Requirements) {
        self.check_in_place(P::Element::TYPE, P::MUTABILITY, requirements);
    }

    /// As [`open`](Self::open), for a struct with an address.
    pub fn open_address<T: Element, A: RawAddress>(&mut self, requirements: Requirements) {
        self.check_in_place(T::TYPE, A::MUTABILITY, requirements);
    }

    /// As [`check_layout`](Self::check_layout), for a struct that has the memory by address, and may write to it if `writes` says so.
    fn check_in_place(&mut self, element: ElementType, mutability: Mutability, requirements: Requirements) {
        self.step(|this| {
            if mutability != Mutability::ReadOnly {
                writable(this.info()?)?;
            }
            this.check_layout(Some(&element), requirements, false)
        });
    }

    /// Compares an extent with a literal of `shape = [...]`.
    ///
    /// Refuses by [`ErrorKind::Shape`], with the axis.
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
    /// Refuses by [`ErrorKind::Shape`], with the axis.
    pub fn constant(&mut self, axis: usize, extent: i128) {
        if let Some(extent) = self.step(|_| usize::try_from(extent).map_err(|_| never(axis, extent))) {
            self.literal(axis, extent);
        }
    }

    /// Compares two extents that one field stands for.
    ///
    /// Refuses by [`ErrorKind::Shape`], with the axis.
    pub fn same_extent(&mut self, axis: usize, other: usize, field: &'static str) {
        self.step(|this| {
            let (extent, found) = (this.layout().shape()[axis], this.layout().shape()[other]);
            if extent == found {
                return Ok(());
            }
            let allowed = text!("{extent}, as on axis {axis}: the field `{field}` is both extents");
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{other}]"), found, allowed))
        });
    }

    /// The field for an extent.
    ///
    /// Refuses by [`ErrorKind::Overflow`] when its type cannot hold the extent.
    #[inline(always)]
    pub fn extent<I: Extent>(&mut self, axis: usize, field: &'static str) -> I {
        self.step(|this| extent_of(this.layout().shape()[axis], field)).unwrap_or_default()
    }

    /// The `shape` field.
    ///
    /// Refuses by [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the extents.
    pub fn shape<F: ShapeField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_extents(this.layout().shape(), field)).unwrap_or_else(F::blank)
    }

    /// The `strides` field.
    ///
    /// Refuses by [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the strides.
    pub fn strides<F: StridesField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_strides(this.layout().strides(), field)).unwrap_or_else(F::blank)
    }

    /// The `strides(bytes)` field.
    ///
    /// Refuses as [`strides`](Self::strides), and by [`ErrorKind::Strides`] for elements packed below the byte.
    pub fn strides_in_bytes<F: StridesField>(&mut self, field: &'static str) -> F {
        let strides = self.step(|this| {
            if this.item_bytes == 0 {
                let found = "elements packed below the byte";
                let allowed = "elements of whole bytes, for a field that holds strides in bytes";
                return Err(Error::new(ErrorKind::Strides, field, found, allowed));
            }
            F::from_strides(&this.layout().strides_in_bytes(this.item_bytes), field)
        });
        strides.unwrap_or_else(F::blank)
    }

    /// The `owner` field beside a raw pointer. Nothing may be taken afterwards.
    ///
    /// Refuses as [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn owner<F: FromOwner>(&mut self) -> Option<F> {
        self.step(|this| {
            this.info()?;
            this.finish()?;
            this.taken = true;
            Ok(F::from_owner(this.import.take_owner()))
        })
    }
}
