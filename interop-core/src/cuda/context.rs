//! Driver contexts: making one current for a few calls, and which one memory is used in.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::device::{Device, DeviceType};
use crate::cuda::driver::{Driver, Failure, Outcome, code, driver};
use crate::error::Result;
use crate::process::fork::PerProcess;

/// The handle of each device's primary context once it is retained; 0 before that.
static PRIMARY_CONTEXTS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// A `CUcontext`. It is not owned: the owners of memory and streams in it keep it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Context(NonZeroUsize);

/// How often the primary context of each device was reset, as far as this crate has found out.
static RESETS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

impl Context {
    /// Notes that the primary context was reset: what was made in it before is gone.
    pub(crate) fn note_reset(self) {
        if let Some(resets) = self.resets_of() {
            resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The number of resets that this crate has found out.
    pub(crate) fn resets(self) -> usize {
        self.resets_of().map_or(0, |resets| resets.load(Ordering::Acquire))
    }

    fn resets_of(self) -> Option<&'static AtomicUsize> {
        RESETS.get(usize::try_from(self.primary_ordinal()?).ok()?)
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
        let place = Self::primary_slot(ordinal);
        if let Some(retained) = place.and_then(|place| Self::from_driver(place.load(Ordering::Relaxed))) {
            return Ok(retained);
        }
        // The driver's ordinals are its device handles. Two threads may both retain the context, which does no harm.
        let mut context = 0;
        // SAFETY: any number may be queried; `context` is valid for a write.
        unsafe { driver.primary_retain(&raw mut context, ordinal) }?;
        let context =
            Self::from_driver(context).unwrap_or_else(|| unreachable!("a retained context is not null"));
        if let Some(place) = place {
            place.store(context.0.get(), Ordering::Relaxed);
        }
        Ok(context)
    }

    /// Returns the device's entry in `PRIMARY_CONTEXTS`. `None` for an ordinal beyond it, whose context is queried each
    /// time.
    fn primary_slot(ordinal: i32) -> Option<&'static AtomicUsize> {
        PRIMARY_CONTEXTS.get(usize::try_from(ordinal).ok()?)
    }

    /// Retains the primary context of a device until the end of the program, if it is in use.
    pub(crate) fn retain_primary(driver: &Driver, ordinal: i32) {
        let is_retained = |place: &AtomicUsize| place.load(Ordering::Relaxed) != 0;
        if !Self::primary_slot(ordinal).is_some_and(is_retained) {
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
        let place =
            PRIMARY_CONTEXTS.iter().position(|retained| retained.load(Ordering::Relaxed) == self.0.get())?;
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
    pub(crate) fn is_of_device(self, driver: &Driver, ordinal: i32) -> Outcome<bool> {
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
        let before = Self::current(driver)?;
        if before != Some(self) {
            self.alive(driver)?;
            self.push(driver)?;
        }
        Ok(Entered {
            #[cfg(feature = "python")]
            context: self,
            inside: Some(Inside { driver, context: self, before }),
        })
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
fn context_destroyed(failure: Failure) -> Failure {
    match failure.code {
        code::INVALID_CONTEXT => Failure { code: code::CONTEXT_IS_DESTROYED, ..failure },
        _ => failure,
    }
}

/// A context that is current until this is dropped.
pub(crate) struct Entered<'d> {
    #[cfg(feature = "python")]
    context: Context,
    inside: Option<Inside<'d>>,
}

/// A context that is current, and the one before it: the same, or another on which it was pushed.
struct Inside<'d> {
    driver: &'d Driver,
    context: Context,
    before: Option<Context>,
}

impl Entered<'_> {
    /// Creates a guard for a context that is already current.
    #[cfg_attr(
        not(feature = "python"),
        expect(unused_variables, reason = "only Python asks for the context")
    )]
    pub(crate) const fn unchanged(context: Context) -> Self {
        Self {
            #[cfg(feature = "python")]
            context,
            inside: None,
        }
    }

    /// Returns the context that is current.
    #[cfg(feature = "python")]
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Restores the previous context after foreign code has run. That code may have made another context current
    /// (`cuCtxSetCurrent`), which replaces the thread's own context if nothing was pushed. It may also have destroyed
    /// the current context, which pops it (CUDA driver API, `cuCtxDestroy`): a second pop would take the thread's own
    /// context.
    pub(crate) fn leave(mut self) {
        let Some(Inside { driver, context, before }) = &self.inside else { return };
        let current = Context::current(driver);
        if current == Ok(Some(*context)) {
            return;
        }
        let (pushed, context_destroyed) =
            (*before != Some(*context), context.alive(driver).is_err_and(Failure::is_final));
        if pushed && context_destroyed && current == Ok(*before) {
            self.inside = None;
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
        if let Some(Inside { driver, context, before }) = self.inside {
            if before != Some(context) {
                pop(driver);
            }
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
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
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

/// The values, each with its context and the number that distinguishes the context from an earlier one with the same
/// handle.
type Kept<T> = Vec<(Context, Option<u64>, T)>;

/// One value for each context, made at its first use there.
///
/// What a value refers to is destroyed with its context. The driver reuses the handle of a destroyed context, so a
/// value is used only while the same context has the handle.
pub(crate) struct PerContext<T: Send + 'static>(PerProcess<Mutex<Kept<T>>>);

impl<T: Send> PerContext<T> {
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new(|_| Mutex::new(Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the value of a context, which is current. No other thread uses any of the values meanwhile.
    pub(crate) fn with<R>(
        &self,
        driver: &Driver,
        context: Context,
        make: impl FnOnce() -> Outcome<T>,
        work: impl FnOnce(&mut T) -> R,
    ) -> Outcome<R> {
        let number = context.number(driver)?;
        let mut kept = self.lock();
        kept.retain(|(of, earlier, _)| *of != context || *earlier == number);
        let known = kept.iter().position(|(of, ..)| *of == context);
        let at = if let Some(at) = known {
            at
        } else {
            kept.push((context, number, make()?));
            kept.len() - 1
        };
        Ok(work(&mut kept[at].2))
    }

    /// Forgets the value of a context. This is for a primary context that was reset, because it keeps its handle and
    /// its number.
    pub(crate) fn forget(&self, context: Context) {
        self.lock().retain(|(of, ..)| *of != context);
    }
}

/// Calls `work` with a context current: the given one, else the one in which memory of a device is used. For host
/// memory, pinned or managed, that is the current context. If none is current, calls `work` for each primary context in
/// use, one after the other.
pub(crate) fn with_each_context(
    driver: &Driver,
    device: Device,
    context: Option<Context>,
    mut work: impl FnMut(Context) -> Result<()>,
) -> Result<()> {
    let used = match context {
        Some(context) => Some(Used::Other(context)),
        None => used_for(driver, device)?,
    };
    if let Some(used) = used {
        let _entered = used.enter(driver)?;
        return work(used.context());
    }
    for context in contexts_in_use(driver)? {
        let _entered = context.enter(driver)?;
        work(context)?;
    }
    Ok(())
}

/// Returns the context in which memory of a device is used: the current one if it belongs to that device, else the
/// primary one. For host memory without a current context, returns one that is in use.
pub(crate) fn context_for(driver: &Driver, device: Device) -> Result<Context> {
    match used_for(driver, device)? {
        Some(used) => Ok(used.context()),
        None => Ok(contexts_in_use(driver)?[0]),
    }
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
    used_for(driver, device)?.map(|used| used.enter(driver)).transpose()
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

/// A context in which memory is used.
#[derive(Clone, Copy)]
enum Used {
    Current(Context),
    Other(Context),
}

impl Used {
    fn context(self) -> Context {
        let (Self::Current(context) | Self::Other(context)) = self;
        context
    }

    fn enter(self, driver: &Driver) -> Result<Entered<'_>> {
        match self {
            Self::Current(context) => Ok(Entered::unchanged(context)),
            Self::Other(context) => Ok(context.enter(driver)?),
        }
    }
}

/// Returns the context in which memory of a device is used. `None` for host memory without a current context.
fn used_for(driver: &Driver, device: Device) -> Result<Option<Used>> {
    let current = Context::current(driver)?;
    if device.device_type != DeviceType::CUDA {
        return Ok(current.map(Used::Current));
    }
    match current {
        Some(context) if context.is_of_device(driver, device.device_id)? => Ok(Some(Used::Current(context))),
        _ => Ok(Some(Used::Other(Context::primary(device.device_id)?))),
    }
}

/// Returns the primary contexts in use, or that of device 0 if there are none. Creating one on a device that nobody
/// uses takes hundreds of megabytes, and no work is pending there.
fn contexts_in_use(driver: &Driver) -> Result<Vec<Context>> {
    let used = Context::all_in_use(driver)?;
    if used.is_empty() { Ok(vec![Context::primary(0)?]) } else { Ok(used) }
}
