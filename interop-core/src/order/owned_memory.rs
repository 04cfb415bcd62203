//! Memory that a storage has: its owner, and what is known of its use.

use core::mem::take;
use std::sync::Arc;

use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;
use crate::order::uses::Uses;

/// Memory that a storage uses in place until it is dropped: that of an import, or of a value that lends it.
pub(crate) struct OwnedMemory {
    owner: Owner,
    placement: Placement,
    uses: Option<Arc<Uses>>,
}

impl OwnedMemory {
    #[inline]
    pub(crate) const fn new(owner: Owner, placement: Placement, uses: Option<Arc<Uses>>) -> Self {
        Self { owner, placement, uses }
    }

    /// Where the work is, if the struct has no `stream` field.
    #[inline]
    pub(crate) const fn placement(&self) -> Placement {
        self.placement
    }

    /// What a storage says of the use of the memory.
    #[inline]
    pub(crate) fn state(&self) -> StorageState<'_> {
        let (uses, release_is_ordered) = (self.uses.as_ref(), self.owner.reach().is_some());
        let has_own_work = uses.is_some_and(|uses| uses.is_for_block());
        StorageState { uses, has_own_work, release_is_ordered, ..StorageState::new(self.placement) }
    }

    /// Notes that the memory may be used in a way that this crate does not see.
    #[inline]
    pub(crate) fn note_used(&self) {
        if let Some(uses) = &self.uses {
            uses.note_unknown();
        }
    }

    /// Returns the owner, to whoever may use the memory in any way.
    pub(crate) fn into_owner(mut self) -> Owner {
        self.note_used();
        take(&mut self.owner)
    }
}

impl Drop for OwnedMemory {
    #[inline]
    fn drop(&mut self) {
        self.owner.leave_order_to_caller(self.uses.as_deref());
    }
}
