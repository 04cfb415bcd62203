//! Allocations: their addresses and the bytes behind them.

#![expect(unsafe_code, reason = "bytes move to a file that other processes map")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use crate::access::History;
use crate::address_space::{Reserve, Window, map};
use crate::handle::{Handle, OpId};
use crate::report::{Mistake, Report};
use crate::shared_memory::SharedMemory;
use crate::status::{Answer, Status};
use crate::virtual_memory::{GRANULARITY, Mapped};

/// The byte that fills fresh memory; a computation on such values gives conspicuous results.
const FRESH: u8 = 0xcd;
/// The size of a host page.
const PAGE: u64 = 4096;
/// The alignment that the driver guarantees for device memory.
const ALIGNMENT: u64 = 512;

/// How memory was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync`.
    Pool,
    /// As `Pool`, from a pool of host memory.
    HostPool,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister`: the program's own memory.
    Registered,
    /// `cuMemAddressReserve`: only the parts that the program maps have memory.
    Reserved,
}

impl Kind {
    /// Whether the host cannot access the memory.
    pub(crate) const fn is_hidden(self) -> bool {
        matches!(self, Self::Device | Self::Pool | Self::Reserved)
    }

    /// Whether the memory belongs to no context.
    pub(crate) const fn is_of_no_context(self) -> bool {
        self.is_from_a_pool() || matches!(self, Self::Reserved)
    }

    /// Whether the memory is allocated in stream order.
    pub(crate) const fn is_from_a_pool(self) -> bool {
        matches!(self, Self::Pool | Self::HostPool)
    }

    /// Whether it is host memory.
    pub(crate) const fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::HostPool)
    }
}

/// Whether memory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// The stream-ordered allocation has not run yet.
    Promised,
    Live,
    Freed,
}

/// One allocation. Its entry is kept after the free.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) kind: Kind,
    pub(crate) life: Life,
    pub(crate) bytes: u64,
    pub(crate) context: Handle,
    pub(crate) device: usize,
    /// Unique, for `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
    pub(crate) flags: u32,
    /// The queued operation that will free it.
    pub(crate) free_queued: Option<OpId>,
    pub(crate) history: History,
    /// The address on devices, if it differs from the address on the host.
    on_devices: Option<u64>,
    /// The bytes of memory that the host cannot access by its address.
    hidden: Option<Hidden>,
    /// The bytes, if other processes may use them too.
    pub(crate) shared: Option<Arc<SharedMemory>>,
    /// How often this process has opened the memory, if it belongs to another process.
    pub(crate) openings: u64,
    /// The pool of the program from which it comes; 0 for any other memory.
    pub(crate) pool: Handle,
}

impl Allocation {
    /// Whether the host can access the address.
    pub(crate) fn on_host(&self) -> bool {
        !self.kind.is_hidden()
    }
}

/// The bytes of memory that the host cannot access by its address.
#[derive(Debug)]
enum Hidden {
    Heap(Box<[u8]>),
    /// Those of a reserved range.
    Window(Window),
}

impl Hidden {
    fn new(kind: Kind, bytes: u64) -> Answer<Self> {
        if kind == Kind::Reserved {
            return Window::new(bytes).map(Self::Window);
        }
        // Extra bytes to align the storage like the address.
        let room = usize::try_from(bytes + ALIGNMENT).map_err(|_| Status::OUT_OF_MEMORY)?;
        Ok(Self::Heap(vec![FRESH; room].into_boxed_slice()))
    }

    fn at(&mut self, offset: u64) -> *mut u8 {
        match self {
            Self::Heap(bytes) => {
                let start = bytes.as_mut_ptr();
                let aligned = start.align_offset(512);
                start.wrapping_add(aligned + usize::try_from(offset).unwrap_or(0))
            }
            Self::Window(window) => window.at(offset),
        }
    }
}

/// All allocations.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    device: Reserve,
    host: Reserve,
    /// The allocations that have not been freed, by first address.
    allocations: BTreeMap<u64, Allocation>,
    /// The freed allocations, kept separately because there are many.
    freed: BTreeMap<u64, Allocation>,
    /// The freed allocations whose history is still needed.
    freed_lately: Vec<u64>,
    /// Freed bytes that a running kernel may still point to.
    graveyard: Vec<Hidden>,
    /// As `graveyard`, for memory that other processes may use too.
    unmapped: Vec<Arc<SharedMemory>>,
    /// Whether addresses are reused.
    reuse: bool,
    /// Whether newly registered memory gets a separate address for devices.
    pub(crate) registered_apart: bool,
    /// The separate device addresses, each with the first host address and the size in bytes.
    apart: BTreeMap<u64, (u64, u64)>,
    next_id: u64,
    pub(crate) mapped: Mapped,
}

impl Memory {
    /// The size of a device's memory in bytes.
    pub(crate) const TOTAL: u64 = 8 << 30;

    /// Allocates memory and returns its address.
    pub(crate) fn allocate(
        &mut self,
        kind: Kind,
        bytes: u64,
        owner: (Handle, usize),
        flags: u32,
    ) -> Answer<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        if bytes > Self::TOTAL - self.used(owner.1) {
            return Err(Status::OUT_OF_MEMORY);
        }
        let (address, hidden) = if kind.is_hidden() {
            let alignment = if kind == Kind::Reserved { GRANULARITY } else { ALIGNMENT };
            let hidden = Hidden::new(kind, bytes)?;
            (self.device.take(bytes, alignment)?, Some(hidden))
        } else {
            let address = self.host.take(bytes, PAGE)?;
            let size = bytes.next_multiple_of(PAGE);
            (map(address, size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED)?, None)
        };
        self.freed.remove(&address);
        let life = if kind.is_from_a_pool() { Life::Promised } else { Life::Live };
        self.insert(address, kind, bytes, owner, flags, life, hidden);
        Ok(address)
    }

    /// Registers host memory of the program.
    pub(crate) fn register(
        &mut self,
        address: u64,
        bytes: u64,
        owner: (Handle, usize),
        flags: u32,
    ) -> Answer {
        if address == 0 || bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(Status::INVALID_VALUE);
        }
        let overlaps =
            |(first, known): (&u64, &Allocation)| *first < address + bytes && address < first + known.bytes;
        if self.allocations.iter().any(overlaps) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.insert(address, Kind::Registered, bytes, owner, flags, Life::Live, None);
        if self.registered_apart {
            // This address is reserved but never mapped, so the host faults there as at addresses of device memory.
            let on_devices = self.device.take(bytes, ALIGNMENT)?;
            self.apart.insert(on_devices, (address, bytes));
            self.allocations.entry(address).and_modify(|known| known.on_devices = Some(on_devices));
        }
        Ok(())
    }

    /// Converts a separate device address to the host's address. Other addresses are returned unchanged.
    pub(crate) fn on_host(&self, address: u64) -> u64 {
        match self.apart.range(..=address).next_back() {
            Some((first, (host, bytes))) if address - first < *bytes => host + (address - first),
            _ => address,
        }
    }

    /// Returns the address that devices use for memory that the driver knows.
    pub(crate) fn on_devices(&self, address: u64) -> u64 {
        let host = self.on_host(address);
        let known = self.find_live(host).and_then(|(first, known)| Some(known.on_devices? + (host - first)));
        known.unwrap_or(address)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the record, in one place")]
    fn insert(
        &mut self,
        address: u64,
        kind: Kind,
        bytes: u64,
        (context, device): (Handle, usize),
        flags: u32,
        life: Life,
        hidden: Option<Hidden>,
    ) {
        self.next_id += 1;
        let (id, free_queued, history) = (self.next_id, None, History::default());
        let on_devices = None;
        let allocation = Allocation {
            kind,
            life,
            bytes,
            context,
            device,
            id,
            flags,
            free_queued,
            history,
            on_devices,
            hidden,
            shared: None,
            openings: 0,
            pool: 0,
        };
        self.allocations.insert(address, allocation);
    }

    /// Finds the allocation that contains an address, freed or not. The first address is in the address space of
    /// `address`.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let host = self.on_host(address);
        let before = |all| BTreeMap::range(all, ..=host).next_back();
        let mut near = before(&self.allocations).into_iter().chain(before(&self.freed));
        let (first, allocation) = near.find(|(first, known)| host - **first < known.bytes)?;
        self.is_there(allocation, address).then(|| (address - (host - first), allocation))
    }

    /// Whether there is memory at an address. A reserved range has memory only where some is mapped.
    fn is_there(&self, allocation: &Allocation, address: u64) -> bool {
        allocation.kind != Kind::Reserved || self.mapped.piece(address).is_some()
    }

    /// As [`find`](Self::find), by the host's address, with mutable access.
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<(u64, &mut Allocation)> {
        let before = |all| BTreeMap::range_mut(all, ..=address).next_back();
        let mut near = before(&mut self.allocations).into_iter().chain(before(&mut self.freed));
        let (first, allocation) = near.find(|(first, known)| address - **first < known.bytes)?;
        Some((*first, allocation))
    }

    /// Clears all history: everything so far comes before everything from now on.
    pub(crate) fn forget_the_past(&mut self) {
        self.allocations.values_mut().for_each(|allocation| allocation.history.forget());
        for first in self.freed_lately.drain(..) {
            if let Some(allocation) = self.freed.get_mut(&first) {
                allocation.history.forget();
            }
        }
    }

    /// As [`find`](Self::find), for allocations that have not been freed.
    pub(crate) fn find_live(&self, address: u64) -> Option<(u64, &Allocation)> {
        let host = self.on_host(address);
        let (first, allocation) = self.allocations.range(..=host).next_back()?;
        let there = host - first < allocation.bytes && self.is_there(allocation, address);
        there.then(|| (address - (host - first), allocation))
    }

    /// Returns the reserved range that contains an address, whether memory is mapped there or not.
    pub(crate) fn reserved(&self, address: u64) -> Option<Range<u64>> {
        let (first, known) = self.allocations.range(..=address).next_back()?;
        let inside = known.kind == Kind::Reserved && address - first < known.bytes;
        inside.then(|| *first..first + known.bytes)
    }

    /// Returns the allocation that starts at an address and has not been freed.
    pub(crate) fn at(&mut self, address: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&address)
    }

    /// Whether freed memory starts at an address.
    pub(crate) fn was_freed(&self, address: u64) -> bool {
        self.freed.contains_key(&address)
    }

    /// Returns a usable pointer to `bytes` bytes at an address, or the reason why there is none.
    pub(crate) fn translate(&mut self, address: u64, bytes: u64) -> Result<*mut u8, Report> {
        let address = self.on_host(address);
        let refused = |mistake, text| Err(Report { mistake, text });
        let Some((first, allocation)) = self.find(address) else {
            return refused(Mistake::OutOfBounds, format!("{address:#x} is in no allocation"));
        };
        let offset = address - first;
        match allocation.life {
            Life::Freed => return refused(Mistake::UseAfterFree, format!("{address:#x} was freed")),
            Life::Promised => {
                let text = format!("{address:#x} is used before its stream-ordered allocation has run");
                return refused(Mistake::UseBeforeAllocation, text);
            }
            Life::Live => {}
        }
        if bytes > allocation.bytes - offset {
            let size = allocation.bytes;
            let text = format!(
                "{bytes} bytes at {address:#x} end beyond the allocation of {size} bytes at {first:#x}"
            );
            return refused(Mistake::OutOfBounds, text);
        }
        if allocation.kind == Kind::Reserved && !self.mapped.covers(address, bytes) {
            let text = format!("{bytes} bytes at {address:#x} end where no memory is mapped");
            return refused(Mistake::OutOfBounds, text);
        }
        if let Some(shared) = self.allocations.get(&first).and_then(|allocation| allocation.shared.as_ref()) {
            return Ok(shared.data().wrapping_add(usize::try_from(offset).unwrap_or(0)));
        }
        let Some(hidden) = self.allocations.get_mut(&first).and_then(|allocation| allocation.hidden.as_mut())
        else {
            return Ok(ptr::with_exposed_provenance_mut(address as usize));
        };
        Ok(hidden.at(offset))
    }

    /// Moves the bytes of an allocation to a file that other processes can map. Nothing runs meanwhile.
    pub(crate) fn share(&mut self, first: u64) -> Answer<Arc<SharedMemory>> {
        let bytes = self.allocations.get(&first).ok_or(Status::INVALID_VALUE)?.bytes;
        let from = self.translate(first, bytes).map_err(|_| Status::INVALID_VALUE)?;
        let allocation = self.allocations.get_mut(&first).ok_or(Status::INVALID_VALUE)?;
        if let Some(shared) = &allocation.shared {
            return Ok(shared.clone());
        }
        let shared = SharedMemory::new(bytes)?;
        let count = usize::try_from(bytes).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: both have `bytes` bytes, and the file is new.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), shared.data(), count) };
        allocation.shared = Some(shared.clone());
        allocation.hidden = None;
        Ok(shared)
    }

    /// Moves new memory of a pool, which nobody has used yet, to a file that other processes can map.
    pub(crate) fn share_new(&mut self, first: u64, pool: Handle) -> Answer {
        let allocation = self.allocations.get_mut(&first).ok_or(Status::INVALID_VALUE)?;
        let shared = SharedMemory::new(allocation.bytes)?;
        let count = usize::try_from(allocation.bytes).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: the file is new, and has as many bytes.
        unsafe { ptr::write_bytes(shared.data(), FRESH, count) };
        (allocation.shared, allocation.hidden, allocation.pool) = (Some(shared), None, pool);
        Ok(())
    }

    /// Maps memory into the reserved range that contains an address.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, handle: Handle) -> Answer {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let reserved =
            self.reserved(address).filter(|range| end <= range.end).ok_or(Status::INVALID_VALUE)?;
        let Some(Hidden::Window(window)) =
            self.allocations.get(&reserved.start).and_then(|known| known.hidden.as_ref())
        else {
            return Err(Status::INVALID_VALUE);
        };
        let (piece, offset) = (self.mapped.map(address, bytes, handle)?, address - reserved.start);
        match &piece.shared {
            Some(shared) => shared.show_in(window, offset),
            None => window.fill(offset, bytes, FRESH),
        }
    }

    /// Removes all mappings in a range. A running kernel may still use the bytes of the range, which are its own again.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        for (at, piece) in self.mapped.unmap(address, bytes)? {
            let reserved = self.reserved(at).ok_or(Status::INVALID_VALUE)?;
            let window = self.allocations.get(&reserved.start).and_then(|known| known.hidden.as_ref());
            if let (Some(Hidden::Window(window)), Some(_)) = (window, &piece.shared) {
                window.fill(at - reserved.start, piece.bytes, FRESH)?;
            }
        }
        Ok(())
    }

    /// Adds memory of another process, and returns its address. It has been opened once.
    pub(crate) fn open(
        &mut self,
        kind: Kind,
        shared: Arc<SharedMemory>,
        bytes: u64,
        owner: (Handle, usize),
    ) -> Answer<u64> {
        let address = self.device.take(bytes, GRANULARITY)?;
        self.freed.remove(&address);
        self.insert(address, kind, bytes, owner, 0, Life::Live, None);
        self.allocations.entry(address).and_modify(|known| known.shared = Some(shared));
        Ok(address)
    }

    /// Returns the address of memory of another process that is open, by the process and its descriptor.
    pub(crate) fn opened(&self, origin: (u32, u32)) -> Option<u64> {
        let is_it = |known: &Allocation| known.shared.as_ref().is_some_and(|shared| shared.origin == origin);
        self.live().find(|(_, known)| known.openings > 0 && is_it(known)).map(|(first, _)| first)
    }

    /// Frees the allocation that starts at an address. The address stays reserved, and accesses to it fault.
    pub(crate) fn free(&mut self, first: u64) {
        let Some(mut allocation) = self.allocations.remove(&first) else { return };
        if allocation.kind == Kind::Registered {
            allocation.on_devices.map(|address| self.apart.remove(&address));
            // The program may use these addresses again, so no record of them is kept.
            return;
        }
        allocation.life = Life::Freed;
        self.unmapped.extend(allocation.shared.take());
        self.graveyard.extend(allocation.hidden.take());
        if matches!(allocation.kind, Kind::Managed | Kind::Pinned | Kind::HostPool) {
            let size = allocation.bytes.next_multiple_of(PAGE);
            // If this fails, the pages stay readable, and a later use does not fault.
            let _ = map(first, size, libc::PROT_NONE, libc::MAP_FIXED);
        }
        if self.reuse {
            let reserve = if allocation.on_host() { &mut self.host } else { &mut self.device };
            reserve.leave(first, allocation.bytes);
        }
        self.freed.insert(first, allocation);
        self.freed_lately.push(first);
    }

    /// Chooses whether the addresses of memory that is freed from now on are reused.
    pub(crate) fn reuse(&mut self, wanted: bool) {
        self.reuse = wanted;
        for reserve in [&mut self.device, &mut self.host] {
            reserve.forget();
        }
    }

    /// Releases freed bytes. No operation is running, so nothing points to them any more.
    pub(crate) fn bury(&mut self) {
        self.graveyard.clear();
        self.unmapped.clear();
    }

    /// Returns the allocations that have not been freed, by first address.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.allocations.iter().map(|(first, allocation)| (*first, allocation))
    }

    /// Returns the bytes of a device that are in use.
    pub(crate) fn used(&self, device: usize) -> u64 {
        let on_device = |kind: Kind| !kind.is_pinned();
        let here = self.live().filter(|(_, known)| known.device == device && on_device(known.kind));
        here.map(|(_, known)| known.bytes).sum()
    }
}
