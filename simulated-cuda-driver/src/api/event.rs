//! Functions for events.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::handle::Handle;
use crate::happens_before::Before;
use crate::queue::{Operation, Work};
use crate::state::{Sim, Thing};
use crate::status::{Answer, Status};
use crate::stream::{DISABLE_TIMING, Event};

/// The duration of an operation, in milliseconds, as events measure it.
const OPERATION: f32 = 0.001;

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(out: Out<Handle>, flags: u32) -> Code {
    call("cuEventCreate", |sim| {
        let context = sim.current()?;
        // The flags are BLOCKING_SYNC, DISABLE_TIMING and INTERPROCESS. The last requires DISABLE_TIMING.
        if flags > 7 || (flags & 4 != 0 && flags & DISABLE_TIMING == 0) {
            return Err(Status::INVALID_VALUE);
        }
        let (event, made) = (sim.handle(Thing::Event), sim.fresh_handle());
        sim.lost_events.remove(&event);
        sim.events.insert(event, Event { made, ..Event::new(context, flags) });
        out.set(event)
    })
}

/// Destroys the event immediately. Stream waits that are already queued stay in effect.
#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Code {
    call("cuEventDestroy_v2", |sim| {
        sim.event(event, "cuEventDestroy_v2")?;
        sim.events.remove(&event);
        sim.reuse.leave(Thing::Event, event);
        Ok(())
    })
}

/// Records an event on a stream.
fn record(name: &'static str, event: Handle, stream: Handle, flags: u32) -> Code {
    call(name, |sim| {
        let handle = sim.stream(stream, name)?;
        // CU_EVENT_RECORD_EXTERNAL would add a graph node, which is not simulated.
        match flags {
            0 => sim.record(event, handle),
            1 => Err(Status::NOT_SUPPORTED),
            _ => Err(Status::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Code {
    record("cuEventRecord", event, stream, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) -> Code {
    record("cuEventRecordWithFlags", event, stream, flags)
}

/// Records an event after all work of a context, on every stream.
#[unsafe(no_mangle)]
extern "C" fn cuCtxRecordEvent(context: Handle, event: Handle) -> Code {
    call("cuCtxRecordEvent", |sim| {
        sim.context(context)?;
        if sim.event(event, "cuCtxRecordEvent")?.context != context {
            return Err(Status::INVALID_HANDLE);
        }
        sim.check_context_capture(context)?;
        if sim.is_lost("cuCtxRecordEvent") {
            sim.event(event, "cuCtxRecordEvent")?.renew(None);
            return Ok(());
        }
        let Before { operations: after, clock } = sim.work_of(|other| other == context);
        // The record comes after all streams, so the legacy default stream represents them all.
        let agent = sim.streams[&sim.context(context)?.legacy].agent;
        let step = sim.step_after(agent, "cuCtxRecordEvent", clock);
        let record = (step.moment.number, (*step.clock).clone());
        sim.queue.push(Operation { work: Work::Record(event), context, after, step });
        sim.event(event, "cuCtxRecordEvent")?.renew(Some(record));
        Ok(())
    })
}

/// Makes later work on every stream of a context wait for an event.
#[unsafe(no_mangle)]
extern "C" fn cuCtxWaitEvent(context: Handle, event: Handle) -> Code {
    call("cuCtxWaitEvent", |sim| {
        sim.context(context)?;
        sim.check_context_capture(context)?;
        sim.check_not_captured(event, "cuCtxWaitEvent")?;
        let streams = sim.streams.iter().filter(|(_, stream)| stream.context == context && !stream.dead);
        let streams: Vec<_> = streams.map(|(handle, _)| *handle).collect();
        streams.into_iter().try_for_each(|stream| sim.wait_event(stream, event))
    })
}

/// Returns what must end before an event query or synchronization succeeds.
fn latest(sim: &mut Sim, event: Handle, name: &str) -> Answer<Before> {
    sim.check_not_captured(event, name)?;
    sim.check_capture_mode()?;
    Ok(sim.event(event, name)?.before())
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> Code {
    call("cuEventQuery", |sim| {
        let record = latest(sim, event, "cuEventQuery")?;
        if sim.poll(&record) { Ok(()) } else { Err(Status::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Code {
    call("cuEventSynchronize", |sim| {
        let record = latest(sim, event, "cuEventSynchronize")?;
        sim.wait(&record);
        Ok(())
    })
}

/// Returns the time between two events. Time is counted in operations.
fn elapsed(name: &'static str, out: &Out<f32>, start: Handle, end: Handle) -> Code {
    call(name, |sim| {
        let mut times = [0; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let event = sim.event(event, name)?;
            if event.flags & DISABLE_TIMING != 0 || (event.last.is_none() && event.captured.is_none()) {
                return Err(Status::INVALID_HANDLE);
            }
            *time = event.reached.ok_or(Status::NOT_READY)?;
        }
        let [start, end] = times.map(|time| i64::try_from(time).unwrap_or(i64::MAX));
        let operations = i16::try_from(end - start).unwrap_or(i16::MAX);
        out.set(f32::from(operations) * OPERATION)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) -> Code {
    elapsed("cuEventElapsedTime", &out, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(out: Out<f32>, start: Handle, end: Handle) -> Code {
    elapsed("cuEventElapsedTime_v2", &out, start, end)
}
