//! The import half of the derive: what arrived is compared with what the struct wants, then taken apart.

use crate::cuda::hand_over;
use crate::device::Device;
use crate::element::{Element, ElementType};
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::facts::Facts;
use crate::import::Import;
use crate::layout::{Layout, Order};
use crate::lease::writable;
use crate::owner::Owner;
use crate::roles::{
    DeviceField, Extent, FromOwner, FromStream, RawAddress, RawPointer, ShapeField, StridesField, extent_of,
};
use crate::storage::FromImport;
use crate::stream::StreamHandle;

/// What a struct demands of an import beside the type of its elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    rank: Option<usize>,
    order: Option<Order>,
}

impl Wanted {
    /// No demands: any rank, any strides.
    #[must_use]
    pub const fn new() -> Self {
        Self { rank: None, order: None }
    }

    /// This many axes.
    #[must_use]
    pub const fn rank(self, rank: usize) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Compact, in this order.
    #[must_use]
    pub const fn order(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Any strides, because the struct has a field for them.
    #[must_use]
    pub const fn any_strides(self) -> Self {
        Self { order: None, ..self }
    }
}

/// An import on its way into a struct. Until its storage or owner is taken it can be given back whole.
#[derive(Debug)]
pub struct Arrival {
    import: Option<Import>,
    layout: Layout,
    order: Order,
    item_bytes: usize,
    device: Device,
}

impl Arrival {
    /// The import before anything was compared.
    pub(crate) fn new(import: Import) -> Self {
        let facts = import.facts();
        let (layout, device) = (facts.layout().clone(), facts.device());
        Self { import: Some(import), layout, order: Order::C, item_bytes: 0, device }
    }

    /// The import, unless it was taken.
    pub(crate) fn into_import(self) -> Option<Import> {
        self.import
    }

    fn facts(&self) -> Result<&Facts> {
        self.import.as_ref().map(Import::facts).ok_or_else(taken)
    }

    /// Compares the import with what a struct with this storage wants.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`], [`ErrorKind::Rank`], [`ErrorKind::Strides`], [`ErrorKind::ReadOnly`],
    /// [`ErrorKind::Device`]: what does not fit.
    pub fn open<S: FromImport>(&mut self, wanted: &Wanted) -> Result<()> {
        let facts = self.facts()?;
        S::check(facts)?;
        self.settle(S::element(), wanted, S::COPIES)
    }

    /// As [`open`](Self::open), for a struct with a raw pointer.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_raw<P: RawPointer>(&mut self, wanted: &Wanted) -> Result<()> {
        if P::WRITES != crate::descriptor::Writes::Never {
            writable(self.facts()?)?;
        }
        self.settle(Some(P::Element::TYPE), wanted, false)
    }

    /// As [`open`](Self::open), for a struct with an address.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_address<T: Element, A: RawAddress>(&mut self, wanted: &Wanted) -> Result<()> {
        writable(self.facts()?)?;
        self.settle(Some(T::TYPE), wanted, false)
    }

    fn settle(&mut self, element: Option<ElementType>, wanted: &Wanted, copies: bool) -> Result<()> {
        let facts = self.facts()?;
        let layout =
            element.map_or_else(|| Ok(facts.layout().clone()), |element| facts.layout_of(&element))?;
        let item_bits = element.map_or_else(|| facts.dtype().item_bits(facts.is_padded()), |e| e.size * 8);
        if let Some(rank) = wanted.rank.filter(|rank| *rank != layout.ndim()) {
            let found = format_args!("{} axes, shape {:?}", layout.ndim(), layout.shape());
            return Err(Error::new(ErrorKind::Rank, "shape", found, format_args!("{rank} axes")));
        }
        self.order = wanted.order.unwrap_or_default();
        self.layout = match wanted.order {
            _ if copies => Layout::compact(layout.shape(), self.order)?,
            Some(order) => {
                Facts::check_contiguous(&layout, order)?;
                layout
            }
            None => layout,
        };
        self.item_bytes = if item_bits % 8 == 0 { item_bits / 8 } else { 0 };
        Ok(())
    }

    /// Compares an extent with a literal of `shape = [...]`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`], with the axis.
    pub fn literal(&self, axis: usize, extent: usize) -> Result<()> {
        if self.layout.shape()[axis] == extent {
            return Ok(());
        }
        let place = format_args!("shape[{axis}]");
        Err(Error::new(ErrorKind::Shape, place, self.layout.shape()[axis], extent))
    }

    /// Compares two extents that one field stands for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`], with the axis.
    pub fn same_extent(&self, axis: usize, other: usize, field: &str) -> Result<()> {
        let shape = self.layout.shape();
        if shape[axis] == shape[other] {
            return Ok(());
        }
        let allowed = format_args!("{}, as on axis {axis}: the field `{field}` is both extents", shape[axis]);
        Err(Error::new(ErrorKind::Shape, format_args!("shape[{other}]"), shape[other], allowed))
    }

    /// The field for an extent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`] when its type cannot hold the extent.
    pub fn extent<I: Extent>(&self, axis: usize, field: &str) -> Result<I> {
        extent_of(self.layout.shape()[axis], field)
    }

    /// The `shape` field.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the extents.
    pub fn shape<F: ShapeField>(&self, field: &str) -> Result<F> {
        F::from_extents(self.layout.shape(), field)
    }

    /// The `strides` field.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the strides.
    pub fn strides<F: StridesField>(&self, field: &str) -> Result<F> {
        F::from_strides(self.layout.strides(), field)
    }

    /// The `strides(bytes)` field.
    ///
    /// # Errors
    ///
    /// As [`strides`](Self::strides); [`ErrorKind::Strides`] for elements packed below the byte.
    pub fn strides_in_bytes<F: StridesField>(&self, field: &str) -> Result<F> {
        if self.item_bytes == 0 {
            let found = "elements packed below the byte";
            let allowed = "elements of whole bytes, for a field that holds strides in bytes";
            return Err(Error::new(ErrorKind::Strides, field, found, allowed));
        }
        F::from_strides(&self.layout.strides_in_bytes(self.item_bytes), field)
    }

    /// The `stream` field: the stream on which the import is ready.
    ///
    /// # Errors
    ///
    /// None; the signature is that of its siblings.
    pub fn stream<F: FromStream>(&self, _field: &str) -> Result<F> {
        Ok(F::from_stream(self.facts()?.stream()))
    }

    /// Makes the struct's own stream wait for the work that is pending on the import.
    ///
    /// # Errors
    ///
    /// As [`cuda::order`](crate::cuda::order), with the field.
    pub fn order_before(&self, stream: StreamHandle, field: &str) -> Result<()> {
        hand_over(self.facts()?, stream)
            .map_err(|error| error.with_origin(format_args!("the field `{field}`")))
    }

    /// The `device` field.
    ///
    /// # Errors
    ///
    /// None; the signature is that of its siblings.
    pub fn device<F: DeviceField>(&self) -> Result<F> {
        Ok(F::from_device(self.device))
    }

    /// The `data` field. Nothing may be taken afterwards.
    ///
    /// # Errors
    ///
    /// What the storage says; the arrival has the import again then.
    pub fn storage<S: FromImport>(&mut self) -> Result<S> {
        let import = self.import.take().ok_or_else(taken)?;
        S::from_import(import, self.order).map_err(|Refused { value, error }| {
            self.import = Some(value);
            error
        })
    }

    /// The `data(unsafe_raw)` field.
    ///
    /// # Errors
    ///
    /// None; the signature is that of its siblings.
    pub fn raw_pointer<P: RawPointer>(&self, _field: &str) -> Result<P> {
        Ok(P::from_address(self.facts()?.address()))
    }

    /// The `data(unsafe_raw, element = T)` field.
    ///
    /// # Errors
    ///
    /// None; the signature is that of its siblings.
    pub fn raw_address<A: RawAddress>(&self, _field: &str) -> Result<A> {
        Ok(A::from_address(self.facts()?.address()))
    }

    /// The `owner` field beside a raw pointer. Nothing may be taken afterwards.
    ///
    /// # Errors
    ///
    /// When the import was taken before, which a derived struct never does.
    pub fn owner<F: FromOwner>(&mut self) -> Result<F> {
        let (_, owner): (_, Owner) = self.import.take().ok_or_else(taken)?.into_parts();
        Ok(F::from_owner(owner))
    }
}

#[cold]
fn taken() -> Error {
    Error::new(ErrorKind::Unsupported, "import", "memory that was taken before", "one field that takes it")
}
