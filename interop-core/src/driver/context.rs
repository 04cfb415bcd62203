//! Driver contexts: making one current for a few calls, and which one memory is used in.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::device::{Device, DeviceType};
use crate::driver::functions::{Driver, DriverError, Outcome, code, driver};
use crate::error::Result;
use crate::process::fork::PerProcess;

/// A `CUcontext`. It is not owned: the owners of memory and streams in it keep it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Context(NonZeroUsize);

/// What is remembered of a device. 0 stands for what is not known yet.
pub(crate) struct KnownDevice {
    /// The handle of the primary context, which is retained.
    primary: AtomicUsize,
    /// How often the primary context was reset, as far as this crate has found out.
    resets: AtomicUsize,
    /// The default limit of deferred releases, in bytes.
    pub(crate) release_limit: AtomicUsize,
    /// The bytes whose release is deferred.
    pub(crate) deferred: AtomicUsize,
}

static DEVICES: [KnownDevice; 64] = [const {
    KnownDevice {
        primary: AtomicUsize::new(0),
        resets: AtomicUsize::new(0),
        release_limit: AtomicUsize::new(0),
        deferred: AtomicUsize::new(0),
    }
}; 64];

/// Returns what is remembered of a device. `None` for an ordinal that is beyond the list: its driver is asked each time.
pub(crate) fn known_device(ordinal: i32) -> Option<&'static KnownDevice> {
    DEVICES.get(usize::try_from(ordinal).ok()?)
}

impl Context {
    /// Notes that the primary context was reset: what was made in it before is gone.
    pub(crate) fn note_reset(self) {
        if let Some(device) = self.primary_ordinal().and_then(known_device) {
            device.resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Wraps a `CUcontext` that a library returned; `None` for null.
    ///
    /// # Safety
    ///
    /// The handle comes from the driver.
    #[must_use]
    pub unsafe fn from_raw(handle: usize) -> Option<Self> {
        Self::from_driver(handle)
    }

    /// Wraps a handle that the driver returned.
    pub(crate) fn from_driver(handle: usize) -> Option<Self> {
        NonZeroUsize::new(handle).map(Self)
    }

    /// Returns the `CUcontext`.
    #[must_use]
    pub const fn to_raw(self) -> NonZeroUsize {
        self.0
    }

    /// Returns the primary context of a device, in which every library on the CUDA runtime works. It is retained until
    /// the end of the program.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver, or for an ordinal that does not exist.
    pub fn primary(ordinal: i32) -> Result<Self> {
        Self::primary_of(driver()?, ordinal).map_err(|failure| {
            failure.expecting(format_args!("a device of this machine, not number {ordinal}"))
        })
    }

    pub(crate) fn primary_of(driver: &Driver, ordinal: i32) -> Outcome<Self> {
        let known = known_device(ordinal);
        let retained = known.and_then(|known| Self::from_driver(known.primary.load(Ordering::Relaxed)));
        if let Some(retained) = retained {
            return Ok(retained);
        }
        // The driver's ordinals are its device handles. Two threads may both retain the context, which does no harm.
        let mut context = 0;
        // SAFETY: any number may be queried; `context` is valid for a write.
        unsafe { driver.primary_retain(&raw mut context, ordinal) }?;
        let context =
            Self::from_driver(context).unwrap_or_else(|| unreachable!("a retained context is not null"));
        if let Some(known) = known {
            known.primary.store(context.0.get(), Ordering::Relaxed);
        }
        Ok(context)
    }

    /// Retains the primary context of a device until the end of the program, if it is in use.
    pub(crate) fn retain_primary(driver: &Driver, ordinal: i32) {
        let is_retained = |known: &KnownDevice| known.primary.load(Ordering::Relaxed) != 0;
        if !known_device(ordinal).is_some_and(is_retained) {
            // If this fails, the next export may succeed.
            let _ = Self::primary_in_use(driver, ordinal);
        }
    }

    /// Returns the primary context of a device if it is in use. Retaining one that is not would create it, which takes
    /// hundreds of megabytes.
    pub(crate) fn primary_in_use(driver: &Driver, ordinal: i32) -> Outcome<Option<Self>> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: any number may be queried; `flags` and `active` are valid for writes.
        unsafe { driver.primary_state(ordinal, &raw mut flags, &raw mut active) }?;
        if active == 0 { Ok(None) } else { Self::primary_of(driver, ordinal).map(Some) }
    }

    /// Returns the primary contexts in use, without those of devices on which no work can be left.
    pub(crate) fn all_in_use(driver: &Driver) -> Outcome<Vec<Self>> {
        let mut used = Vec::new();
        for ordinal in 0..driver.devices()? {
            match Self::primary_in_use(driver, ordinal) {
                Ok(context) => used.extend(context),
                Err(failure) if failure.is_final() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(used)
    }

    /// Returns the ordinal of the device whose primary context this is, if that context is retained.
    pub(crate) fn primary_ordinal(self) -> Option<i32> {
        let place = DEVICES.iter().position(|known| known.primary.load(Ordering::Relaxed) == self.0.get())?;
        i32::try_from(place).ok()
    }

    /// Returns the number that distinguishes the context from an earlier one with the same handle. `None` for a
    /// retained primary context, whose handle no other context had before.
    ///
    /// Drivers before 12.0 have no such number. There a context with the handle of an earlier one is taken for that
    /// one.
    pub(crate) fn number(self, driver: &Driver) -> Outcome<Option<u64>> {
        if self.primary_ordinal().is_some() {
            return Ok(None);
        }
        let mut number = 0;
        // SAFETY: the context comes from the driver, and the call fails if it was destroyed; `number` is valid for a
        // write.
        match unsafe { driver.context_id(self.0.get(), &raw mut number) } {
            Err(failure) if failure.code != code::NOT_FOUND => Err(context_destroyed(failure)),
            _ => Ok(Some(number)),
        }
    }

    /// Returns the context that is current on this thread.
    pub(crate) fn current(driver: &Driver) -> Outcome<Option<Self>> {
        let mut context = 0;
        // SAFETY: `context` is valid for a write.
        unsafe { driver.context_current(&raw mut context) }?;
        Ok(Self::from_driver(context))
    }

    /// Returns the ordinal of the device of the current context.
    pub(crate) fn current_ordinal(driver: &Driver) -> Outcome<i32> {
        let mut ordinal = 0;
        // SAFETY: `ordinal` is valid for a write.
        unsafe { driver.context_device(&raw mut ordinal) }?;
        Ok(ordinal)
    }

    /// Returns whether this context, which is current, belongs to a device. The driver is queried only for contexts
    /// that are not retained primary contexts.
    pub(crate) fn belongs_to_device(self, driver: &Driver, ordinal: i32) -> Outcome<bool> {
        if let Some(own) = self.primary_ordinal() {
            return Ok(own == ordinal);
        }
        let own = Self::current_ordinal(driver)?;
        // If it is the primary context, the next call needs no query.
        Self::retain_primary(driver, own);
        Ok(own == ordinal)
    }

    /// Makes the context current while the guard lives. Pushes nothing if it is already current.
    ///
    /// Fails for a context that was destroyed, which a query of its version detects. The driver would push such a
    /// context without an error, and the process would die when it is popped.
    pub(crate) fn enter(self, driver: &Driver) -> Outcome<Entered<'_>> {
        self.enter_from(driver, Self::current(driver)?)
    }

    /// As [`enter`](Self::enter), with the context that is current.
    pub(crate) fn enter_from(self, driver: &Driver, before: Option<Self>) -> Outcome<Entered<'_>> {
        if before != Some(self) {
            self.alive(driver)?;
            self.push(driver)?;
        }
        Ok(Entered { driver, context: self, before })
    }

    fn push(self, driver: &Driver) -> Outcome {
        // SAFETY: the context is alive.
        unsafe { driver.context_push(self.0.get()) }
    }

    /// Returns an error if the context was destroyed.
    fn alive(self, driver: &Driver) -> Outcome {
        let mut version = 0;
        // SAFETY: the context comes from the driver, and the call fails if it was destroyed; `version` is valid for a
        // write.
        unsafe { driver.context_version(self.0.get(), &raw mut version) }.map_err(context_destroyed)
    }
}

/// Gives the failure of a query about a destroyed context the code that other calls return for it.
fn context_destroyed(failure: DriverError) -> DriverError {
    match failure.code {
        code::INVALID_CONTEXT => DriverError { code: code::CONTEXT_IS_DESTROYED, ..failure },
        _ => failure,
    }
}

/// A context that is current until this is dropped. The one before it is the same, or another on which it was pushed.
pub(crate) struct Entered<'d> {
    driver: &'d Driver,
    context: Context,
    before: Option<Context>,
}

impl Entered<'_> {
    /// Returns the context that is current.
    #[cfg(feature = "python")]
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Restores the previous context after foreign code has run. That code may have made another context current
    /// (`cuCtxSetCurrent`), which replaces the thread's own context if nothing was pushed. It may also have destroyed
    /// the current context, which pops it (CUDA driver API, `cuCtxDestroy`): a second pop would take the thread's own
    /// context.
    pub(crate) fn leave(self) {
        let Self { driver, context, before } = self;
        let current = Context::current(driver);
        if current == Ok(Some(context)) {
            return;
        }
        let (pushed, context_destroyed) =
            (before != Some(context), context.alive(driver).is_err_and(DriverError::is_final));
        if pushed && context_destroyed && current == Ok(before) {
            core::mem::forget(self);
        } else if !pushed && !context_destroyed {
            if current.is_ok_and(|current| current.is_some()) {
                pop(driver);
            }
            // The context was current a moment ago and is alive.
            let _ = context.push(driver);
        }
    }
}

fn pop(driver: &Driver) {
    let mut popped = 0;
    // SAFETY: `popped` is valid for a write. The pop cannot fail after a push, and nothing could be done if it did.
    let _ = unsafe { driver.context_pop(&raw mut popped) };
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.before != Some(self.context) {
            pop(self.driver);
        }
    }
}

/// Sets the thread's capture mode to `RELAXED` until this is dropped. In this mode, freeing memory, and querying and
/// waiting for streams that capture nothing, does not invalidate a capture elsewhere.
pub(crate) struct Relaxed<'d> {
    driver: &'d Driver,
    /// `None` if the mode could not be set.
    before: Option<i32>,
}

const RELAXED: i32 = 2;

impl<'d> Relaxed<'d> {
    pub(crate) fn new(driver: &'d Driver) -> Self {
        let mut mode = RELAXED;
        // SAFETY: `mode` holds a mode and is valid for a write.
        let exchanged = unsafe { driver.exchange_capture_mode(&raw mut mode) };
        Self { driver, before: exchanged.is_ok().then_some(mode) }
    }
}

/// Sets the relaxed capture mode while another library allocates and frees. Does nothing without a driver.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn relaxed() -> Option<Relaxed<'static>> {
    driver().ok().map(Relaxed::new)
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = &mut self.before {
            // SAFETY: `before` holds the mode that the driver returned.
            let _ = unsafe { self.driver.exchange_capture_mode(before) };
        }
    }
}

/// A context, and what distinguishes it from an earlier one. The driver reuses the handle of a destroyed context and the
/// handles of what was made in it, which somebody else may have then. So what is kept is used only while the same context
/// has the handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownContext {
    pub(crate) context: Context,
    number: Option<u64>,
    /// The resets of the primary context until now. A driver that gets a handle from before a reset may end the process.
    resets: usize,
}

impl KnownContext {
    pub(crate) fn new(driver: &Driver, context: Context) -> Outcome<Self> {
        Ok(Self { context, number: context.number(driver)?, resets: Self::resets(context) })
    }

    fn resets(context: Context) -> usize {
        let known = context.primary_ordinal().and_then(known_device);
        known.map_or(0, |known| known.resets.load(Ordering::Acquire))
    }

    /// Returns whether the handle still belongs to this context. A primary context, as nearly all are, needs no query.
    pub(crate) fn is_there(self, driver: &Driver) -> bool {
        self.was_not_reset() && (self.number.is_none() || Self::new(driver, self.context) == Ok(self))
    }

    pub(crate) fn was_not_reset(self) -> bool {
        self.resets == Self::resets(self.context)
    }
}

/// The values, each with its context.
type ContextValues<T> = Vec<(KnownContext, T)>;

/// One value for each context, made at its first use there.
pub(crate) struct PerContext<T: Send + 'static>(PerProcess<Mutex<ContextValues<T>>>);

impl<T: Send> PerContext<T> {
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new(|_| Mutex::new(Vec::new())))
    }

    /// Locks the values.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ContextValues<T>> {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the value of a context, which is current. No other thread uses any of the values meanwhile. If `work`
    /// finds out about a reset and makes the value anew, it says so in the context.
    pub(crate) fn with<R>(
        &self,
        driver: &Driver,
        context: Context,
        make: impl FnOnce() -> Outcome<T>,
        work: impl FnOnce(&mut KnownContext, &mut T) -> R,
    ) -> Outcome<R> {
        let known = KnownContext::new(driver, context)?;
        // What earlier contexts with this handle had was destroyed.
        self.lock().retain(|(of, _)| of.context != known.context || *of == known);
        self.with_known(known, make, work)
    }

    /// As [`with`](Self::with), for a context that is known.
    pub(crate) fn with_known<R>(
        &self,
        known: KnownContext,
        make: impl FnOnce() -> Outcome<T>,
        work: impl FnOnce(&mut KnownContext, &mut T) -> R,
    ) -> Outcome<R> {
        let mut kept = self.lock();
        let found = kept.iter().position(|(of, _)| *of == known);
        let at = found.unwrap_or(kept.len());
        if found.is_none() {
            kept.push((known, make()?));
        }
        let (known, value) = &mut kept[at];
        Ok(work(known, value))
    }

    /// Forgets the value of a context. This is for a primary context that was reset, because it keeps its handle and
    /// its number.
    pub(crate) fn forget(&self, context: Context) {
        self.lock().retain(|(of, _)| of.context != context);
    }
}

/// Returns the context in which memory of a device is used: the current one if it belongs to that device, else the
/// primary one. For host memory without a current context, returns one that is in use.
pub(crate) fn context_for(driver: &Driver, device: Device) -> Result<Context> {
    match used_for(driver, Context::current(driver)?, device)? {
        Some(used) => Ok(used),
        None => Ok(contexts_in_use(driver)?[0]),
    }
}

/// Runs driver calls in a context, in the relaxed capture mode.
#[expect(clippy::missing_errors_doc, reason = "hidden: those of the calls")]
pub fn run_in<R>(context: Context, run: impl FnOnce(&'static Driver) -> Outcome<R>) -> Result<R> {
    let driver = driver()?;
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    Ok(run(driver)?)
}

/// Makes a context of the memory's device current while the guard lives, if another one is. Does nothing without a
/// driver, or for memory of no single device (host, pinned or managed).
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) for a device that does not exist.
#[cfg(feature = "python")]
pub(crate) fn enter_device_context(device: Device) -> Result<Option<Entered<'static>>> {
    if device.device_type != DeviceType::CUDA {
        return Ok(None);
    }
    let Ok(driver) = driver() else { return Ok(None) };
    let current = Context::current(driver)?;
    let used = used_for(driver, current, device)?;
    Ok(used.map(|used| used.enter_from(driver, current)).transpose()?)
}

/// Makes a context current while the guard lives.
#[cfg(feature = "cudarc")]
pub(crate) fn enter_context(context: Context) -> Option<Entered<'static>> {
    context.enter(driver().ok()?).ok()
}

/// Makes the primary context of a device current while the guard lives.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver, and for an ordinal that does not exist.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn enter_primary_context(ordinal: i32) -> Result<Entered<'static>> {
    Ok(Context::primary(ordinal)?.enter(driver()?)?)
}

/// Returns whether the default streams are those of `context`, for memory of `device` on this thread.
pub(crate) fn has_default_streams(context: Context, device: Device) -> bool {
    driver().is_ok_and(|driver| context_for(driver, device).is_ok_and(|used| used == context))
}

/// Returns the context in which memory of a device is used, while this one is current. `None` for host memory without a
/// current context.
pub(crate) fn used_for(driver: &Driver, current: Option<Context>, device: Device) -> Result<Option<Context>> {
    match current {
        _ if device.device_type != DeviceType::CUDA => Ok(current),
        Some(context) if context.belongs_to_device(driver, device.device_id)? => Ok(current),
        _ => Context::primary(device.device_id).map(Some),
    }
}

/// Returns the primary contexts in use, or that of device 0 if there are none. Creating one on a device that nobody
/// uses takes hundreds of megabytes, and no work is pending there.
pub(crate) fn contexts_in_use(driver: &Driver) -> Result<Vec<Context>> {
    let used = Context::all_in_use(driver)?;
    if used.is_empty() { Ok(vec![Context::primary(0)?]) } else { Ok(used) }
}
