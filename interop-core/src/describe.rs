//! The export half of the derive: the fields of a struct become claims, and the claims facts.

use crate::descriptor::{Descriptor, Strides, Writes};
use crate::dims::Dims;
use crate::element::ElementType;
use crate::error::Result;
use crate::facts::Facts;
use crate::layout::Order;
use crate::raw::RawMemory;
use crate::record::Record;
use crate::roles::{AsStream, DeviceField, StridesField, signed};
use crate::storage::{Memory, Storage};
use crate::stream::StreamHandle;

/// Collects what the fields of a struct say; the shape comes last, and with it the check.
#[must_use]
pub struct Describe<'a, S = ()> {
    memory: Memory,
    record: Option<&'a Record>,
    /// Whether `memory.range` says what is there; not so behind a raw pointer.
    bounded: bool,
    strides: S,
    in_bytes: bool,
    order: Order,
    stream: StreamHandle,
}

/// Strides as the fields of a struct give them.
pub trait Steps {
    /// The strides; `None`: those of a compact array.
    ///
    /// # Errors
    ///
    /// When one does not fit 64 bits with a sign.
    fn list(&self) -> Result<Option<Dims<i64>>>;
}

impl Steps for () {
    #[inline]
    fn list(&self) -> Result<Option<Dims<i64>>> {
        Ok(None)
    }
}

impl<F: StridesField> Steps for F {
    #[inline]
    fn list(&self) -> Result<Option<Dims<i64>>> {
        let Some(count) = self.count() else { return Ok(None) };
        let mut list = Dims::zeroed(count);
        self.write(&mut list)?;
        Ok(Some(list))
    }
}

/// Whatever the type of a field is, so that a field of a wrong type is one mistake.
impl Steps for &dyn Steps {
    #[inline]
    fn list(&self) -> Result<Option<Dims<i64>>> {
        (**self).list()
    }
}

impl<'a> Describe<'a> {
    #[inline]
    fn new(memory: Memory, record: Option<&'a Record>, bounded: bool, stream: StreamHandle) -> Self {
        Self { memory, record, bounded, strides: (), in_bytes: false, order: Order::C, stream }
    }

    /// The `data` field.
    #[inline]
    pub fn storage<S: Storage>(storage: &'a S) -> Self {
        Self::new(storage.memory(), storage.record(), true, storage.stream())
    }

    /// The `data(unsafe_raw)` field, with the `device` field.
    pub fn raw<D: DeviceField>(memory: RawMemory, device: &D) -> Self {
        Self::new(memory.on(device.device()), None, false, StreamHandle::NothingPending)
    }

    #[inline]
    fn with_strides<S>(self, strides: S, in_bytes: bool) -> Describe<'a, S> {
        let Self { memory, record, bounded, strides: (), in_bytes: _, order, stream } = self;
        Describe { memory, record, bounded, strides, in_bytes, order, stream }
    }

    /// The `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(self, strides: &'a F) -> Describe<'a, &'a dyn Steps> {
        self.with_strides(strides, false)
    }

    /// The `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(self, strides: &'a F) -> Describe<'a, &'a dyn Steps> {
        self.with_strides(strides, true)
    }
}

impl<S> Describe<'_, S> {
    /// `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The `stream` field.
    #[inline]
    pub fn stream<F: AsStream>(mut self, stream: &F) -> Self {
        self.stream = stream.as_stream();
        self
    }

    /// `readonly`.
    #[inline]
    pub fn readonly(mut self) -> Self {
        self.memory.writes = Writes::Never;
        self
    }

    /// `shape = [...]`, and the facts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`](crate::ErrorKind::Overflow) for an extent that does not fit 64 bits with a sign; as
    /// [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the checks of a constant type vanish where it is known")]
    pub fn extents<const N: usize>(self, extents: [i128; N]) -> Result<Facts>
    where
        S: Steps,
    {
        let mut shape = [0; N];
        for (axis, extent) in extents.into_iter().enumerate() {
            shape[axis] = signed("shape", axis, extent)?;
        }
        self.finish_fixed(&shape)
    }

    /// The facts of an array of this shape.
    ///
    /// # Errors
    ///
    /// As [`Descriptor::validate`]; [`ErrorKind::Bounds`](crate::ErrorKind::Bounds) when the shape needs more memory
    /// than the storage has.
    pub(crate) fn finish(self, shape: &[i64]) -> Result<Facts>
    where
        S: Steps,
    {
        let strides = self.strides.list()?;
        let (claims, element) = self.claims(shape, strides.as_deref());
        if element.is_scalar() { claims.validate() } else { in_parts(claims, element) }
    }

    /// As [`finish`](Self::finish), for a shape whose length is a constant where this is called: no loop is left of the
    /// checks there.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the checks of a constant type vanish where it is known")]
    pub(crate) fn finish_fixed(self, shape: &[i64]) -> Result<Facts>
    where
        S: Steps,
    {
        let strides = self.strides.list()?;
        let (claims, element) = self.claims(shape, strides.as_deref());
        if element.is_scalar() { claims.validate_here() } else { in_parts(claims, element) }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as in `finish_fixed`")]
    fn claims<'c>(self, shape: &'c [i64], strides: Option<&'c [i64]>) -> (Descriptor<'c>, ElementType)
    where
        Self: 'c,
    {
        let strides = match strides {
            None => Strides::Compact(self.order),
            Some(list) if self.in_bytes => Strides::Bytes(list),
            Some(list) => Strides::Elements(list),
        };
        let Memory { address, range, element, device, writes } = self.memory;
        let claims = Descriptor {
            address,
            byte_offset: 0,
            dtype: element.dtype,
            padded: element.padded,
            record: self.record,
            shape,
            strides,
            device: Some(device),
            writes,
            stream: self.stream,
            memory: self.bounded.then_some(range),
        };
        (claims, element)
    }
}

/// Claims in units of an element that may be a struct or have trailing axes, as facts in units of its items.
#[cold]
fn in_parts(claims: Descriptor<'_>, element: ElementType) -> Result<Facts> {
    let record = element.to_record();
    let claims = Descriptor { record: claims.record.or(record.as_ref()), ..claims };
    if element.ndim == 0 {
        return claims.validate();
    }
    let whole = claims.layout(element.size)?.split_elements(element.axes())?;
    let shape: Vec<i64> = whole.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = whole.strides().iter().map(|stride| *stride as i64).collect();
    Descriptor { shape: &shape, strides: Strides::Elements(&strides), ..claims }.validate()
}
