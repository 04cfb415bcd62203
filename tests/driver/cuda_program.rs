//! CUDA as the program beside us uses it: contexts, streams, memory, captures, and work that takes its time.
#![expect(unsafe_code, reason = "calls the driver as C code would")]

use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use interop_core::StreamHandle;
use interop_sim_client::{Spin, sim};

use crate::support::signed;
use crate::support::streams::stream as stream_of;

/// Calls a function of the driver by name, with arguments that are words.
macro_rules! cu {
    ($name:literal, $($argument:expr => $type:ty),* $(,)?) => {{
        // SAFETY: the type that `cuda.h` gives the function.
        let function = unsafe { interop_sim_client::sim().function::<extern "C" fn($($type),*) -> i32>($name) };
        function($($argument),*)
    }};
}
pub(crate) use cu;

/// The bytes of the smallest array whose release shares no event with others.
pub(crate) const LARGE: usize = 1 << 20;

/// A context: a primary one, or one that a library made for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    /// The primary context of a device, which nobody gives back.
    pub(crate) fn primary(ordinal: i32) -> Self {
        let mut context = 0;
        done(cu!("cuDevicePrimaryCtxRetain", &raw mut context => *mut u64, ordinal => i32));
        Self(context)
    }

    /// Ends all that is in the primary context of a device.
    pub(crate) fn reset_primary(ordinal: i32) {
        done(cu!("cuDevicePrimaryCtxReset_v2", ordinal => i32));
    }

    /// Gives one handle of the primary context of a device back.
    pub(crate) fn release_primary(ordinal: i32) {
        done(cu!("cuDevicePrimaryCtxRelease_v2", ordinal => i32));
    }

    /// A context of a library's own. It is current nowhere.
    pub(crate) fn foreign(ordinal: i32) -> Self {
        let mut context = 0;
        done(cu!("cuCtxCreate_v2", &raw mut context => *mut u64, 0 => u32, ordinal => i32));
        pop();
        Self(context)
    }

    /// Ends the context, and everything in it.
    pub(crate) fn destroy(self) {
        done(cu!("cuCtxDestroy_v2", self.0 => u64));
    }

    /// Runs `work` while the context is current.
    pub(crate) fn with<R>(self, work: impl FnOnce() -> R) -> R {
        done(cu!("cuCtxPushCurrent_v2", self.0 => u64));
        let result = work();
        pop();
        result
    }

    /// A stream that joins with the legacy default stream.
    pub(crate) fn blocking(self) -> Stream {
        self.stream(0)
    }

    /// A stream that does not.
    pub(crate) fn non_blocking(self) -> Stream {
        self.stream(1)
    }

    fn stream(self, flags: u32) -> Stream {
        let mut stream = 0;
        self.with(|| done(cu!("cuStreamCreate", &raw mut stream => *mut u64, flags => u32)));
        Stream { raw: stream, place: self }
    }

    /// The legacy default stream.
    pub(crate) fn legacy(self) -> Stream {
        Stream { raw: 1, place: self }
    }

    /// The default stream of this thread.
    pub(crate) fn per_thread(self) -> Stream {
        Stream { raw: 2, place: self }
    }

    /// An event without timing.
    pub(crate) fn event(self) -> u64 {
        let mut event = 0;
        self.with(|| done(cu!("cuEventCreate", &raw mut event => *mut u64, 2 => u32)));
        event
    }

    /// Memory of the device, holding one byte everywhere.
    pub(crate) fn bytes(self, value: u8, count: usize) -> Bytes {
        self.filled(value, count, "cuMemFree_v2", |out| cu!("cuMemAlloc_v2", out => *mut u64, count => usize))
    }

    /// The same from the device's pool.
    pub(crate) fn pool(self, value: u8, count: usize) -> Bytes {
        self.filled(
            value,
            count,
            "cuMemFree_v2",
            |out| cu!("cuMemAllocAsync", out => *mut u64, count => usize, 1 => u64),
        )
    }

    /// The same from a pool of host memory.
    pub(crate) fn host_pool(self, value: u8, count: usize) -> Bytes {
        // `CUmemPoolProps`: pinned, no handles, on the host.
        let (mut pool, properties) = (0, [1, 0, 2, 0]);
        done(cu!("cuMemPoolCreate", &raw mut pool => *mut u64, properties.as_ptr() => *const i32));
        self.filled(
            value,
            count,
            "cuMemFree_v2",
            |out| cu!("cuMemAllocFromPoolAsync", out => *mut u64, count => usize, pool => u64, 1 => u64),
        )
    }

    /// The same as managed memory.
    pub(crate) fn managed(self, value: u8, count: usize) -> Bytes {
        self.filled(
            value,
            count,
            "cuMemFree_v2",
            |out| cu!("cuMemAllocManaged", out => *mut u64, count => usize, 1 => u32),
        )
    }

    /// The same as pinned memory.
    pub(crate) fn pinned(self, value: u8, count: usize) -> Bytes {
        self.filled(
            value,
            count,
            "cuMemFreeHost",
            |out| cu!("cuMemHostAlloc", out => *mut u64, count => usize, 1 => u32),
        )
    }

    fn filled(
        self,
        value: u8,
        count: usize,
        free: &'static str,
        allocate: impl FnOnce(*mut u64) -> i32,
    ) -> Bytes {
        let mut address = 0;
        self.with(|| done(allocate(&raw mut address)));
        let bytes = Bytes { address, count, place: self, free };
        self.legacy().fill(&bytes, value);
        self.legacy().finish();
        bytes
    }
}

/// What every call of the test itself has to answer.
#[track_caller]
pub(crate) fn done(code: i32) {
    assert_eq!(code, 0, "the driver answers the test with an error");
}

pub(crate) fn destroy_event(event: u64) {
    done(cu!("cuEventDestroy_v2", event => u64));
}

/// Whether the work before an event is done, as the driver answers when it is asked once.
pub(crate) fn is_reached(event: u64) -> bool {
    let code = cu!("cuEventQuery", event => u64);
    assert!(matches!(code, 0 | 600), "the event is gone: {code}");
    code == 0
}

/// The flags that pinned memory was asked for with.
pub(crate) fn flags_of(address: usize) -> u32 {
    let mut flags = 0;
    done(cu!("cuMemHostGetFlags", &raw mut flags => *mut u32, address as u64 => u64));
    flags
}

/// Whether an event tells no time, which makes it dearer.
pub(crate) fn is_untimed(event: u64) -> bool {
    let mut time = 0.0_f32;
    cu!("cuEventElapsedTime", &raw mut time => *mut f32, event => u64, event => u64) == 400
}

fn pop() {
    let mut context = 0;
    done(cu!("cuCtxPopCurrent_v2", &raw mut context => *mut u64));
}

/// The context that is current on this thread.
pub(crate) fn current() -> Option<Place> {
    let mut context = 0;
    done(cu!("cuCtxGetCurrent", &raw mut context => *mut u64));
    (context != 0).then_some(Place(context))
}

/// Makes a context, or none, current on this thread.
pub(crate) fn set_current(place: Option<Place>) {
    done(cu!("cuCtxSetCurrent", place.map_or(0, |place| place.0) => u64));
}

/// What captures mean to this thread, which stays.
pub(crate) fn thread_mode() -> i32 {
    let mut mode = 0;
    done(cu!("cuThreadExchangeStreamCaptureMode", &raw mut mode => *mut i32));
    let (was, mut again) = (mode, mode);
    done(cu!("cuThreadExchangeStreamCaptureMode", &raw mut again => *mut i32));
    was
}

/// The streams that capture.
static BEGUN: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

/// Ends the captures that a test which failed has left.
pub(crate) fn end_captures() {
    let begun = std::mem::take(&mut *BEGUN.lock().unwrap_or_else(PoisonError::into_inner));
    for stream in begun {
        stream.end();
    }
}

/// A stream, with the context that its number is looked up in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    raw: u64,
    place: Place,
}

impl Stream {
    pub(crate) fn handle(self) -> StreamHandle {
        stream_of(signed(self.raw))
    }

    pub(crate) fn number(self) -> i128 {
        i128::from(self.raw)
    }

    /// Work that lasts until the test says so, or somebody waits for it.
    pub(crate) fn spin(self) -> Spin {
        self.place.with(|| sim().spin(self.raw))
    }

    /// Queues: every byte becomes `value`.
    pub(crate) fn fill(self, bytes: &Bytes, value: u8) {
        self.place.with(|| {
            let Bytes { address, count, .. } = bytes;
            done(cu!("cuMemsetD8Async", *address => u64, value => u8, *count => usize, self.raw => u64));
        });
    }

    /// Queues a copy of all bytes.
    pub(crate) fn copy(self, to: &Bytes, from: &Bytes) {
        self.place.with(|| {
            let (to, from, count) = (to.address, from.address, from.count);
            done(cu!("cuMemcpyDtoDAsync_v2", to => u64, from => u64, count => usize, self.raw => u64));
        });
    }

    /// Waits for the work of this stream, and for no other.
    pub(crate) fn finish(self) {
        self.place.with(|| done(cu!("cuStreamSynchronize", self.raw => u64)));
    }

    /// What a copy made on this stream now finds in `bytes`; only what must come before it runs.
    pub(crate) fn reads(self, bytes: &Bytes) -> u8 {
        let seen = self.scratch(bytes.count);
        self.copy(&seen, bytes);
        self.finish();
        seen.value()
    }

    /// Memory of the pool, of this stream: to get it and to free it waits for no other stream.
    pub(crate) fn scratch(self, count: usize) -> Bytes {
        let (mut address, place) = (0, self.place);
        place.with(|| {
            done(cu!("cuMemAllocAsync", &raw mut address => *mut u64, count => usize, self.raw => u64));
        });
        Bytes { address, count, place, free: "cuMemFree_v2" }
    }

    /// Memory that somebody else frees.
    pub(crate) fn bytes_at(self, address: usize, count: usize) -> Bytes {
        Bytes { address: address as u64, count, place: self.place, free: "" }
    }

    /// Records an event after the work of this stream so far.
    pub(crate) fn record(self, event: u64) {
        self.place.with(|| done(cu!("cuEventRecord", event => u64, self.raw => u64)));
    }

    pub(crate) fn destroy(self) {
        done(cu!("cuStreamDestroy_v2", self.raw => u64));
    }

    /// Starts a capture in the mode that libraries use by default, global.
    pub(crate) fn begin(self) {
        self.begin_in(0);
    }

    pub(crate) fn begin_in(self, mode: u32) {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        done(cu!("cuStreamBeginCapture_v2", self.raw => u64, mode => u32));
    }

    /// Ends the capture; whether it was good.
    pub(crate) fn end(self) -> bool {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).retain(|begun| begun.raw != self.raw);
        let mut graph = 0_u64;
        let code = cu!("cuStreamEndCapture", self.raw => u64, &raw mut graph => *mut u64);
        if graph != 0 {
            done(cu!("cuGraphDestroy", graph => u64));
        }
        code == 0
    }

    /// Takes `other` into the capture that goes on here, or lets it come back: an edge from here to there.
    pub(crate) fn fork(self, other: Self) {
        let event = self.place.event();
        done(cu!("cuEventRecord", event => u64, self.raw => u64));
        done(cu!("cuStreamWaitEvent", other.raw => u64, event => u64, 0 => u32));
        destroy_event(event);
    }
}

/// Memory of the driver's, freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) address: u64,
    pub(crate) count: usize,
    place: Place,
    free: &'static str,
}

impl Bytes {
    pub(crate) fn at(&self) -> usize {
        signed(self.address)
    }

    /// As many bytes at another address, which somebody else frees.
    pub(crate) fn like(&self, address: usize) -> Self {
        Self { address: address as u64, free: "", ..*self }
    }

    /// The same, for the context to free.
    pub(crate) fn lost_with_its_context(mut self) -> Self {
        self.free = "";
        self
    }

    /// The byte that all have now, on the device; what is queued does not count.
    #[track_caller]
    pub(crate) fn value(&self) -> u8 {
        let first = sim().read::<u8>(self.address, self.count).unwrap_or_else(null);
        assert!(!first.is_null(), "the memory may not be read: {:?}", sim().reports());
        // SAFETY: the driver answered that so many bytes may be read there.
        let all = unsafe { std::slice::from_raw_parts(first, self.count) };
        assert!(all.iter().all(|byte| *byte == all[0]), "not one value: {all:?}");
        all[0]
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let free = self.free;
        if free.is_empty() {
            return;
        }
        self.place.with(|| {
            // SAFETY: both functions take an address.
            let function = unsafe { interop_sim_client::sim().function::<extern "C" fn(u64) -> i32>(free) };
            // A test that fails may have lost the memory with its context.
            let code = function(self.address);
            assert!(code == 0 || std::thread::panicking(), "{free}: {code}");
        });
    }
}
