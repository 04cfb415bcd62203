//! Contexts in which memory is used: those whose default streams are meant, and in which it is freed.

use crate::array::device::{Device, DeviceType};
use crate::cuda::context::{Context, Entered};
use crate::cuda::driver::{Driver, driver};
use crate::error::Result;

/// Calls `work` with a context that is current meanwhile: the one given, else that in which memory of a device is used.
/// Memory of the host is used in the one that is current; where none is, in any that is in use, and `work` is called with
/// one after the other.
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

/// The context in which memory of a device is used: the current one where it is of that device, else the primary one. For
/// memory of the host where none is current, one that is in use.
pub(crate) fn context_for(driver: &Driver, device: Device) -> Result<Context> {
    match used_for(driver, device)? {
        Some(used) => Ok(used.context()),
        None => Ok(contexts_in_use(driver)?[0]),
    }
}

/// Makes a context of the memory's device current as long as the guard lives, if another is. Without a driver, or for
/// host memory, there is nothing to do.
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

/// Makes the context of the memory at an address current as long as the guard lives, so that it can be freed.
#[cfg(feature = "cust")]
pub(crate) fn enter_context_of(address: usize) -> Option<Entered<'static>> {
    let driver = driver().ok()?;
    let attributes = crate::cuda::pointer::pointer_attributes(address).ok()??;
    attributes.home(driver).ok()?.enter(driver).ok()
}

/// Makes a context current as long as the guard lives.
#[cfg(feature = "cudarc")]
pub(crate) fn enter_context(context: Context) -> Option<Entered<'static>> {
    context.enter(driver().ok()?).ok()
}

/// Makes the primary context of a device current as long as the guard lives.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver, and for an ordinal that is none.
#[cfg(feature = "cudarc")]
pub(crate) fn enter_primary_context(ordinal: i32) -> Result<Entered<'static>> {
    Ok(Context::primary(ordinal)?.enter(driver()?)?)
}

/// Whether the default streams are those of a context, for memory of `device` on this thread.
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

/// `None` for memory of the host where no context is current.
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

/// The primary contexts in use. To make one on a device that nobody uses takes hundreds of megabytes, and no work is there.
fn contexts_in_use(driver: &Driver) -> Result<Vec<Context>> {
    let used = Context::all_in_use(driver)?;
    if used.is_empty() { Ok(vec![Context::primary(0)?]) } else { Ok(used) }
}
