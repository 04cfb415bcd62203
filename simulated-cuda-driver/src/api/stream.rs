//! Functions for streams.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::handle::Handle;
use crate::queue::{Callback, Work};
use crate::state::Thing;
use crate::status::{Answer, Status};
use crate::stream::{NON_BLOCKING, Sort, Stream};

/// Creates a stream in the current context.
fn create(name: &'static str, out: &Out<Handle>, flags: u32, priority: i32) -> Code {
    call(name, |sim| {
        let context = sim.current()?;
        if flags > NON_BLOCKING {
            return Err(Status::INVALID_VALUE);
        }
        let stream = Stream::new(context, flags, priority.clamp(-5, 0));
        out.set(sim.add_stream(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(out: Out<Handle>, flags: u32) -> Code {
    create("cuStreamCreate", &out, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> Code {
    create("cuStreamCreateWithPriority", &out, flags, priority)
}

/// Destroys the stream immediately. Its queued work still runs.
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Code {
    call("cuStreamDestroy_v2", |sim| {
        let handle = sim.stream(stream, "cuStreamDestroy_v2")?;
        let known = sim.streams.get_mut(&handle).filter(|known| !known.implicit);
        let known = known.ok_or(Status::INVALID_VALUE)?;
        known.dead = true;
        let capture = known.capture.take();
        sim.reuse.leave(Thing::Stream, handle);
        if let Some(capture) = capture {
            sim.spoil(capture, Status::CAPTURE_INVALIDATED);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    call("cuStreamSynchronize", |sim| {
        let handle = sim.stream(stream, "cuStreamSynchronize")?;
        sim.check_not_capturing(handle)?;
        sim.check_capture_mode()?;
        let work = sim.work_of_stream(handle);
        sim.wait(&work);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> Code {
    call("cuStreamQuery", |sim| {
        let handle = sim.stream(stream, "cuStreamQuery")?;
        sim.check_not_capturing(handle)?;
        sim.check_capture_mode()?;
        let work = sim.work_of_stream(handle);
        if sim.poll(&work) { Ok(()) } else { Err(Status::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> Code {
    call("cuStreamWaitEvent", |sim| {
        let handle = sim.stream(stream, "cuStreamWaitEvent")?;
        // CU_EVENT_WAIT_EXTERNAL would add a graph node, which is not simulated.
        match flags {
            0 if sim.is_lost("cuStreamWaitEvent") => Ok(()),
            0 => sim.wait_event(handle, event),
            1 => Err(Status::NOT_SUPPORTED),
            _ => Err(Status::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: Handle, out: Out<Handle>) -> Code {
    call("cuStreamGetCtx", |sim| {
        let handle = sim.stream(stream, "cuStreamGetCtx")?;
        out.set(sim.streams[&handle].context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetDevice(stream: Handle, out: Out<i32>) -> Code {
    call("cuStreamGetDevice", |sim| {
        let handle = sim.stream(stream, "cuStreamGetDevice")?;
        let device = sim.context(sim.streams[&handle].context)?.device;
        out.set(i32::try_from(device).unwrap_or(i32::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: Handle, out: Out<u32>) -> Code {
    call("cuStreamGetFlags", |sim| {
        let handle = sim.stream(stream, "cuStreamGetFlags")?;
        out.set(u32::from(sim.streams[&handle].sort == Sort::NonBlocking))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: Handle, out: Out<i32>) -> Code {
    call("cuStreamGetPriority", |sim| {
        let handle = sim.stream(stream, "cuStreamGetPriority")?;
        out.set(sim.streams[&handle].priority)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetId(stream: Handle, out: Out<u64>) -> Code {
    call("cuStreamGetId", |sim| {
        let handle = sim.stream(stream, "cuStreamGetId")?;
        out.set(handle >> 4)
    })
}

/// Returns the result of `cuStreamIsCapturing` (none, active or invalidated) and the capture's id.
fn capturing(sim: &mut crate::state::Sim, stream: Handle, function: &str) -> Answer<(i32, u64)> {
    let handle = sim.stream(stream, function)?;
    if sim.is_implicit(handle) {
        return Err(Status::CAPTURE_IMPLICIT);
    }
    let Some(id) = sim.streams[&handle].capture else { return Ok((0, 0)) };
    let invalid = sim.captures.get(&id).is_none_or(|capture| capture.invalid);
    Ok((if invalid { 2 } else { 1 }, id))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: Handle, status: Out<i32>) -> Code {
    call("cuStreamIsCapturing", |sim| status.set(capturing(sim, stream, "cuStreamIsCapturing")?.0))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo(stream: Handle, status: Out<i32>, id: Out<u64>) -> Code {
    call("cuStreamGetCaptureInfo", |sim| {
        let (state, capture) = capturing(sim, stream, "cuStreamGetCaptureInfo")?;
        status.set(state)?;
        id.set_if_wanted(capture);
        Ok(())
    })
}

/// The graph under capture and its nodes are not simulated: these outputs are set to 0.
#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    nodes: Out<Handle>,
    count: Out<usize>,
) -> Code {
    call("cuStreamGetCaptureInfo_v2", |sim| {
        let (state, capture) = capturing(sim, stream, "cuStreamGetCaptureInfo_v2")?;
        status.set(state)?;
        id.set_if_wanted(capture);
        graph.set_if_wanted(0);
        nodes.set_if_wanted(0);
        count.set_if_wanted(0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(u64)>, data: u64) -> Code {
    call("cuLaunchHostFunc", |sim| {
        let handle = sim.stream(stream, "cuLaunchHostFunc")?;
        let function = function.ok_or(Status::INVALID_VALUE)?;
        sim.submit(handle, Work::Host(Callback::Plain(function, data))).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamAddCallback(
    stream: Handle,
    function: Option<extern "C" fn(Handle, i32, u64)>,
    data: u64,
    _flags: u32,
) -> Code {
    call("cuStreamAddCallback", |sim| {
        let handle = sim.stream(stream, "cuStreamAddCallback")?;
        let function = function.ok_or(Status::INVALID_VALUE)?;
        if sim.streams[&handle].capture.is_some() {
            return Err(Status::CAPTURE_UNSUPPORTED);
        }
        sim.submit(handle, Work::Host(Callback::WithStream(function, stream, data))).map(drop)
    })
}
