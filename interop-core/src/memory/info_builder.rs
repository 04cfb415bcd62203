//! The export half of the derive: the fields of a struct become claims, and the claims facts.

use crate::array::dims::{Dims, signed};
use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::raw_descriptor::{RawDescriptor, Strides};
use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::Result;
use crate::memory::region::MemoryRegion;

/// Collects what the fields of a struct say; the shape comes last, and with it the check.
///
/// The type has no public name. The hidden methods of the field traits that take or return one can so be called by expanded
/// code, but not be replaced in an `impl`: no field can put other memory in the place of the struct's storage.
#[must_use]
pub struct InfoBuilder<'a> {
    pub(crate) memory: MemoryRegion,
    pub(crate) struct_type: Option<&'a StructType>,
    /// Whether `memory.range` says what is there; not so behind a raw pointer.
    pub(crate) bounded: bool,
    /// The `strides` field. Whatever its type is, the next calls are the same, so that a wrong type is one mistake.
    pub(crate) strides: Option<&'a dyn StridesSource>,
    /// Whether they are counted in bytes.
    pub(crate) in_bytes: bool,
    pub(crate) order: Order,
    pub(crate) stream: StreamHandle,
}

/// The `strides` field of a struct.
pub(crate) trait StridesSource {
    /// Writes the strides where they are read: a list that was filled a moment ago is slow to move. `false`: they are
    /// those of a compact array.
    ///
    /// # Errors
    ///
    /// When one does not fit 64 bits with a sign.
    fn list(&self, to: &mut Dims<i64>) -> Result<bool>;
}

impl<'a> InfoBuilder<'a> {
    #[inline]
    pub(crate) fn new(
        memory: MemoryRegion,
        struct_type: Option<&'a StructType>,
        bounded: bool,
        stream: StreamHandle,
    ) -> Self {
        Self { memory, struct_type, bounded, strides: None, in_bytes: false, order: Order::C, stream }
    }

    /// `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// `readonly`.
    #[inline]
    pub fn readonly(mut self) -> Self {
        self.memory.mutability = Mutability::ReadOnly;
        self
    }

    /// `shape = [...]`, and the facts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`](crate::error::ErrorKind::Overflow) for an extent that does not fit 64 bits with a sign; as
    /// [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the checks of a constant type vanish where it is known")]
    pub fn extents<const N: usize>(self, extents: [i128; N]) -> Result<ArrayInfo> {
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
    /// As [`RawDescriptor::validate`]; [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) when the shape needs more memory
    /// than the storage has.
    pub(crate) fn finish(self, shape: &[i64]) -> Result<ArrayInfo> {
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
    pub(crate) fn finish_fixed(self, shape: &[i64]) -> Result<ArrayInfo> {
        self.finish_by::<true>(shape)
    }

    /// With `INLINED` the claims are validated in the code of the caller.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as in `finish_fixed`")]
    fn finish_by<const INLINED: bool>(self, shape: &[i64]) -> Result<ArrayInfo> {
        let mut list = Dims::zeroed(0);
        let listed = match self.strides {
            None => false,
            Some(strides) => strides.list(&mut list)?,
        };
        let MemoryRegion { address, range, element, device, mutability } = self.memory;
        let descriptor = RawDescriptor {
            address,
            byte_offset: 0,
            dtype: element.dtype,
            padded: element.padded,
            struct_type: self.struct_type,
            shape,
            strides: match listed {
                false => Strides::Contiguous(self.order),
                true if self.in_bytes => Strides::Bytes(&list),
                true => Strides::Elements(&list),
            },
            device: Some(device),
            mutability,
            stream: self.stream,
            memory: self.bounded.then_some(range),
        };
        match element.is_scalar() {
            true if INLINED => descriptor.validate_inlined(),
            true => descriptor.validate(),
            false => in_parts(descriptor, element),
        }
    }
}

/// The facts of claims whose element is a struct or has trailing axes: they count its items.
#[cold]
fn in_parts(descriptor: RawDescriptor<'_>, element: ElementType) -> Result<ArrayInfo> {
    let struct_type = element.to_struct_type();
    let descriptor =
        RawDescriptor { struct_type: descriptor.struct_type.or(struct_type.as_ref()), ..descriptor };
    let has_stale_padding = !element.padding().is_empty();
    let noted = |info| ArrayInfo { has_stale_padding, ..info };
    if element.ndim == 0 {
        return descriptor.validate().map(noted);
    }
    let whole = descriptor.layout(element.size)?.split_elements(element.axes())?;
    let shape: Vec<i64> = whole.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = whole.strides().iter().map(|stride| *stride as i64).collect();
    RawDescriptor { shape: &shape, strides: Strides::Elements(&strides), ..descriptor }.validate().map(noted)
}
