//! The export half of the derive: builds a description from the fields of a struct and checks it.

use crate::array::dims::{Dims, signed};
use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::raw_descriptor::{RawDescriptor, Strides};
use crate::array::stream::{PendingWork, StreamHandle};
use crate::array::struct_type::StructType;
use crate::array::use_record::UseRecord;
use crate::error::Result;
use crate::memory::region::MemoryRegion;

/// Collects the values of a struct's fields. The shape comes last and triggers the check.
///
/// The type has no public name. So expanded code can call the hidden methods of the field traits, but user code cannot
/// override them, and a field cannot substitute other memory.
#[must_use]
pub struct InfoBuilder<'a> {
    pub(crate) memory: MemoryRegion,
    pub(crate) struct_type: Option<&'a StructType>,
    /// Whether `memory.range` is the layout allocation. False for a raw pointer.
    pub(crate) bounded: bool,
    /// The `strides` field. It is a trait object so that later calls do not depend on its type; a wrong type then
    /// causes one error only.
    pub(crate) strides: Option<&'a dyn StridesSource>,
    /// Whether the strides are counted in bytes.
    pub(crate) in_bytes: bool,
    pub(crate) order: Order,
    pub(crate) pending: PendingWork,
    /// As [`Storage::drops_in_order`](crate::memory::storage::Storage::drops_in_order), for the whole struct.
    pub(crate) drops_in_order: bool,
    /// As [`Storage::uses`](crate::memory::storage::Storage::uses).
    pub(crate) uses: Option<UseRecord>,
}

/// The `strides` field of a struct.
pub(crate) trait StridesSource {
    /// Writes the strides into `to`, because moving a freshly filled list stalls the CPU. Returns `false` if the array
    /// is contiguous.
    ///
    /// # Errors
    ///
    /// If a stride does not fit a signed 64-bit integer.
    fn list(&self, to: &mut Dims<i64>) -> Result<bool>;
}

impl<'a> InfoBuilder<'a> {
    #[inline]
    pub(crate) fn new(
        memory: MemoryRegion,
        struct_type: Option<&'a StructType>,
        bounded: bool,
        pending: PendingWork,
    ) -> Self {
        let (strides, drops_in_order, uses) = (None, false, None);
        Self {
            memory,
            struct_type,
            bounded,
            strides,
            in_bytes: false,
            order: Order::C,
            pending,
            drops_in_order,
            uses,
        }
    }

    /// Sets the `strides` field, in elements or in bytes.
    #[inline]
    pub(crate) fn strides(self, strides: &'a dyn StridesSource, in_bytes: bool) -> Self {
        Self { strides: Some(strides), in_bytes, ..self }
    }

    /// Sets the value of the `stream` field, which takes precedence over the storage's stream.
    #[inline]
    pub(crate) fn stream(mut self, field: Option<StreamHandle>) -> Self {
        // The stream of the caller is another one. The caller's library goes on there, without a word to the field.
        let leaves_callers = match (self.uses, field, self.pending.name()) {
            (Some(uses), Some(field), Some(callers)) if field != callers => {
                uses.note_used();
                true
            }
            _ => false,
        };
        self.pending = self.pending.with_field(field);
        if leaves_callers {
            self.pending = self.pending.beside_hidden_streams();
        }
        self
    }

    /// Sets `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Declares whether other fields of the struct have a drop. It may need the context of the memory.
    #[inline]
    pub fn beside(mut self, needs_drop: bool) -> Self {
        self.drops_in_order &= !needs_drop;
        self
    }

    /// Sets `readonly`.
    #[inline]
    pub fn readonly(mut self) -> Self {
        self.memory.mutability = Mutability::ReadOnly;
        self
    }

    /// Sets `shape = [...]` and checks the description.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`](crate::error::ErrorKind::Overflow) if an extent does not fit a signed 64-bit integer;
    /// otherwise as [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]
    pub fn extents<const N: usize>(self, extents: [i128; N]) -> Result<ArrayInfo> {
        let mut shape = [0; N];
        for (axis, extent) in extents.into_iter().enumerate() {
            shape[axis] = signed("shape", axis, extent)?;
        }
        self.finish_fixed(&shape)
    }

    /// Checks the description with this shape.
    ///
    /// # Errors
    ///
    /// As [`RawDescriptor::validate`]; [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) if the shape
    /// needs more memory than the storage has.
    pub(crate) fn finish(self, shape: &[i64]) -> Result<ArrayInfo> {
        self.finish_by::<false>(shape)
    }

    /// As [`finish`](Self::finish), for a shape whose rank is a constant in the caller, so that loops over axes are
    /// unrolled.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]
    pub(crate) fn finish_fixed(self, shape: &[i64]) -> Result<ArrayInfo> {
        self.finish_by::<true>(shape)
    }

    /// `INLINED` inlines the validation into the caller.
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
            stream: self.pending.name(),
            memory: self.bounded.then_some(range),
        };
        let mut result = match element.is_scalar() {
            true if INLINED => descriptor.validate_inlined(),
            true => descriptor.validate(),
            false => with_element_axes(descriptor, element),
        };
        // In place: a move of the description costs more than its check.
        if let Ok(info) = &mut result {
            // What is unknown, the check has decided by the device.
            if self.pending.name().is_some() || self.pending.has_hidden_streams() {
                info.pending = self.pending;
            }
            info.drops_in_order = self.drops_in_order;
            info.uses = self.uses;
        }
        result
    }
}

/// The description of an array whose element is a struct or has trailing axes, which become axes of the array.
#[cold]
fn with_element_axes(descriptor: RawDescriptor<'_>, element: ElementType) -> Result<ArrayInfo> {
    let struct_type = element.to_struct_type();
    let descriptor =
        RawDescriptor { struct_type: descriptor.struct_type.or(struct_type.as_ref()), ..descriptor };
    let has_stale_padding = !element.padding().is_empty();
    let with_padding_flag = |info| ArrayInfo { has_stale_padding, ..info };
    if element.ndim == 0 {
        return descriptor.validate().map(with_padding_flag);
    }
    let layout = descriptor.layout(element.size)?.split_elements(element.axes())?;
    let shape: Vec<i64> = layout.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = layout.strides().iter().map(|stride| *stride as i64).collect();
    RawDescriptor { shape: &shape, strides: Strides::Elements(&strides), ..descriptor }
        .validate()
        .map(with_padding_flag)
}
