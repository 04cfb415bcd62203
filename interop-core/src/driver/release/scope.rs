//! Release scopes: the contexts that a release waits for, in one word, and the erased owner that carries one.

use crate::process::settings::unordered;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::driver::context::{Context, Entered, Relaxed, known_device};
use crate::driver::functions::{Driver, Outcome, is_of_parent, opened};

/// The contexts in which memory may be in use when it is released, and how its owner is dropped.
///
/// It is one word, because every owner carries one. A `CUcontext` is the address of an allocation in user space, so the
/// lowest bits and the highest are free, which [`of_context`](Self::of_context) asserts:
///
/// | bits | meaning |
/// | --- | --- |
/// | 0 | every primary context in use belongs to the scope too |
/// | 1 | without a context: nothing to wait for |
/// | 3 | the release needs neither a current context nor a capture mode |
/// | 56 to 63 | the size class of the array; 0: unknown |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseScope(NonZeroUsize);

/// Arrays of fewer bytes share the event of their release.
const SMALL: usize = 1 << 20;

impl ReleaseScope {
    const EVERYWHERE: usize = 1;
    const SELF_RELIANT: usize = 8;
    const SIZE: u32 = usize::BITS - 8;
    const FLAGS: usize = 0xff << Self::SIZE | Self::SELF_RELIANT;
    /// The bits that no handle of a context has.
    const TAGS: usize = Self::EVERYWHERE | Self::NONE.0.get() | Self::FLAGS;
    /// No contexts: somebody else makes sure that the release comes after the work.
    pub(crate) const NONE: Self = Self(NonZeroUsize::MIN.saturating_add(1));

    /// The scope of memory of one device.
    ///
    /// # Panics
    ///
    /// If the handle has one of the bits that have a meaning here. The scope would name another context.
    pub(crate) fn of_context(context: Context) -> Self {
        let handle = context.to_raw();
        assert!(
            handle.get() & Self::TAGS == 0,
            "the context {handle:#x} is no aligned address in user space"
        );
        Self(handle)
    }

    /// The scope of memory that every device reaches, pinned or managed: `own` and every primary context in use.
    pub(crate) fn of_all(own: Option<Context>) -> Self {
        own.map_or(Self(NonZeroUsize::MIN), |context| Self::of_context(context).everywhere())
    }

    pub(crate) fn everywhere(self) -> Self {
        Self(self.0 | Self::EVERYWHERE)
    }

    /// The scope without the contexts of other devices.
    pub(crate) fn own_alone(self) -> Self {
        self.own().map_or(Self::NONE, Self::of_context)
    }

    /// Sets the size class to that of an array of `bytes` bytes.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        let without = self.0.get() & !(0xff << Self::SIZE);
        NonZeroUsize::new(without | class_of(bytes) << Self::SIZE).map_or(self, Self)
    }

    /// Marks an owner that belongs to another library, or that itself makes current what it needs.
    pub(crate) fn self_reliant(self) -> Self {
        Self(self.0 | Self::SELF_RELIANT)
    }

    /// Returns whether the owner needs neither a current context nor a capture mode when it is dropped.
    pub(crate) fn is_self_reliant(self) -> bool {
        self.0.get() & Self::SELF_RELIANT != 0
    }

    /// Returns the size of the array, rounded down to its class; 0 if it is unknown.
    pub(crate) fn bytes(self) -> usize {
        bytes_of(self.0.get() >> Self::SIZE)
    }

    /// Returns whether the array is small enough to share an event.
    pub(crate) fn is_small(self) -> bool {
        let class = self.0.get() >> Self::SIZE;
        class != 0 && bytes_of(class) < SMALL
    }

    /// Returns the scope without size class and flag. Releases with equal results share their events.
    pub(crate) fn contexts(self) -> Self {
        let contexts = self.0.get() & !Self::FLAGS;
        NonZeroUsize::new(contexts).map_or(self, Self)
    }

    /// Returns whether the release waits for the work of a context.
    pub(crate) fn covers(self, driver: &Driver, context: Context, ordinal: i32) -> bool {
        // The program orders its own work only, not work that this crate queues.
        if unordered().releases {
            return false;
        }
        let is_primary = || Context::primary_of(driver, ordinal).is_ok_and(|primary| primary == context);
        self.own() == Some(context) || (self.is_everywhere() && is_primary())
    }

    pub(crate) fn own(self) -> Option<Context> {
        Context::from_driver(self.0.get() & !Self::TAGS)
    }

    /// Returns the one device whose work the release waits for, if it is known. A graph may be captured on any other
    /// device meanwhile: in the relaxed mode, calls about a context do not affect captures on other devices.
    pub(crate) fn device(self) -> Option<i32> {
        if self.is_everywhere() { None } else { self.own()?.primary_ordinal() }
    }

    /// Returns the contexts of the scope.
    pub(crate) fn all(self, driver: &Driver) -> Outcome<impl Iterator<Item = Context> + use<>> {
        let own = self.own();
        let others = if self.is_everywhere() { Context::all_in_use(driver)? } else { Vec::new() };
        Ok(own.into_iter().chain(others.into_iter().filter(move |context| own != Some(*context))))
    }

    /// Returns the device whose primary context this is the scope of, if there is one.
    pub(crate) fn ordinal(self) -> Option<i32> {
        self.own()?.primary_ordinal()
    }

    fn is_everywhere(self) -> bool {
        self.0.get() & Self::EVERYWHERE != 0
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
}

/// Returns the size class of an array, from 1: eight for each power of two, from 64 bytes on.
fn class_of(bytes: usize) -> usize {
    let blocks = bytes >> 6;
    let class = match blocks.checked_ilog2() {
        Some(power @ 3..) => (power as usize - 3) * 8 + (blocks >> (power - 3)),
        _ => blocks,
    };
    class.min(0xfe) + 1
}

/// Returns the smallest size of a class; 0 for class 0.
fn bytes_of(class: usize) -> usize {
    match class.saturating_sub(1) {
        class @ 0..8 => class << 6,
        class => ((8 + class % 8) << (class / 8 - 1)) << 6,
    }
}

/// A value of any type, as a pointer and the function that drops it.
///
/// It is dropped once, on any thread.
pub(crate) struct ErasedOwner {
    value: NonNull<()>,
    release: unsafe fn(NonNull<()>),
    /// What its release waits for.
    scope: ReleaseScope,
}

// SAFETY: the constructors only take values that may be dropped on any thread.
unsafe impl Send for ErasedOwner {}

impl ErasedOwner {
    /// Moves `value` into a box.
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let place = NonNull::from(Box::leak(Box::new(value)));
        Self { value: place.cast(), release: drop_box::<T>, scope: ReleaseScope::NONE }
    }

    /// Takes ownership of a value that `release` releases.
    ///
    /// # Safety
    ///
    /// `release(value)` may be called once, on any thread, at any time.
    #[inline]
    pub(crate) const unsafe fn from_raw(value: NonNull<()>, release: unsafe fn(NonNull<()>)) -> Self {
        Self { value, release, scope: ReleaseScope::NONE }
    }

    /// What its release waits for.
    pub(crate) fn scope(&self) -> ReleaseScope {
        self.scope
    }

    /// Sets what its release waits for.
    pub(crate) fn after(mut self, scope: ReleaseScope) -> Self {
        self.scope = scope;
        self
    }
}

impl Drop for ErasedOwner {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the constructors set `value` and `release` together, and a value is dropped once.
        unsafe { (self.release)(self.value) };
    }
}

/// # Safety
///
/// `value` comes from a leaked `Box<T>` and is not used afterwards.
pub(crate) unsafe fn drop_box<T>(value: NonNull<()>) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

/// Runs a drop and catches its panic.
#[inline]
pub(crate) fn contain_panic(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // The payload is leaked, because its drop could panic again.
        core::mem::forget(payload);
    }
}

/// Drops an owner with the context of its memory current, in the relaxed capture mode. A self-reliant owner, such as
/// one of another library, is dropped without either.
///
/// The drop may run on any thread. Some libraries free in whatever context is current (`cust`; `cudarc` on a default
/// stream), some leave their own context current (`cudarc`), and an owner may destroy the context. Afterwards the
/// thread's previous context is current again.
pub(crate) fn drop_in_context(driver: &Driver, owner: ErasedOwner, scope: ReleaseScope) {
    // The drop of an earlier owner may have forked.
    if is_of_parent() {
        return core::mem::forget(owner);
    }
    if scope.is_self_reliant() {
        return drop(owner);
    }
    let _context = ScopeContext::new(driver, scope);
    drop(owner);
}

/// Keeps the context of a scope current while an owner is dropped, in the relaxed capture mode, so that memory may be freed
/// during a capture. Afterwards the previous context is current again, whatever context the owner has made current.
pub(crate) struct ScopeContext<'d> {
    entered: Option<Entered<'d>>,
    _relaxed: Relaxed<'d>,
}

impl<'d> ScopeContext<'d> {
    fn new(driver: &'d Driver, scope: ReleaseScope) -> Self {
        let relaxed = Relaxed::new(driver);
        Self { entered: scope.own().and_then(|context| context.enter(driver).ok()), _relaxed: relaxed }
    }
}

impl Drop for ScopeContext<'_> {
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            entered.leave();
        }
    }
}

/// Makes the context of a scope current, if there is a driver.
pub(crate) fn enter_scope(scope: ReleaseScope) -> Option<ScopeContext<'static>> {
    opened().map(|driver| ScopeContext::new(driver, scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_sizes_leave_the_context_alone() {
        let context = Context::from_driver(0x7fff_fff0).unwrap();
        for (bytes, rounded, is_small) in [
            (0, 0, true),
            (64, 64, true),
            (1 << 14, 1 << 14, true),
            (0xf_ffff, 15 << 16, true),
            (1 << 20, 1 << 20, false),
            (256_000_000, 240 << 20, false),
            (1 << 30, 1 << 30, false),
        ] {
            let scope = ReleaseScope::of_context(context).holding(bytes);
            assert_eq!((scope.bytes(), scope.is_small(), scope.own()), (rounded, is_small, Some(context)));
            let all = scope.everywhere().self_reliant();
            assert_eq!((all.own(), all.is_self_reliant()), (Some(context), true));
            assert_eq!(all.contexts(), ReleaseScope::of_all(Some(context)));
            assert_eq!(scope.self_reliant().holding(1).contexts(), ReleaseScope::of_context(context));
            assert_ne!(ReleaseScope::of_all(None).holding(bytes), ReleaseScope::NONE);
        }
        assert!(!ReleaseScope::of_context(context).is_small(), "nobody said how large it is");
        assert!(ReleaseScope::of_context(context).holding(usize::MAX).bytes() >= 1 << 39);
        assert_eq!(ReleaseScope::of_all(None).holding(64).self_reliant().own(), None);
        assert_eq!((ReleaseScope::NONE.own(), ReleaseScope::NONE.contexts()), (None, ReleaseScope::NONE));
    }

    #[test]
    fn a_handle_with_a_tag_is_no_context() {
        for tag in [1, 2, 8, 1 << (usize::BITS - 8), 1 << (usize::BITS - 1)] {
            let context = Context::from_driver(0x7f_ff00 | tag).unwrap();
            let scope = std::panic::catch_unwind(|| ReleaseScope::of_context(context));
            assert!(scope.is_err(), "{tag:#x}: {scope:?}");
        }
    }
}
