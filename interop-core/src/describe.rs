//! The export half of the derive: the fields of a struct become claims, and the claims facts.

use crate::claims::{Claims, List};
use crate::descriptor::{Descriptor, Strides, Writes};
use crate::dims::Dims;
use crate::element::ElementType;
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::layout::Order;
use crate::raw::RawMemory;
use crate::record::Record;
use crate::roles::{AsStream, DeviceField, Extent, ShapeField, StridesField};
use crate::storage::{Memory, Storage};
use crate::stream::StreamHandle;

/// Collects what the fields of a struct say; `finish` checks it.
#[must_use]
pub struct Describe<'a, E = (), S = ()> {
    memory: Memory,
    record: Option<&'a Record>,
    /// Whether `memory.range` says what is there; not so behind a raw pointer.
    bounded: bool,
    shape: E,
    strides: S,
    in_bytes: bool,
    order: Order,
    stream: StreamHandle,
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

/// Extents as the fields of a struct give them: an array, or a list that may have been refused.
pub trait Extents {
    /// The numbers.
    type List: List + ?Sized;
    /// The numbers, or why there are none.
    fn list(&self) -> Result<&Self::List>;
}

impl<const N: usize> Extents for [i64; N] {
    type List = Self;

    #[inline]
    fn list(&self) -> Result<&Self> {
        Ok(self)
    }
}

impl Extents for Result<Dims<i64>> {
    type List = [i64];

    #[inline]
    fn list(&self) -> Result<&[i64]> {
        match self {
            Ok(list) => Ok(list),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Strides as the fields of a struct give them.
pub trait Steps {
    /// The numbers, if there are some, or why there are none.
    fn list(&self) -> Result<Option<&[i64]>>;
}

impl Steps for () {
    #[inline]
    fn list(&self) -> Result<Option<&[i64]>> {
        Ok(None)
    }
}

impl Steps for Result<Option<Dims<i64>>> {
    #[inline]
    fn list(&self) -> Result<Option<&[i64]>> {
        match self {
            Ok(list) => Ok(list.as_deref()),
            Err(error) => Err(error.clone()),
        }
    }
}

impl<'a> Describe<'a> {
    #[inline]
    fn new(memory: Memory, record: Option<&'a Record>, bounded: bool) -> Self {
        Self {
            memory,
            record,
            bounded,
            shape: (),
            strides: (),
            in_bytes: false,
            order: Order::C,
            stream: StreamHandle::NothingPending,
        }
    }

    /// The `data` field.
    #[inline]
    pub fn storage<S: Storage>(storage: &'a S) -> Self {
        Self::new(storage.memory(), storage.record(), true)
    }

    /// The `data(unsafe_raw)` field, with the `device` field.
    pub fn raw<D: DeviceField>(memory: RawMemory, device: &D) -> Self {
        Self::new(memory.on(device.device()), None, false)
    }
}

impl<'a, S> Describe<'a, (), S> {
    #[inline]
    fn with_shape<E>(self, shape: E) -> Describe<'a, E, S> {
        let Self { memory, record, bounded, shape: (), strides, in_bytes, order, stream } = self;
        Describe { memory, record, bounded, shape, strides, in_bytes, order, stream }
    }

    /// `shape = [...]`.
    #[inline]
    pub fn extents<const N: usize>(self, extents: &[i64; N]) -> Describe<'a, [i64; N], S> {
        self.with_shape(*extents)
    }

    /// The `shape` field.
    #[inline]
    pub fn shape<F: ShapeField>(self, shape: &F) -> Describe<'a, Result<Dims<i64>>, S> {
        self.with_shape(shape.extents())
    }
}

impl<'a, E> Describe<'a, E> {
    #[inline]
    fn with_strides<S>(self, strides: S, in_bytes: bool) -> Describe<'a, E, S> {
        let Self { memory, record, bounded, shape, strides: (), in_bytes: _, order, stream } = self;
        Describe { memory, record, bounded, shape, strides, in_bytes, order, stream }
    }

    /// The `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(self, strides: &F) -> Describe<'a, E, Result<Option<Dims<i64>>>> {
        self.with_strides(strides.strides(), false)
    }

    /// The `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(
        self,
        strides: &F,
    ) -> Describe<'a, E, Result<Option<Dims<i64>>>> {
        self.with_strides(strides.strides(), true)
    }
}

impl<E, S> Describe<'_, E, S> {
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

    /// The facts.
    ///
    /// # Errors
    ///
    /// As [`Descriptor::validate`]; [`ErrorKind::Bounds`] when the shape needs more memory than the storage has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the checks of a constant type vanish where it is known")]
    pub fn finish(self) -> Result<Facts>
    where
        E: Extents,
        S: Steps,
    {
        let Self { memory, record, bounded, shape, strides, in_bytes, order, stream } = self;
        let (shape, strides) = (shape.list()?, strides.list()?);
        let Memory { address, range, element, device, writes } = memory;
        let (device, memory) = (Some(device), bounded.then_some(range));
        let (dtype, padded) = (element.dtype, element.padded);
        if strides.is_none() && element.ndim == 0 && element.fields.is_none() {
            // What most structs are, without a detour.
            let strides = order;
            let claims = Claims {
                address,
                byte_offset: 0,
                dtype,
                padded,
                record,
                shape,
                strides,
                device,
                writes,
                stream,
                memory,
            };
            return claims.validate();
        }
        let strides = match (strides, in_bytes) {
            (None, _) => Strides::Compact(order),
            (Some(strides), false) => Strides::Elements(strides),
            (Some(strides), true) => Strides::Bytes(strides),
        };
        let shape = shape.as_ref();
        let claims = Descriptor {
            address,
            byte_offset: 0,
            dtype,
            padded,
            record,
            shape,
            strides,
            device,
            writes,
            stream,
            memory,
        };
        in_parts(claims, element)
    }
}

/// Claims in units of an element that is a struct or has trailing axes, as facts in units of its items.
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
