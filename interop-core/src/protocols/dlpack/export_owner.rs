//! What keeps the memory of an export, and how it is let go.

use std::sync::Arc;

use crate::cuda::release::in_context::enter_scope;
use crate::cuda::release::scope::ReleaseScope;

/// The owner in an export.
pub(crate) trait ExportOwner: Send + 'static {
    /// Says how the release of the owner is treated, for memory with this fence. An owner that makes the context of the memory
    /// current itself, where it needs that, notes the fence.
    fn treated_as(&mut self, scope: ReleaseScope) -> ReleaseScope {
        scope
    }

    /// Whether the drop comes after the work on the memory by itself, and need not be put off.
    fn orders_its_release(&self) -> bool {
        false
    }
}

/// An owner of any type: it may free the memory in whatever context is current.
#[repr(transparent)]
pub(crate) struct Plain<O>(pub(crate) O);

impl<O: Send + 'static> ExportOwner for Plain<O> {}

/// A handle of a shared array. The context of its memory is made current for the drop of the array, and for no other handle.
pub(crate) struct SharedHandle<T: Send + Sync + 'static> {
    array: Option<Arc<T>>,
    scope: Option<ReleaseScope>,
}

impl<T: Send + Sync + 'static> SharedHandle<T> {
    pub(crate) fn new(array: &Arc<T>) -> Self {
        Self { array: Some(Arc::clone(array)), scope: None }
    }
}

impl<T: Send + Sync + 'static> ExportOwner for SharedHandle<T> {
    fn treated_as(&mut self, scope: ReleaseScope) -> ReleaseScope {
        self.scope = Some(scope);
        scope.self_reliant()
    }
}

impl<T: Send + Sync + 'static> Drop for SharedHandle<T> {
    fn drop(&mut self) {
        if let Some(last) = self.array.take().and_then(Arc::into_inner) {
            let _home = self.scope.and_then(enter_scope);
            drop(last);
        }
    }
}
