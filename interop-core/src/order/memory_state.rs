//! What is known of the use of memory: its placement, and the record of its uses.
#![expect(clippy::inline_always, reason = "of a state that is inlined, unused fields are not written")]

use std::sync::Arc;

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::driver::stream::Stream;
use crate::order::placement::{Change, Placement};
use crate::order::uses::Uses;

/// What a storage says of the use of its memory. It borrows and is `Copy`, because what has a drop is written to memory on its way
/// through a builder.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct StorageState<'a> {
    pub(crate) placement: Placement,
    /// The record of the memory, for a storage whose `memory_unwatched` notes no use.
    pub(crate) uses: Option<&'a Arc<Uses>>,
    /// The storage has queued work that no `stream` field tells of.
    pub(crate) has_own_work: bool,
    /// As [`MemoryState::release_is_ordered`].
    pub(crate) release_is_ordered: bool,
    /// As [`MemoryState::is_foreign`].
    pub(crate) is_foreign: bool,
}

impl StorageState<'_> {
    /// The state of memory of which only the placement is known.
    #[inline]
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, uses: None, has_own_work: false, release_is_ordered: false, is_foreign: false }
    }

    /// The state of the memory of an array on `device`, whose struct may have a `stream` field.
    #[inline(always)]
    pub(crate) fn beside(self, field: Option<StreamHandle>, device: Device) -> MemoryState {
        let Self { mut placement, uses, release_is_ordered, is_foreign, .. } = self;
        let mut of_storage = None;
        if let Some(field) = field {
            (placement, of_storage) = self.leave_to_field(field);
        } else if device.device_type == DeviceType::CPU && matches!(placement, Placement::Unknown) {
            placement = Placement::Nothing;
        }
        MemoryState { placement, uses: uses.cloned(), of_storage, release_is_ordered, is_foreign }
    }

    /// Leaves the work to the stream of a `stream` field. What the storage knows of other work is kept.
    #[inline(never)]
    fn leave_to_field(self, field: StreamHandle) -> (Placement, Option<Box<Placement>>) {
        let own = self.placement;
        let field = Stream::anywhere(field);
        let is_known = own.is_nothing() || own.last().is_some();
        let is_elsewhere = is_known && own.last().map(Stream::handle) != field.map(Stream::handle);
        let placement = own.next(Change::Ordered(field));
        match self.uses {
            // The stream of the caller is another one. The caller's library goes on there, without a word to the field.
            Some(uses) if is_elsewhere => {
                uses.note_unknown();
                (placement.next(Change::Hides), None)
            }
            _ if self.has_own_work => (placement, Some(Box::new(Placement::Unknown))),
            _ if is_elsewhere && !own.is_nothing() => (placement, Some(Box::new(own))),
            _ => (placement, None),
        }
    }
}

/// What is known of the use of memory. It travels with the memory: from an import to a storage, to a description, into a scope.
#[derive(Clone, Debug)]
pub(crate) struct MemoryState {
    /// Where the work on the memory is. A default stream of a `stream` field has no context before it is used.
    pub(crate) placement: Placement,
    /// How the memory was used, if this crate watches it.
    pub(crate) uses: Option<Arc<Uses>>,
    /// The work that the storage knows of, if a `stream` field names another stream. In a box, because it is rare and
    /// descriptions are moved often.
    pub(crate) of_storage: Option<Box<Placement>>,
    /// The drop is itself ordered after the work on the memory, and needs no context, as that of an import. An export then
    /// orders nothing of its own.
    pub(crate) release_is_ordered: bool,
    /// The storage belongs to another crate, which may order its own functions by its own records.
    pub(crate) is_foreign: bool,
}

impl MemoryState {
    /// The state of memory of which only the placement is known.
    #[inline]
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, uses: None, of_storage: None, release_is_ordered: false, is_foreign: false }
    }

    /// Whether the context that is current will say on which default streams the work is.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.placement.is_open() || self.of_storage.as_deref().is_some_and(|work| work.is_open())
    }

    /// Chooses the default streams of memory of `device` for good, whatever context is current later.
    pub(crate) fn locate(&mut self, device: Device) {
        self.placement = self.placement.located(device);
        if let Some(work) = &mut self.of_storage {
            **work = work.located(device);
        }
    }

    /// The placement as work on one stream: unknown if there is other work beside a `stream` field.
    #[inline]
    pub(crate) fn on_one_stream(&self) -> Placement {
        if self.of_storage.is_some() { Placement::Unknown } else { self.placement }
    }

    /// Replaces the work.
    #[inline]
    pub(crate) fn set_work(&mut self, placement: Placement) {
        (self.placement, self.of_storage) = (placement, None);
    }

    /// The record of the memory, if this crate knows all work on it.
    pub(crate) fn followed(&self) -> Option<&Uses> {
        self.uses.as_deref().filter(|uses| uses.are_known())
    }

    /// Notes that the memory may be used in a way that this crate does not see.
    #[inline]
    pub(crate) fn note_used(&self) {
        if let Some(uses) = &self.uses {
            uses.note_unknown();
        }
    }
}
