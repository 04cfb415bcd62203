//! The numbers that order two processes: one page of shared memory for each connection.

#![expect(unsafe_code, reason = "numbers in shared memory")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use interop_core::__private::processes::{SharedNumber, await_number, drop_after_all_work, run_in};
use interop_core::cuda::{Context, device_address};
use interop_core::{Device, Result, StreamHandle};

use crate::block::{Mapping, map_own, new_file};
use crate::office::lock;
use crate::protocol::Place;

/// How many arrays a process can have open from another one at a time.
pub(crate) const SLOTS: u32 = 1024;
const NUMBERS: usize = 2 * SLOTS as usize;
const BYTES: usize = 8 * NUMBERS;

/// Two rows of numbers: the producer's work on an array is done, and the consumer's. Each slot has one of both for the array that
/// is open there. They only increase.
///
/// The numbers are foreign data: only a comparison with a number that this process knows means anything.
#[derive(Debug)]
pub(crate) struct Page {
    mapping: Arc<Mapping>,
    /// Once a stream uses a number.
    registered: Mutex<Option<Registered>>,
}

/// A page that devices can use.
#[derive(Debug)]
struct Registered {
    context: Context,
    /// That of the context.
    device: Device,
    on_devices: u64,
    // Last: it is mapped as long as it is registered.
    mapping: Arc<Mapping>,
}

impl Registered {
    fn new(mapping: &Arc<Mapping>, context: Context, device: Device) -> Result<Self> {
        /// `CU_MEMHOSTREGISTER_PORTABLE`, for all contexts, and `CU_MEMHOSTREGISTER_DEVICEMAP`.
        const FLAGS: u32 = 3;
        let place = mapping.first().as_ptr().cast();
        // SAFETY: the page is mapped until it is taken back.
        run_in(context, |driver| unsafe { driver.memory_host_register(place, BYTES, FLAGS) })?;
        let mut registered = Self { context, device, on_devices: 0, mapping: mapping.clone() };
        registered.on_devices = device_address(mapping.address())? as u64;
        Ok(registered)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let place = self.mapping.first().as_ptr().cast();
        // SAFETY: `Page` drops this value after all work with its numbers.
        let taken = run_in(self.context, |driver| unsafe { driver.memory_host_unregister(place) });
        // It fails if the context is gone, and in a forked child.
        drop(taken);
    }
}

impl Page {
    /// Creates a page, and returns it with its file for the other process.
    pub(crate) fn new() -> Result<(Self, OwnedFd)> {
        let file = new_file(BYTES)?;
        Ok((Self::of(map_own(&file, BYTES)?), file))
    }

    /// Maps the page of another process.
    pub(crate) fn of_other(file: &OwnedFd) -> Result<Self> {
        Mapping::of_other(file, BYTES as u64, true).map(Self::of)
    }

    fn of(mapping: Mapping) -> Self {
        Self { mapping: Arc::new(mapping), registered: Mutex::default() }
    }

    fn place(&self, index: u32) -> NonNull<AtomicU64> {
        let index = index as usize;
        assert!(index < NUMBERS, "a number of the page");
        let first = self.mapping.first().cast::<AtomicU64>();
        // SAFETY: `index` is within the mapping of `BYTES` bytes.
        unsafe { first.add(index) }
    }

    fn number(&self, index: u32) -> &AtomicU64 {
        let number = self.place(index);
        // SAFETY: aligned, because mappings start at pages; mapped as long as `self`; all processes use it as an atomic.
        unsafe { number.as_ref() }
    }

    /// Registers the page for all devices, unless it is. `context` is one of those that are in use, on `device`.
    pub(crate) fn register(&self, context: Context, device: Device) -> Result<()> {
        let mut registered = lock(&self.registered);
        if registered.is_none() {
            *registered = Some(Registered::new(&self.mapping, context, device)?);
        }
        Ok(())
    }

    /// A number for streams, which need a page that is registered.
    fn shared(&self, index: u32, value: u64) -> SharedNumber {
        let registered = lock(&self.registered);
        let on_devices = registered.as_ref().map_or(0, |page| page.on_devices + 8 * u64::from(index));
        // SAFETY: 1: as in `number`; the page is unmapped after all work that was queued with it. 2: registered as portable.
        unsafe { SharedNumber::new(self.place(index), on_devices, value) }
    }
}

/// The two numbers of an array that is open: both have reached `number` when the work of the producer is done, and when that of the
/// consumer is.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) page: Arc<Page>,
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

impl Turn {
    pub(crate) fn place(&self) -> Place {
        (self.slot, self.number)
    }

    /// The number behind the producer's work, in a page that is [registered](Page::register).
    pub(crate) fn shared_ready(&self) -> SharedNumber {
        self.page.shared(self.slot, self.number)
    }

    /// The number behind the consumer's work, in a page that is [registered](Page::register).
    pub(crate) fn shared_done(&self) -> SharedNumber {
        self.page.shared(SLOTS + self.slot, self.number)
    }

    /// Makes a stream of the producer wait for the consumer's work. The page is [registered](Page::register).
    pub(crate) fn await_done(&self, stream: StreamHandle) -> Result<()> {
        let place = lock(&self.page.registered).as_ref().map(|page| (page.context, page.device));
        let Some((context, device)) = place else { return Ok(()) };
        await_number(self.shared_done(), Some(stream), context, device).map(drop)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.page.number(self.slot).load(Ordering::Acquire) >= self.number
    }

    pub(crate) fn set_ready(&self) {
        self.page.number(self.slot).fetch_max(self.number, Ordering::Release);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.page.number(SLOTS + self.slot).load(Ordering::Acquire) >= self.number
    }

    pub(crate) fn set_done(&self) {
        self.page.number(SLOTS + self.slot).fetch_max(self.number, Ordering::Release);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let registered = self.registered.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A stream may still write a number.
        registered.into_iter().for_each(drop_after_all_work);
    }
}
