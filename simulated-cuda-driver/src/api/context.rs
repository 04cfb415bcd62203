//! Functions for contexts and the current context.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::context::{PUSHED_DEAD, current_handle, with_stack};
use crate::handle::Handle;
use crate::state::Sim;
use crate::status::{Answer, Status};
use crate::stream::die;

/// The API version of every context.
const API_VERSION: u32 = 3020;

/// Creates a context on a device and makes it current.
fn create(sim: &mut Sim, out: &Out<Handle>, flags: u32, device: i32) -> Answer {
    let (index, _) = sim.device(device)?;
    if out.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let context = sim.create_context(index, flags);
    with_stack(|stack| stack.push(context));
    out.set(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(out: Out<Handle>, flags: u32, device: i32) -> Code {
    call("cuCtxCreate_v2", |sim| create(sim, &out, flags, device))
}

/// The affinity parameters of version 3 are accepted and ignored.
#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v3(out: Out<Handle>, _affinity: u64, _count: i32, flags: u32, device: i32) -> Code {
    call("cuCtxCreate_v3", |sim| create(sim, &out, flags, device))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v4(out: Out<Handle>, _parameters: u64, flags: u32, device: i32) -> Code {
    call("cuCtxCreate_v4", |sim| create(sim, &out, flags, device))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> Code {
    call("cuCtxDestroy_v2", |sim| {
        sim.context(context)?;
        if sim.devices.iter().any(|device| device.primary == Some(context)) {
            return Err(Status::INVALID_CONTEXT);
        }
        sim.destroy_context(context);
        with_stack(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        Ok(())
    })
}

/// Pushes a destroyed context without an error, as the real driver does.
#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> Code {
    call("cuCtxPushCurrent_v2", |sim| {
        let pushed = match sim.context(context) {
            Err(Status::CONTEXT_IS_DESTROYED) => context | PUSHED_DEAD,
            known => known.map(|_| context)?,
        };
        with_stack(|stack| stack.push(pushed));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(out: Out<Handle>) -> Code {
    call("cuCtxPopCurrent_v2", |_| {
        let context = with_stack(Vec::pop).ok_or(Status::INVALID_CONTEXT)?;
        if context & PUSHED_DEAD != 0 {
            die("cuCtxPopCurrent_v2", context, "the context was destroyed before it was pushed");
        }
        out.set_if_wanted(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> Code {
    call("cuCtxSetCurrent", |sim| {
        if context != 0 {
            sim.context(context)?;
        }
        with_stack(|stack| {
            stack.pop();
            stack.extend((context != 0).then_some(context));
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(out: Out<Handle>) -> Code {
    call("cuCtxGetCurrent", |_| out.set(current_handle()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(out: Out<i32>) -> Code {
    call("cuCtxGetDevice", |sim| {
        let (_, device) = sim.current_owner()?;
        out.set(i32::try_from(device).unwrap_or(i32::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(out: Out<u32>) -> Code {
    call("cuCtxGetFlags", |sim| out.set(sim.context(current_handle())?.flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(flags: u32) -> Code {
    call("cuCtxSetFlags", |sim| {
        let current = sim.current()?;
        sim.contexts.get_mut(&current).ok_or(Status::INVALID_CONTEXT)?.flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetId(context: Handle, out: Out<u64>) -> Code {
    call("cuCtxGetId", |sim| {
        let context = if context == 0 { current_handle() } else { context };
        out.set(sim.context(context)?.id)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(context: Handle, out: Out<u32>) -> Code {
    call("cuCtxGetApiVersion", |sim| {
        let context = if context == 0 { current_handle() } else { context };
        sim.context(context).map_err(|_| Status::INVALID_CONTEXT)?;
        out.set(API_VERSION)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Code {
    call("cuCtxGetStreamPriorityRange", |sim| {
        sim.current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    call("cuCtxSynchronize", |sim| {
        let context = sim.current()?;
        sim.check_context_capture(context)?;
        let work = sim.work_of(|other| other == context);
        sim.wait(&work);
        Ok(())
    })
}

/// Limits, cache and shared-memory bank settings are hints. They are accepted and change nothing.
#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(_limit: i32, _value: usize) -> Code {
    call("cuCtxSetLimit", |sim| sim.current().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetLimit(out: Out<usize>, _limit: i32) -> Code {
    call("cuCtxGetLimit", |sim| {
        sim.current()?;
        out.set(1024)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCacheConfig(_config: i32) -> Code {
    call("cuCtxSetCacheConfig", |sim| sim.current().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCacheConfig(out: Out<i32>) -> Code {
    call("cuCtxGetCacheConfig", |sim| {
        sim.current()?;
        out.set(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(context: Handle, _flags: u32) -> Code {
    call("cuCtxEnablePeerAccess", |sim| sim.context(context).map(drop))
}
