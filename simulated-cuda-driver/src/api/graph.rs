//! Functions for stream capture and for captured graphs.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::capture::{RELAXED, exchange_mode};
use crate::handle::Handle;
use crate::state::State;
use crate::status::{Answer, Status};

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> Code {
    call("cuStreamBeginCapture_v2", |sim| {
        let handle = sim.stream(stream, "cuStreamBeginCapture_v2")?;
        sim.begin_capture(handle, mode)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: Handle, out: Out<Handle>) -> Code {
    call("cuStreamEndCapture", |sim| {
        let handle = sim.stream(stream, "cuStreamEndCapture")?;
        out.set(0)?;
        out.set(sim.end_capture(handle)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Code {
    call("cuThreadExchangeStreamCaptureMode", |_| {
        let wanted = mode.get()?;
        if wanted > RELAXED {
            return Err(Status::INVALID_VALUE);
        }
        mode.set(exchange_mode(wanted))
    })
}

/// Creates an executable graph, which is a copy of the graph.
fn instantiate(state: &mut State, out: &Out<Handle>, graph: Handle) -> Answer {
    let copy = state.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?.clone();
    let handle = state.fresh_handle();
    state.graphs.insert(handle, copy);
    out.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) -> Code {
    // AUTO_FREE_ON_LAUNCH and DEVICE_LAUNCH exclude each other. There are four flags.
    if flags & 0b101 == 0b101 || flags > 0b1111 {
        return call("cuGraphInstantiateWithFlags", |_| Err(Status::INVALID_VALUE));
    }
    call("cuGraphInstantiateWithFlags", |sim| instantiate(sim, &out, graph))
}

/// The error node and the log buffer are not written, because a captured graph cannot fail here.
#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiate_v2(
    out: Out<Handle>,
    graph: Handle,
    _node: u64,
    _log: u64,
    _room: usize,
) -> Code {
    call("cuGraphInstantiate_v2", |sim| instantiate(sim, &out, graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: Handle, stream: Handle) -> Code {
    call("cuGraphLaunch", |sim| {
        let handle = sim.stream(stream, "cuGraphLaunch")?;
        sim.launch_graph(graph, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(graph: Handle, _stream: Handle) -> Code {
    call("cuGraphUpload", |sim| sim.graphs.get(&graph).map(drop).ok_or(Status::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> Code {
    call("cuGraphDestroy", |sim| sim.graphs.remove(&graph).map(drop).ok_or(Status::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(graph: Handle) -> Code {
    call("cuGraphExecDestroy", |sim| sim.graphs.remove(&graph).map(drop).ok_or(Status::INVALID_VALUE))
}

/// Returns the number of nodes. The nodes themselves are not simulated.
#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> Code {
    call("cuGraphGetNodes", |sim| {
        if !nodes.is_null() {
            return Err(Status::NOT_SUPPORTED);
        }
        count.set(sim.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?.nodes.len())
    })
}
