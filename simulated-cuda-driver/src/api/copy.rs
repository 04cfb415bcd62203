//! Functions that copy and set memory.

#![allow(unsafe_code, reason = "the names are exported, and host memory is read when a copy is queued")]

use std::slice;

use crate::api_call::{Code, call};
use crate::handle::Handle;
use crate::memory::Life;
use crate::queue::{Place, Work};
use crate::state::{Sim, State};
use crate::status::{Answer, Status};

/// Returns the memory at an address: known to the driver, or other host memory.
fn place(state: &State, address: u64, bytes: u64) -> Answer<Place> {
    match state.memory.find(address) {
        None if address == 0 => Err(Status::INVALID_VALUE),
        None => Ok(Place::Host(address)),
        Some((_, known)) if known.life == Life::Freed => Err(Status::INVALID_VALUE),
        Some((first, known)) if bytes > known.bytes - (address - first) => Err(Status::INVALID_VALUE),
        Some(_) => Ok(Place::Cuda(address)),
    }
}

/// Returns the memory at an address that a device must be able to access.
pub(super) fn on_device(state: &State, address: u64, bytes: u64) -> Answer<Place> {
    match place(state, address, bytes)? {
        Place::Cuda(address) if state.memory.on_devices(address) == address => Ok(Place::Cuda(address)),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Checks that devices may write to an address.
fn check_writable(state: &State, address: u64, bytes: u64) -> Answer {
    let is_read_only = state.memory.mapped.is_read_only(address..address.saturating_add(bytes));
    if is_read_only { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

/// The two ends of a copy.
struct Copy {
    to: Place,
    from: Place,
    bytes: u64,
}

impl Copy {
    /// Checks both ends. `device` states for each end whether it must be device memory.
    fn new(state: &State, to: u64, from: u64, bytes: usize, device: [bool; 2]) -> Answer<Self> {
        let bytes = bytes as u64;
        let check = |address, device| if device { on_device } else { place }(state, address, bytes);
        check_writable(state, to, bytes)?;
        Ok(Self { to: check(to, device[0])?, from: check(from, device[1])?, bytes })
    }

    /// Queues the copy on a stream.
    ///
    /// As in the real driver, a source in unknown host memory is read now, and a target in it is written before the
    /// call returns.
    fn submit(mut self, sim: &mut Sim, stream: Handle) -> Answer {
        let captures = sim.streams[&stream].capture.is_some();
        if let (Place::Host(address), false) = (&self.from, captures) {
            let count = usize::try_from(self.bytes).map_err(|_| Status::INVALID_VALUE)?;
            let source = std::ptr::with_exposed_provenance::<u8>(*address as usize);
            // SAFETY: the caller of the copy promises that `bytes` bytes are readable there during the call.
            let source = unsafe { slice::from_raw_parts(source, count) };
            self.from = Place::Staged(source.into());
        }
        let waits = matches!(self.to, Place::Host(_));
        let Self { to, from, bytes } = self;
        let queued = sim.submit(stream, Work::Copy { to, from, bytes })?;
        if queued.is_some() && waits {
            let work = sim.after_all_of([&sim.streams[&stream]]);
            sim.wait(&work);
        }
        Ok(())
    }
}

/// Implements an asynchronous copy; `ends` and `device` are as for [`Copy::new`].
fn asynchronous(name: &'static str, ends: [u64; 2], device: [bool; 2], bytes: usize, stream: Handle) -> Code {
    call(name, |sim| {
        sim.current()?;
        let stream = sim.stream(stream, name)?;
        if bytes == 0 {
            return Ok(());
        }
        Copy::new(sim, ends[0], ends[1], bytes, device)?.submit(sim, stream)
    })
}

/// Implements a copy on the legacy default stream. The host waits for it, unless both ends are device memory.
fn synchronous(name: &'static str, ends: [u64; 2], device: [bool; 2], bytes: usize) -> Code {
    call(name, |sim| {
        let stream = sim.stream(0, name)?;
        sim.check_capture_mode()?;
        if bytes == 0 {
            return Ok(());
        }
        let copy = Copy::new(sim, ends[0], ends[1], bytes, device)?;
        let on_host = [ends[0], ends[1]]
            .iter()
            .any(|end| sim.memory.find_live(*end).is_none_or(|(_, known)| known.on_host()));
        copy.submit(sim, stream)?;
        if on_host {
            let work = sim.work_of_stream(stream);
            sim.wait(&work);
        }
        Ok(())
    })
}

/// Declares the copies that take two addresses and a size.
macro_rules! copies {
    ($($name:ident $with_stream:ident $device:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(to: u64, from: u64, bytes: usize) -> Code {
            synchronous(stringify!($name), [to, from], $device, bytes)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $with_stream(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
            asynchronous(stringify!($with_stream), [to, from], $device, bytes, stream)
        }
    )*};
}

copies! {
    cuMemcpy cuMemcpyAsync [false, false];
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 [true, false];
    cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2 [false, true];
    cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 [true, true];
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Code {
    asynchronous("cuMemcpyPeerAsync", [to, from], [true, true], bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeer(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    bytes: usize,
) -> Code {
    synchronous("cuMemcpyPeer", [to, from], [true, true], bytes)
}

/// Queues a set of `count` elements of `width` bytes, on the legacy default stream if `stream` is `None`.
///
/// The host waits only without a stream, and only for memory that it can access.
fn set(
    name: &'static str,
    to: u64,
    (pattern, width): (u32, u8),
    count: usize,
    stream: Option<Handle>,
) -> Code {
    call(name, |sim| {
        sim.current()?;
        let handle = sim.stream(stream.unwrap_or(0), name)?;
        if stream.is_none() {
            sim.check_capture_mode()?;
        }
        let bytes = (count as u64).checked_mul(width.into()).ok_or(Status::INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(());
        }
        on_device(sim, to, bytes)?;
        check_writable(sim, to, bytes)?;
        if to % u64::from(width) != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let queued = sim.submit(handle, Work::Set { to, pattern: pattern.to_le_bytes(), width, bytes })?;
        let on_host = sim.memory.find_live(to).is_some_and(|(_, known)| known.on_host());
        if queued.is_some() && stream.is_none() && on_host {
            let work = sim.work_of_stream(handle);
            sim.wait(&work);
        }
        Ok(())
    })
}

/// Declares the sets of one element size.
macro_rules! sets {
    ($($name:ident $with_stream:ident $element:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(to: u64, value: $element, count: usize) -> Code {
            set(stringify!($name), to, (value.into(), size_of::<$element>() as u8), count, None)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $with_stream(to: u64, value: $element, count: usize, stream: Handle) -> Code {
            set(stringify!($with_stream), to, (value.into(), size_of::<$element>() as u8), count, Some(stream))
        }
    )*};
}

sets! {
    cuMemsetD8_v2 cuMemsetD8Async u8;
    cuMemsetD16_v2 cuMemsetD16Async u16;
    cuMemsetD32_v2 cuMemsetD32Async u32;
}

/// Checks the address of a hint. Hints change nothing here.
fn hint(name: &'static str, address: u64, bytes: usize) -> Code {
    call(name, |sim| on_device(sim, address, bytes as u64).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync(address: u64, bytes: usize, _device: i32, _stream: Handle) -> Code {
    hint("cuMemPrefetchAsync", address, bytes)
}

/// The location is a struct of two integers, which is passed in one register.
#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync_v2(
    address: u64,
    bytes: usize,
    _location: u64,
    _flags: u32,
    _stream: Handle,
) -> Code {
    hint("cuMemPrefetchAsync_v2", address, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise(address: u64, bytes: usize, _advice: i32, _device: i32) -> Code {
    hint("cuMemAdvise", address, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise_v2(address: u64, bytes: usize, _advice: i32, _location: u64) -> Code {
    hint("cuMemAdvise_v2", address, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamAttachMemAsync(_stream: Handle, address: u64, bytes: usize, _flags: u32) -> Code {
    hint("cuStreamAttachMemAsync", address, bytes)
}
