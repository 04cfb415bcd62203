//! The export half of the derive: the fields of a struct become claims, and the claims facts.

use crate::descriptor::{Descriptor, Strides, Writes};
use crate::dims::Dims;
use crate::element::ElementType;
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::layout::Order;
use crate::raw::RawMemory;
use crate::roles::{AsStream, DeviceField, Extent, ShapeField, StridesField};
use crate::storage::{Memory, Storage};
use crate::stream::StreamHandle;

/// Collects what the fields of a struct say; `finish` checks it.
#[must_use]
pub struct Describe {
    memory: Memory,
    /// Whether `memory.range` says what is there; not so behind a raw pointer.
    bounded: bool,
    shape: Dims<i64>,
    strides: Option<Dims<i64>>,
    in_bytes: bool,
    order: Order,
    stream: StreamHandle,
    error: Option<Error>,
}

/// An extent from a field.
///
/// # Errors
///
/// When the number does not fit 64 bits with a sign.
#[inline]
pub fn extent<I: Extent>(extent: &I, field: &str) -> Result<i64> {
    extent.to_i64().ok_or_else(|| {
        Error::new(ErrorKind::Overflow, field, "a number above 2^63", "an extent that fits the address space")
    })
}

impl Describe {
    #[inline]
    fn new(memory: Memory, bounded: bool) -> Self {
        Self {
            memory,
            bounded,
            shape: Dims::zeroed(0),
            strides: None,
            in_bytes: false,
            order: Order::C,
            stream: StreamHandle::NothingPending,
            error: None,
        }
    }

    /// The `data` field.
    #[inline]
    pub fn storage<S: Storage>(storage: &S) -> Self {
        Self::new(storage.memory(), true)
    }

    /// The `data(unsafe_raw)` field, with the `device` field.
    pub fn raw<D: DeviceField>(memory: RawMemory, device: &D) -> Self {
        Self::new(memory.on(device.device()), false)
    }

    /// `shape = [...]`.
    #[inline]
    pub fn extents(mut self, extents: &[i64]) -> Self {
        self.shape = extents.into();
        self
    }

    /// The `shape` field.
    #[inline]
    pub fn shape<F: ShapeField>(mut self, shape: &F) -> Self {
        match shape.extents() {
            Ok(extents) => self.shape = extents,
            Err(error) => self.error = Some(error),
        }
        self
    }

    /// The `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(mut self, strides: &F) -> Self {
        match strides.strides() {
            Ok(strides) => self.strides = strides,
            Err(error) => self.error = Some(error),
        }
        self
    }

    /// The `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(mut self, strides: &F) -> Self {
        self.in_bytes = true;
        self.strides(strides)
    }

    /// `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The `stream` field.
    #[inline]
    pub fn stream<S: AsStream>(mut self, stream: &S) -> Self {
        self.stream = stream.as_stream();
        self
    }

    /// `readonly`.
    #[inline]
    pub fn readonly(mut self) -> Self {
        self.memory.writes = Writes::Never;
        self
    }

    /// The facts.
    ///
    /// # Errors
    ///
    /// As [`Descriptor::validate`]; [`ErrorKind::Bounds`] when the shape needs more memory than the storage has.
    #[inline]
    pub fn finish(self) -> Result<Facts> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let Memory { address, range, element, record, device, writes } = self.memory;
        let strides = match (&self.strides, self.in_bytes) {
            (None, _) => Strides::Compact(self.order),
            (Some(strides), false) => Strides::Elements(strides),
            (Some(strides), true) => Strides::Bytes(strides),
        };
        let claims = Descriptor {
            address,
            byte_offset: 0,
            dtype: element.dtype,
            padded: element.padded,
            record: record.or_else(|| element.to_record()),
            shape: &self.shape,
            strides,
            device: Some(device),
            writes,
            stream: self.stream,
            memory: self.bounded.then_some(range),
        };
        if element.ndim == 0 { claims.validate() } else { with_axes(claims, &element) }
    }
}

/// Claims in units of an element with trailing axes, as facts in units of its items.
fn with_axes(claims: Descriptor<'_>, element: &ElementType) -> Result<Facts> {
    let whole = claims.layout(element.size * 8)?.split_elements(element.axes())?;
    let shape: Vec<i64> = whole.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = whole.strides().iter().map(|stride| *stride as i64).collect();
    Descriptor { shape: &shape, strides: Strides::Elements(&strides), ..claims }.validate()
}
