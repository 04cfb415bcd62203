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
///
/// The type has no public name. The hidden methods of the field traits that take or return one can so be called by expanded
/// code, but not be replaced in an `impl`: no field can put other memory in the place of the struct's storage.
#[must_use]
pub struct Describe<'a> {
    memory: Memory,
    record: Option<&'a Record>,
    /// Whether `memory.range` says what is there; not so behind a raw pointer.
    bounded: bool,
    /// The `strides` field. Whatever its type is, the next calls are the same, so that a wrong type is one mistake.
    strides: Option<&'a dyn Steps>,
    /// Whether they are counted in bytes.
    in_bytes: bool,
    order: Order,
    stream: StreamHandle,
}

/// The `strides` field of a struct.
trait Steps {
    /// Writes the strides where they are read: a list that was filled a moment ago is slow to move. `false`: they are
    /// those of a compact array.
    ///
    /// # Errors
    ///
    /// When one does not fit 64 bits with a sign.
    fn list(&self, to: &mut Dims<i64>) -> Result<bool>;
}

impl<F: StridesField> Steps for F {
    #[inline]
    fn list(&self, to: &mut Dims<i64>) -> Result<bool> {
        let Some(count) = self.count() else { return Ok(false) };
        *to = Dims::zeroed(count);
        self.write(to)?;
        Ok(true)
    }
}

impl<'a> Describe<'a> {
    #[inline]
    fn new(memory: Memory, record: Option<&'a Record>, bounded: bool, stream: StreamHandle) -> Self {
        Self { memory, record, bounded, strides: None, in_bytes: false, order: Order::C, stream }
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

    /// The `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), ..self }
    }

    /// The `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), in_bytes: true, ..self }
    }

    /// `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The `stream` field, in the place of what the storage says.
    #[inline]
    pub fn stream<F: AsStream>(mut self, stream: &F) -> Self {
        self.stream = stream.as_stream_beside(self.memory.device).unwrap_or(self.stream);
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
    pub fn extents<const N: usize>(self, extents: [i128; N]) -> Result<Facts> {
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
    pub(crate) fn finish(self, shape: &[i64]) -> Result<Facts> {
        self.finish_by::<false>(shape)
    }

    /// As [`finish`](Self::finish), for a shape whose length is a constant where this is called: no loop is left of the
    /// checks there.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the checks of a constant type vanish where it is known")]
    pub(crate) fn finish_fixed(self, shape: &[i64]) -> Result<Facts> {
        self.finish_by::<true>(shape)
    }

    /// With `HERE` the claims are validated in the code of the caller.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as in `finish_fixed`")]
    fn finish_by<const HERE: bool>(self, shape: &[i64]) -> Result<Facts> {
        let mut list = Dims::zeroed(0);
        let listed = match self.strides {
            None => false,
            Some(strides) => strides.list(&mut list)?,
        };
        let Memory { address, range, element, device, writes } = self.memory;
        let claims = Descriptor {
            address,
            byte_offset: 0,
            dtype: element.dtype,
            padded: element.padded,
            record: self.record,
            shape,
            strides: match listed {
                false => Strides::Compact(self.order),
                true if self.in_bytes => Strides::Bytes(&list),
                true => Strides::Elements(&list),
            },
            device: Some(device),
            writes,
            stream: self.stream,
            memory: self.bounded.then_some(range),
        };
        match element.is_scalar() {
            true if HERE => claims.validate_here(),
            true => claims.validate(),
            false => in_parts(claims, element),
        }
    }
}

/// The facts of claims whose element is a struct or has trailing axes: they count its items.
#[cold]
fn in_parts(claims: Descriptor<'_>, element: ElementType) -> Result<Facts> {
    let record = element.to_record();
    let claims = Descriptor { record: claims.record.or(record.as_ref()), ..claims };
    let has_stale_padding = !element.padding().is_empty();
    let noted = |facts| Facts { has_stale_padding, ..facts };
    if element.ndim == 0 {
        return claims.validate().map(noted);
    }
    let whole = claims.layout(element.size)?.split_elements(element.axes())?;
    let shape: Vec<i64> = whole.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = whole.strides().iter().map(|stride| *stride as i64).collect();
    Descriptor { shape: &shape, strides: Strides::Elements(&strides), ..claims }.validate().map(noted)
}
