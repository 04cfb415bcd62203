//! Where work may use memory, and the drop of handles in its context.

use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::driver::context::{Context, Entered, Relaxed, known_device};
use crate::driver::functions::{Driver, Outcome, opened};
use crate::process::settings::unordered;

/// The contexts in which memory may be in use, and how its owner is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The context of the memory.
    context: Option<Context>,
    /// The size of the array in blocks, rounded down, plus 1; 0: unknown.
    blocks: u32,
    /// Whether every primary context in use belongs to it.
    is_everywhere: bool,
    /// Whether the release needs neither a current context nor a capture mode.
    needs_no_context: bool,
    /// Whether the owner is an [`EndsInNumber`](crate::order::number::EndsInNumber).
    ends_in_number: bool,
}

/// The bytes in which sizes are counted. The largest size is then 256 GiB.
const BLOCK: usize = 64;

/// Arrays of fewer bytes share the event of their release.
const SMALL: usize = 1 << 20;

impl Reach {
    /// No contexts: somebody else makes sure that the release comes after the work.
    pub(crate) const NONE: Self = Self {
        context: None,
        blocks: 0,
        is_everywhere: false,
        needs_no_context: false,
        ends_in_number: false,
    };

    /// That of memory of one device.
    pub(crate) fn of_context(context: Context) -> Self {
        Self { context: Some(context), ..Self::NONE }
    }

    /// That of memory that every device reaches, pinned or managed: `own` and every primary context in use.
    pub(crate) fn of_all(own: Option<Context>) -> Self {
        Self { context: own, ..Self::NONE.everywhere() }
    }

    pub(crate) fn everywhere(self) -> Self {
        Self { is_everywhere: true, ..self }
    }

    /// The reach without the contexts of other devices.
    pub(crate) fn own_alone(self) -> Self {
        Self { is_everywhere: false, ..self.contexts() }
    }

    /// Sets the size to that of an array of `bytes` bytes.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        Self { blocks: u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX).saturating_add(1), ..self }
    }

    /// Marks an owner that belongs to another library, or that itself makes current what it needs.
    pub(crate) fn without_context(self) -> Self {
        Self { needs_no_context: true, ..self }
    }

    /// Marks an owner that ends in a number.
    pub(crate) fn ending_in_number(self) -> Self {
        Self { ends_in_number: true, ..self }
    }

    /// Returns whether the owner ends in a number.
    pub(crate) fn ends_in_number(self) -> bool {
        self.ends_in_number
    }

    /// Returns the size of the array, rounded down; 0 if it is unknown.
    pub(crate) fn bytes(self) -> usize {
        self.blocks.saturating_sub(1) as usize * BLOCK
    }

    /// Returns whether the array is small enough to share an event.
    pub(crate) fn is_small(self) -> bool {
        self.blocks != 0 && self.bytes() < SMALL
    }

    /// The contexts alone. Releases with equal results share their events.
    pub(crate) fn contexts(self) -> Self {
        Self { blocks: 0, needs_no_context: false, ends_in_number: false, ..self }
    }

    /// Returns whether the release waits for the work of a context.
    pub(crate) fn covers(self, driver: &Driver, context: Context, ordinal: i32) -> bool {
        // The program orders its own work only, not work that this crate queues.
        if unordered().releases {
            return false;
        }
        let is_primary = || Context::primary_of(driver, ordinal).is_ok_and(|primary| primary == context);
        self.context == Some(context) || (self.is_everywhere && is_primary())
    }

    /// Returns whether a context in which there is work is one of them.
    pub(crate) fn contains(self, context: Context) -> bool {
        self.context == Some(context) || (self.is_everywhere && context.primary_ordinal().is_some())
    }

    /// The context of the memory, if it is known.
    pub(crate) fn own(self) -> Option<Context> {
        self.context
    }

    /// Returns the one device whose work the release waits for, if it is known. A graph may be captured on any other
    /// device meanwhile: in the relaxed mode, calls about a context do not affect captures on other devices.
    pub(crate) fn device(self) -> Option<i32> {
        self.ordinal().filter(|_| !self.is_everywhere)
    }

    /// Returns the contexts.
    pub(crate) fn all(self, driver: &Driver) -> Outcome<impl Iterator<Item = Context> + use<>> {
        let own = self.context;
        let others = if self.is_everywhere { Context::all_in_use(driver)? } else { Vec::new() };
        Ok(own.into_iter().chain(others.into_iter().filter(move |context| own != Some(*context))))
    }

    /// Returns the device whose primary context is that of the memory, if there is one.
    pub(crate) fn ordinal(self) -> Option<i32> {
        self.context?.primary_ordinal()
    }

    /// Counts a release that is deferred.
    pub(crate) fn count_deferred(self) {
        if let Some(device) = self.ordinal().and_then(known_device) {
            device.deferred.fetch_add(self.bytes(), Ordering::Relaxed);
        }
    }

    /// Counts a deferred release that is done.
    pub(crate) fn count_released(self) {
        if let Some(device) = self.ordinal().and_then(known_device) {
            // The context may have become known in between.
            let less = |bytes: usize| Some(bytes.saturating_sub(self.bytes()));
            let _ = device.deferred.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Makes the context of the memory current while an owner is dropped, if there is a driver. An owner that needs none, such as
    /// one of another library, is dropped without.
    pub(crate) fn enter(self) -> Option<ReachContext<'static>> {
        opened().filter(|_| !self.needs_no_context).map(|driver| ReachContext::new(driver, self))
    }
}

/// Runs a drop and catches its panic.
#[inline]
pub(crate) fn contain_panic(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // The payload is leaked, because its drop could panic again.
        core::mem::forget(payload);
    }
}

/// Keeps the context of a reach current while an owner is dropped, in the relaxed capture mode, so that memory may be freed
/// during a capture. Afterwards the previous context is current again, whatever context the owner has made current.
pub(crate) struct ReachContext<'d> {
    entered: Option<Entered<'d>>,
    _relaxed: Relaxed<'d>,
}

impl<'d> ReachContext<'d> {
    fn new(driver: &'d Driver, reach: Reach) -> Self {
        let relaxed = Relaxed::new(driver);
        Self { entered: reach.context.and_then(|context| context.enter(driver).ok()), _relaxed: relaxed }
    }
}

impl Drop for ReachContext<'_> {
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            entered.leave();
        }
    }
}

/// A handle of an array. The drop of its last one frees the memory, perhaps in the context that is current.
pub(crate) trait Handle {
    /// What the last handle drops.
    type Last;

    /// Gives up the handle. Returns what is left to drop in the context of the memory if it is the last one.
    fn last(self) -> Option<Self::Last>;
}

impl<T> Handle for Arc<T> {
    type Last = T;

    fn last(self) -> Option<T> {
        Self::into_inner(self)
    }
}

/// A value that nobody shares.
#[derive(Clone, Debug)]
pub(crate) struct Sole<T>(pub(crate) T);

impl<T> Handle for Sole<T> {
    type Last = T;

    fn last(self) -> Option<T> {
        Some(self.0)
    }
}

impl<T> InReach<Sole<T>> {
    /// Takes the value out. It is then dropped in the context that is current.
    pub(crate) fn take(&mut self) -> T {
        match self.handle.take() {
            Some(Sole(value)) => value,
            None => unreachable!("the value is taken once"),
        }
    }
}

/// A handle that is dropped in the context of its memory.
#[derive(Clone, Debug)]
pub(crate) struct InReach<H: Handle> {
    /// `None` only when it is dropped or taken.
    handle: Option<H>,
    /// `None` for host memory, and as long as it is not known.
    pub(crate) reach: Option<Reach>,
}

impl<H: Handle> InReach<H> {
    pub(crate) fn new(handle: H, reach: Option<Reach>) -> Self {
        Self { handle: Some(handle), reach }
    }

    /// Drops the handle now.
    pub(crate) fn drop_handle(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        // Host memory needs no context, whether or not this is the last handle.
        let Some(reach) = self.reach else { return drop(handle) };
        if let Some(last) = handle.last() {
            let _context = reach.enter();
            drop(last);
        }
    }

    /// Whether the handle was dropped or taken.
    #[cfg(feature = "cust")]
    pub(crate) fn is_taken(&self) -> bool {
        self.handle.is_none()
    }

    pub(crate) fn handle(&self) -> &H {
        self.handle.as_ref().unwrap_or_else(|| unreachable!("the handle is there until the drop"))
    }

    pub(crate) fn handle_mut(&mut self) -> &mut H {
        self.handle.as_mut().unwrap_or_else(|| unreachable!("the handle is there until the drop"))
    }
}

impl<H: Handle> Drop for InReach<H> {
    fn drop(&mut self) {
        self.drop_handle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_flags_leave_the_contexts_alone() {
        let own = Context::from_driver(0x7fff_fff0);
        let reach = Reach::of_context(own.unwrap());
        for (bytes, rounded, is_small) in [
            (0, 0, true),
            (64, 64, true),
            (0xf_ffff, 0xf_ffc0, true),
            (1 << 20, 1 << 20, false),
            (256_000_000, 256_000_000, false),
        ] {
            let sized = reach.holding(bytes).without_context();
            assert_eq!((sized.bytes(), sized.is_small(), sized.contexts()), (rounded, is_small, reach));
            assert_eq!(sized.everywhere().contexts(), Reach::of_all(own));
            assert_ne!(Reach::of_all(None).holding(bytes), Reach::NONE);
        }
        assert!(!reach.is_small(), "nobody said how large it is");
        assert!(reach.holding(usize::MAX).bytes() >= 1 << 37);
    }
}
