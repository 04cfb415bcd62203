//! The contexts in which memory is used: the default streams are theirs, and the memory is freed in them.

use crate::array::device::{Device, DeviceType};
use crate::cuda::context::{Context, Entered};
use crate::cuda::driver::{Driver, driver};
use crate::error::Result;

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

/// Makes the context of the memory at an address current while the guard lives, so that the memory can be freed.
#[cfg(feature = "cust")]
pub(crate) fn enter_context_of(address: usize) -> Option<Entered<'static>> {
    let driver = driver().ok()?;
    let attributes = crate::cuda::pointer::pointer_attributes(address).ok()??;
    attributes.home(driver).ok()?.enter(driver).ok()
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
