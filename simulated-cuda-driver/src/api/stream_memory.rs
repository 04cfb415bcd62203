//! Stream memory operations: a stream writes a number, or waits for one.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, call};
use crate::handle::Handle;
use crate::queue::{Comparison, Work};
use crate::state::Sim;
use crate::status::{Answer, Status};

/// Returns the stream, and the host's address of a number, which must be in memory that the host and devices use.
fn check(sim: &mut Sim, stream: Handle, address: u64, function: &str) -> Answer<(Handle, u64)> {
    let stream = sim.stream(stream, function)?;
    if !sim.has_numbers {
        return Err(Status::NOT_SUPPORTED);
    }
    if sim.streams[&stream].capture.is_some() {
        // Nodes of graphs that write or await numbers are not simulated.
        return Err(Status::NOT_SUPPORTED);
    }
    if address % 8 != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let (_, known) = sim.memory.find_live(address).ok_or(Status::INVALID_VALUE)?;
    if !known.on_host() {
        // Numbers in device memory are not simulated.
        return Err(Status::NOT_SUPPORTED);
    }
    let address = sim.memory.on_host(address);
    sim.share_with_others();
    sim.others.clock_of_number(address)?;
    Ok((stream, address))
}

/// With `CU_STREAM_WRITE_VALUE_DEFAULT`: everything before it on the stream is visible to who sees the number.
#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue64_v2(stream: Handle, address: u64, number: u64, flags: u32) -> Code {
    call("cuStreamWriteValue64_v2", |sim| {
        let (stream, address) = check(sim, stream, address, "cuStreamWriteValue64_v2")?;
        if flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        sim.submit(stream, Work::WriteNumber { address, number }).map(drop)
    })
}

/// `CU_STREAM_WAIT_VALUE_FLUSH` is not simulated.
#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitValue64_v2(stream: Handle, address: u64, number: u64, flags: u32) -> Code {
    call("cuStreamWaitValue64_v2", |sim| {
        let (stream, address) = check(sim, stream, address, "cuStreamWaitValue64_v2")?;
        let comparison = match flags {
            0 => Comparison::GreaterOrEqual,
            1 => Comparison::Equal,
            2 => Comparison::And,
            3 => Comparison::Nor,
            _ => return Err(Status::NOT_SUPPORTED),
        };
        sim.submit(stream, Work::WaitForNumber { address, comparison, number }).map(drop)
    })
}
