//! Owners of the memory of an export, and how they are dropped.

use std::sync::Arc;

use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::release::scope::enter_scope;

/// The owner in an export.
pub(crate) trait ExportOwner: Send + 'static {
    /// Returns the release scope of the owner, given that of the memory. An owner that makes the context of the memory
    /// current itself stores the scope and marks the result as self-reliant.
    fn adapt_scope(&mut self, scope: ReleaseScope) -> ReleaseScope {
        scope
    }

    /// Whether the drop is that of the described array, or of a reference to it.
    const IS_THE_ARRAY: bool;

    /// Notes that a consumer has taken the memory, which only this crate had used before.
    fn note_taken(&self) {}
}

/// The array itself, or any other owner, which may free the memory in the context that is current.
#[repr(transparent)]
pub(crate) struct ExportedValue<O, const IS_THE_ARRAY: bool>(pub(crate) O);

impl<O: Send + 'static, const IS_THE_ARRAY: bool> ExportOwner for ExportedValue<O, IS_THE_ARRAY> {
    const IS_THE_ARRAY: bool = IS_THE_ARRAY;
}

/// A handle of a shared array. The drop of the last handle makes the context of the memory current and drops the array.
/// The drop of any other handle needs no context.
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
    const IS_THE_ARRAY: bool = true;

    fn adapt_scope(&mut self, scope: ReleaseScope) -> ReleaseScope {
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
