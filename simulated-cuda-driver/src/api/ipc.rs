//! Functions for memory of `cuMemAlloc` that several processes use: the legacy handles of `cuIpc`.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::memory::Kind;
use crate::shared_memory::SharedMemory;
use crate::status::{Answer, Status};

/// `CUipcMemHandle` and `CUmemPoolPtrExportData`: a word that marks it, the process and its descriptor of the memory, and three words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryHandle([u8; 64]);

const MARK: u64 = 0x6d65_6d6f;

impl MemoryHandle {
    pub(super) fn new(memory: &SharedMemory, [first, second, third]: [u64; 3]) -> Self {
        let (process, fd) = memory.origin;
        let mut handle = [0; 64];
        let words = [MARK, process.into(), fd.into(), first, second, third];
        for (place, word) in handle.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Self(handle)
    }

    /// Returns the process and its descriptor, and the words.
    pub(super) fn read(&self) -> Answer<((u32, u32), [u64; 3])> {
        let word = |index: usize| {
            let bytes = std::array::from_fn(|at| self.0[8 * index + at]);
            u64::from_le_bytes(bytes)
        };
        let half = |index| u32::try_from(word(index)).map_err(|_| Status::INVALID_VALUE);
        if word(0) != MARK {
            return Err(Status::INVALID_VALUE);
        }
        Ok(((half(1)?, half(2)?), [word(3), word(4), word(5)]))
    }
}

/// The handle is that of the whole allocation, whatever address in it is given.
#[unsafe(no_mangle)]
extern "C" fn cuIpcGetMemHandle(out: Out<MemoryHandle>, address: u64) -> Code {
    call("cuIpcGetMemHandle", |sim| {
        sim.current()?;
        let (first, known) = sim.memory.find_live(address).ok_or(Status::INVALID_VALUE)?;
        let (bytes, device) = (known.bytes, known.device);
        if known.kind != Kind::Device || known.openings > 0 {
            return Err(Status::INVALID_VALUE);
        }
        // The bytes move to a file. A kernel or host function that runs meanwhile may have their address.
        while sim.queue.running.is_some() {
            sim.sleep();
        }
        let memory = sim.memory.share(first)?;
        sim.tell_openers(&memory, first, bytes);
        out.set(MemoryHandle::new(&memory, [bytes, device as u64, 0]))
    })
}

/// A handle that is already open has the same address again, and is counted.
#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenMemHandle_v2(out: Out<u64>, handle: MemoryHandle, _flags: u32) -> Code {
    call("cuIpcOpenMemHandle_v2", |sim| {
        let (context, _) = sim.current_owner()?;
        let (origin, [bytes, device, _]) = handle.read()?;
        let device = usize::try_from(device).map_err(|_| Status::INVALID_VALUE)?;
        if origin.0 == std::process::id() {
            return Err(Status::INVALID_CONTEXT);
        }
        if device >= sim.devices.len() {
            return Err(Status::INVALID_VALUE);
        }
        let address = if let Some(address) = sim.memory.opened(origin) {
            address
        } else {
            let memory = SharedMemory::open(origin, bytes)?;
            sim.memory.open(Kind::Device, memory, bytes, (context, device))?
        };
        let known = sim.memory.at(address).ok_or(Status::INVALID_VALUE)?;
        known.openings += 1;
        let memory = known.shared.clone().ok_or(Status::INVALID_VALUE)?;
        memory.count_opening(true);
        sim.learn_as_opener(&memory);
        out.set(address)
    })
}

/// Waits for the work of the device, as a free does. The last close of several unmaps the memory.
#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(address: u64) -> Code {
    call("cuIpcCloseMemHandle", |sim| {
        sim.current()?;
        let opened = sim.memory.at(address).filter(|known| known.openings > 0);
        let device = opened.ok_or(Status::INVALID_VALUE)?.device;
        let work = sim.work_of_device(device);
        sim.wait(&work);
        let Some(known) = sim.memory.at(address) else { return Ok(()) };
        known.openings -= 1;
        if let Some(memory) = &known.shared {
            memory.count_opening(false);
            // After all work of the process.
            memory.withdraw_uses();
        }
        if known.openings == 0 {
            sim.memory.free(address);
        }
        Ok(())
    })
}
