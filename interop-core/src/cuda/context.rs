//! Contexts: made current for a few calls, and put back.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::driver::{Driver, Failure, Outcome, code, driver};
use crate::error::Result;

/// The handle of each device's primary context once that is kept, until then 0.
static PRIMARY_CONTEXTS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// A `CUcontext`. It is not owned: whoever has memory or a stream in it keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Context(NonZeroUsize);

impl Context {
    /// The context behind a `CUcontext` that a library handed out; `None` for null.
    ///
    /// # Safety
    ///
    /// The handle comes from the driver.
    #[must_use]
    pub unsafe fn from_raw(handle: usize) -> Option<Self> {
        Self::from_driver(handle)
    }

    /// A handle that the driver answered.
    pub(crate) fn from_driver(handle: usize) -> Option<Self> {
        NonZeroUsize::new(handle).map(Self)
    }

    /// The `CUcontext`.
    #[must_use]
    pub const fn to_raw(self) -> NonZeroUsize {
        self.0
    }

    /// The primary context of a device, which every library that uses the CUDA runtime works in. It is kept until the
    /// end of the program.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver, or for an ordinal that is none.
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
        // The driver's ordinals are its device handles. Two threads may both keep it, which is one time too many and no harm.
        let mut context = 0;
        // SAFETY: any number may be asked for; a place for a context.
        unsafe { driver.primary_retain(&raw mut context, ordinal) }?;
        let context =
            Self::from_driver(context).unwrap_or_else(|| unreachable!("a retained context is not null"));
        if let Some(place) = place {
            place.store(context.0.get(), Ordering::Relaxed);
        }
        Ok(context)
    }

    /// The device's place in `PRIMARY_CONTEXTS`; `None` for more devices than a machine has, which are asked for each time.
    fn primary_slot(ordinal: i32) -> Option<&'static AtomicUsize> {
        PRIMARY_CONTEXTS.get(usize::try_from(ordinal).ok()?)
    }

    /// Keeps the primary context of a device that is in use until the end of the program.
    pub(crate) fn retain_primary(driver: &Driver, ordinal: i32) {
        let is_retained = |place: &AtomicUsize| place.load(Ordering::Relaxed) != 0;
        if !Self::primary_slot(ordinal).is_some_and(is_retained) {
            // What cannot be kept now may be kept by the next export.
            let _ = Self::primary_in_use(driver, ordinal);
        }
    }

    /// The primary context of a device, if it is in use. To ask for one that is not would make it: hundreds of megabytes.
    pub(crate) fn primary_in_use(driver: &Driver, ordinal: i32) -> Outcome<Option<Self>> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: any number may be asked for; two places for numbers.
        unsafe { driver.primary_state(ordinal, &raw mut flags, &raw mut active) }?;
        if active == 0 { Ok(None) } else { Self::primary_of(driver, ordinal).map(Some) }
    }

    /// The primary contexts that are in use, without those of devices on which nothing can be at work any more.
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

    /// The ordinal of the device whose primary context this is, if that is kept.
    pub(crate) fn primary_ordinal(self) -> Option<i32> {
        let place =
            PRIMARY_CONTEXTS.iter().position(|retained| retained.load(Ordering::Relaxed) == self.0.get())?;
        i32::try_from(place).ok()
    }

    /// The number that tells the context from an earlier one that had its handle; `None` for a primary context that is kept,
    /// before which nobody had it.
    ///
    /// Before 12.0 there is no such number, and a context that has the handle of an earlier one is taken for it.
    pub(crate) fn number(self, driver: &Driver) -> Outcome<Option<u64>> {
        if self.primary_ordinal().is_some() {
            return Ok(None);
        }
        let mut number = 0;
        // SAFETY: a context from the driver, for which the call fails if it was destroyed; a place for a number.
        match unsafe { driver.context_id(self.0.get(), &raw mut number) } {
            Err(failure) if failure.code != code::NOT_FOUND => Err(context_destroyed(failure)),
            _ => Ok(Some(number)),
        }
    }

    /// The context that is current on this thread.
    pub(crate) fn current(driver: &Driver) -> Outcome<Option<Self>> {
        let mut context = 0;
        // SAFETY: a place for a context.
        unsafe { driver.context_current(&raw mut context) }?;
        Ok(Self::from_driver(context))
    }

    /// The ordinal of the device of the context that is current.
    pub(crate) fn current_ordinal(driver: &Driver) -> Outcome<i32> {
        let mut ordinal = 0;
        // SAFETY: a place for a number.
        unsafe { driver.context_device(&raw mut ordinal) }?;
        Ok(ordinal)
    }

    /// Whether this context, which is current, is of a device. The driver is asked about contexts that are not primary only.
    pub(crate) fn is_of_device(self, driver: &Driver, ordinal: i32) -> Outcome<bool> {
        if let Some(own) = self.primary_ordinal() {
            return Ok(own == ordinal);
        }
        let own = Self::current_ordinal(driver)?;
        // If it is the primary one, it is known next time.
        Self::retain_primary(driver, own);
        Ok(own == ordinal)
    }

    /// Makes the context current as long as the guard lives; nothing is pushed when it is already.
    ///
    /// One that was destroyed is an error, for which its version is asked: the driver pushes it as if nothing were the
    /// matter, and the process dies when it is popped.
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
        // SAFETY: a context that is alive.
        unsafe { driver.context_push(self.0.get()) }
    }

    /// An error for a context that was destroyed.
    fn alive(self, driver: &Driver) -> Outcome {
        let mut version = 0;
        // SAFETY: a context from the driver, for which the call fails if it was destroyed; a place for a number.
        unsafe { driver.context_version(self.0.get(), &raw mut version) }.map_err(context_destroyed)
    }
}

/// What the driver answers where it is asked about a context that was destroyed, by the name that it has elsewhere.
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

/// A context that is current, and what was before: the same, or another on which it was pushed.
struct Inside<'d> {
    driver: &'d Driver,
    context: Context,
    before: Option<Context>,
}

impl Entered<'_> {
    /// For a context that is current anyway.
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

    /// The context that is current.
    #[cfg(feature = "python")]
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Puts back what was current, where code of others has run meanwhile. It may have made another context current
    /// (`cuCtxSetCurrent`), in place of the thread's own if nothing was pushed. And to destroy a context that is current is to
    /// pop it (CUDA driver API, `cuCtxDestroy`): a second pop would take the thread's own.
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
            // It was current a moment ago, and lives.
            let _ = context.push(driver);
        }
    }
}

fn pop(driver: &Driver) {
    let mut popped = 0;
    // SAFETY: a place for a context. It cannot fail after a push, and there is nothing to be done if it does.
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

/// The thread's capture mode is `RELAXED` until this is dropped: freeing, querying and waiting on streams that capture
/// nothing do not spoil a capture that goes on elsewhere.
pub(crate) struct Relaxed<'d> {
    driver: &'d Driver,
    /// `None` where the mode could not be set.
    before: Option<i32>,
}

const RELAXED: i32 = 2;

impl<'d> Relaxed<'d> {
    pub(crate) fn new(driver: &'d Driver) -> Self {
        let mut mode = RELAXED;
        // SAFETY: a place with a mode.
        let exchanged = unsafe { driver.exchange_capture_mode(&raw mut mode) };
        Self { driver, before: exchanged.is_ok().then_some(mode) }
    }
}

/// The relaxed mode for what another library allocates and frees; nothing without a driver.
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) fn relaxed() -> Option<Relaxed<'static>> {
    driver().ok().map(Relaxed::new)
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = &mut self.before {
            // SAFETY: the place holds the mode that the driver answered.
            let _ = unsafe { self.driver.exchange_capture_mode(before) };
        }
    }
}
