//! Functions that query pointers.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, In, Out, call};
use crate::memory::Kind;
use crate::state::State;
use crate::status::{Answer, Status};

use super::pool::pool_of;

/// The value of a pointer attribute, in the size that the driver writes.
enum Value {
    Word(u64),
    Half(u32),
}

/// Returns the attribute `number` of `CUpointer_attribute` for an address.
///
/// An address that the driver does not know is an invalid argument, and so is an attribute that its memory does not
/// have.
fn attribute(state: &State, number: i32, address: u64) -> Answer<Value> {
    let (first, known) = state.memory.find_live(address).ok_or(Status::INVALID_VALUE)?;
    let flag = |yes: bool| Ok(Value::Half(yes.into()));
    let piece = state.memory.mapped.piece(address);
    let device = piece.map_or(known.device, |(_, piece)| piece.device);
    match number {
        // CONTEXT.
        1 => Ok(Value::Word(if known.kind.is_of_no_context() { 0 } else { known.context })),
        // MEMORY_TYPE: host or device. Managed memory counts as device memory.
        2 => Ok(Value::Half(if known.kind.is_pinned() { 1 } else { 2 })),
        // DEVICE_POINTER for the current context: there is no peer access, so memory of another device has none.
        3 if known.kind.is_hidden() && state.current_owner().is_ok_and(|(_, own)| own != device) => {
            Err(Status::INVALID_VALUE)
        }
        3 => Ok(Value::Word(state.memory.on_devices(address))),
        // HOST_POINTER.
        4 if known.on_host() => Ok(Value::Word(state.memory.on_host(address))),
        // BUFFER_ID.
        7 => Ok(Value::Word(known.id)),
        // IS_MANAGED.
        8 => flag(known.kind == Kind::Managed),
        // DEVICE_ORDINAL.
        9 => Ok(Value::Half(u32::try_from(device).unwrap_or(u32::MAX))),
        // RANGE_START_ADDR, RANGE_SIZE, MAPPED. For a host pool the real driver returns a start within the pool.
        11 if known.kind == Kind::HostPool => Ok(Value::Word(512 * known.id)),
        11 => Ok(Value::Word(first)),
        12 => Ok(Value::Word(known.bytes)),
        13 => flag(true),
        // IS_LEGACY_CUDA_IPC_CAPABLE.
        10 => flag(known.kind == Kind::Device && known.openings == 0),
        // SYNC_MEMOPS, and access by other devices: not simulated.
        6 | 15 => flag(false),
        // ACCESS_FLAGS: read and write.
        16 => Ok(Value::Half(3)),
        // ALLOWED_HANDLE_TYPES: a descriptor, of memory that lies in a file. Memory of another process cannot be passed on.
        14 => {
            let is_mapped = piece.is_some_and(|(_, piece)| piece.shared.is_some());
            let is_of_own_pool = known.pool != 0 && known.openings == 0;
            Ok(Value::Word((is_mapped || is_of_own_pool).into()))
        }
        // MEMPOOL_HANDLE.
        17 if known.pool != 0 => Ok(Value::Word(known.pool)),
        17 => Ok(Value::Word(pool_of(known.kind, device))),
        // MAPPING_SIZE, MAPPING_BASE_ADDR: one mapping of the program. Memory that the driver allocated is one mapping.
        18 => Ok(Value::Word(piece.map_or(known.bytes, |(_, piece)| piece.bytes))),
        19 => Ok(Value::Word(piece.map_or(first, |(first, _)| first))),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Whether an attribute is written as eight bytes. All others are four.
const fn is_word(number: i32) -> bool {
    matches!(number, 1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20)
}

/// Writes an attribute in its size.
fn write(out: u64, value: &Value) -> Answer {
    match value {
        Value::Word(word) => Out::<u64>::at(out).set(*word),
        Value::Half(half) => Out::<u32>::at(out).set(*half),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(out: u64, number: i32, address: u64) -> Code {
    // Unlike `cuPointerGetAttributes`, this function requires a current context.
    call("cuPointerGetAttribute", |sim| {
        sim.current()?;
        write(out, &attribute(sim, number, address)?)
    })
}

/// Unlike `cuPointerGetAttribute`, this function returns zeros for unknown addresses.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttributes(count: u32, numbers: In<i32>, outs: In<u64>, address: u64) -> Code {
    call("cuPointerGetAttributes", |sim| {
        for index in 0..count as usize {
            let number = numbers.get(index)?;
            if !(1..=20).contains(&number) {
                return Err(Status::INVALID_VALUE);
            }
            let none = if is_word(number) { Value::Word(0) } else { Value::Half(0) };
            write(outs.get(index)?, &attribute(sim, number, address).unwrap_or(none))?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) -> Code {
    call("cuMemGetAddressRange_v2", |sim| {
        // Unlike the attributes, this function requires a current context, and distinguishes the mappings of a reserved
        // range.
        sim.current()?;
        let (first, known) = sim.memory.find_live(address).ok_or(Status::NOT_FOUND)?;
        let piece = sim.memory.mapped.piece(address);
        let (first, bytes) = piece.map_or((first, known.bytes), |(first, piece)| (first, piece.bytes));
        base.set_if_wanted(first);
        size.set_if_wanted(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    })
}
