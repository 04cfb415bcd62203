//! CUDA as used by the rest of the program: contexts, streams, memory, captures, and long-running work.
#![expect(unsafe_code, reason = "calls the driver as C code would")]

use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use interop_core::StreamHandle;
use interop_core::launch::AsStream;
use simulated_cuda::{Spin, sim};

use crate::support::signed;
use crate::support::streams::stream as stream_of;

/// Calls a driver function by name with integer arguments.
macro_rules! cu {
    ($name:literal, $($argument:expr => $type:ty),* $(,)?) => {{
        // SAFETY: this is the type of the function in `cuda.h`.
        let function = unsafe { simulated_cuda::sim().function::<extern "C" fn($($type),*) -> i32>($name) };
        function($($argument),*)
    }};
}
pub(crate) use cu;

/// The size in bytes of the smallest array whose release does not share an event with others.
pub(crate) const LARGE: usize = 1 << 20;

/// A context: a primary one, or one that a library created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    /// Retains the primary context of a device for good.
    pub(crate) fn primary(ordinal: i32) -> Self {
        let mut context = 0;
        done(cu!("cuDevicePrimaryCtxRetain", &raw mut context => *mut u64, ordinal => i32));
        Self(context)
    }

    /// Resets the primary context of a device.
    pub(crate) fn reset_primary(ordinal: i32) {
        done(cu!("cuDevicePrimaryCtxReset_v2", ordinal => i32));
    }

    /// Releases one handle of the primary context of a device.
    pub(crate) fn release_primary(ordinal: i32) {
        done(cu!("cuDevicePrimaryCtxRelease_v2", ordinal => i32));
    }

    /// Creates a context and makes it current nowhere.
    pub(crate) fn foreign(ordinal: i32) -> Self {
        let mut context = 0;
        done(cu!("cuCtxCreate_v2", &raw mut context => *mut u64, 0 => u32, ordinal => i32));
        pop();
        Self(context)
    }

    /// Destroys the context and everything in it.
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

    /// A blocking stream, which synchronizes with the legacy default stream.
    pub(crate) fn blocking(self) -> Stream {
        self.stream(0)
    }

    /// A non-blocking stream.
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

    /// Device memory whose bytes all have one value.
    pub(crate) fn bytes(self, value: u8, count: usize) -> Bytes {
        self.filled(value, count, "cuMemFree_v2", |out| cu!("cuMemAlloc_v2", out => *mut u64, count => usize))
    }

    /// The same from the pool of the device.
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
        // `CUmemPoolProps`: pinned memory without handles, on the host.
        let (mut pool, properties) = (0, [1, 0, 2, 0]);
        done(cu!("cuMemPoolCreate", &raw mut pool => *mut u64, properties.as_ptr() => *const i32));
        self.filled(
            value,
            count,
            "cuMemFree_v2",
            |out| cu!("cuMemAllocFromPoolAsync", out => *mut u64, count => usize, pool => u64, 1 => u64),
        )
    }

    /// The same in managed memory.
    pub(crate) fn managed(self, value: u8, count: usize) -> Bytes {
        self.filled(
            value,
            count,
            "cuMemFree_v2",
            |out| cu!("cuMemAllocManaged", out => *mut u64, count => usize, 1 => u32),
        )
    }

    /// The same in pinned memory.
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

/// Checks that a call of the test itself succeeded.
#[track_caller]
pub(crate) fn done(code: i32) {
    assert_eq!(code, 0, "the driver answers the test with an error");
}

pub(crate) fn destroy_event(event: u64) {
    done(cu!("cuEventDestroy_v2", event => u64));
}

/// Queries once whether the work before an event has finished.
pub(crate) fn is_reached(event: u64) -> bool {
    let code = cu!("cuEventQuery", event => u64);
    assert!(matches!(code, 0 | 600), "the event is gone: {code}");
    code == 0
}

/// The flags with which pinned memory was allocated.
pub(crate) fn flags_of(address: usize) -> u32 {
    let mut flags = 0;
    done(cu!("cuMemHostGetFlags", &raw mut flags => *mut u32, address as u64 => u64));
    flags
}

/// Returns whether an event was created without timing. Timing makes it more expensive.
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

/// Sets the current context of this thread, or none.
pub(crate) fn set_current(place: Option<Place>) {
    done(cu!("cuCtxSetCurrent", place.map_or(0, |place| place.0) => u64));
}

/// Returns the capture mode of this thread and leaves it unchanged.
pub(crate) fn thread_mode() -> i32 {
    let mut mode = 0;
    done(cu!("cuThreadExchangeStreamCaptureMode", &raw mut mode => *mut i32));
    let (was, mut again) = (mode, mode);
    done(cu!("cuThreadExchangeStreamCaptureMode", &raw mut again => *mut i32));
    was
}

/// The capturing streams.
static BEGUN: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

/// Ends the captures that a failed test has left.
pub(crate) fn end_captures() {
    let begun = std::mem::take(&mut *BEGUN.lock().unwrap_or_else(PoisonError::into_inner));
    for stream in begun {
        stream.end();
    }
}

/// A stream and the context to which its handle refers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    raw: u64,
    place: Place,
}

impl AsStream for Stream {
    fn as_stream(&self) -> StreamHandle {
        self.handle()
    }
}

impl Stream {
    pub(crate) fn handle(self) -> StreamHandle {
        stream_of(signed(self.raw))
    }

    pub(crate) fn number(self) -> i128 {
        i128::from(self.raw)
    }

    /// Queues work that lasts until the test ends it or a call waits for it.
    pub(crate) fn spin(self) -> Spin {
        self.place.with(|| sim().spin(self.raw))
    }

    /// Queues a write of `value` to each byte.
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

    /// Synchronizes this stream only.
    pub(crate) fn finish(self) {
        self.place.with(|| done(cu!("cuStreamSynchronize", self.raw => u64)));
    }

    /// Copies `bytes` on this stream and returns the value. Only work that must precede the copy runs.
    pub(crate) fn reads(self, bytes: &Bytes) -> u8 {
        let seen = self.scratch(bytes.count);
        self.copy(&seen, bytes);
        self.finish();
        seen.value()
    }

    /// Pool memory of this stream: allocating and freeing it waits for no other stream.
    pub(crate) fn scratch(self, count: usize) -> Bytes {
        let (mut address, place) = (0, self.place);
        place.with(|| {
            done(cu!("cuMemAllocAsync", &raw mut address => *mut u64, count => usize, self.raw => u64));
        });
        Bytes { address, count, place, free: "cuMemFree_v2" }
    }

    /// Memory that other code frees.
    pub(crate) fn bytes_at(self, address: usize, count: usize) -> Bytes {
        Bytes { address: address as u64, count, place: self.place, free: "" }
    }

    /// Records an event on this stream.
    pub(crate) fn record(self, event: u64) {
        self.place.with(|| done(cu!("cuEventRecord", event => u64, self.raw => u64)));
    }

    pub(crate) fn destroy(self) {
        done(cu!("cuStreamDestroy_v2", self.raw => u64));
    }

    /// Starts a capture in the global mode, which libraries use by default.
    pub(crate) fn begin(self) {
        self.begin_in(0);
    }

    pub(crate) fn begin_in(self, mode: u32) {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        done(cu!("cuStreamBeginCapture_v2", self.raw => u64, mode => u32));
    }

    /// Ends the capture and returns whether it was valid.
    pub(crate) fn end(self) -> bool {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).retain(|begun| begun.raw != self.raw);
        let mut graph = 0_u64;
        let code = cu!("cuStreamEndCapture", self.raw => u64, &raw mut graph => *mut u64);
        if graph != 0 {
            done(cu!("cuGraphDestroy", graph => u64));
        }
        code == 0
    }

    /// Makes `other` wait for this stream: it joins the capture in progress here, or rejoins the origin stream.
    pub(crate) fn fork(self, other: Self) {
        let event = self.place.event();
        done(cu!("cuEventRecord", event => u64, self.raw => u64));
        done(cu!("cuStreamWaitEvent", other.raw => u64, event => u64, 0 => u32));
        destroy_event(event);
    }
}

/// Memory of the driver that is freed on drop.
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

    /// The same number of bytes at another address, which other code frees.
    pub(crate) fn like(&self, address: usize) -> Self {
        Self { address: address as u64, free: "", ..*self }
    }

    /// The same memory; the context frees it.
    pub(crate) fn lost_with_its_context(mut self) -> Self {
        self.free = "";
        self
    }

    /// The current value of all bytes on the device, without the effect of queued work.
    #[track_caller]
    pub(crate) fn value(&self) -> u8 {
        let first = sim().read::<u8>(self.address, self.count).unwrap_or_else(null);
        assert!(!first.is_null(), "the memory may not be read: {:?}", sim().reports());
        // SAFETY: the driver reported that so many bytes may be read there.
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
            let function = unsafe { simulated_cuda::sim().function::<extern "C" fn(u64) -> i32>(free) };
            // A failed test may have lost the memory together with its context.
            let code = function(self.address);
            assert!(code == 0 || std::thread::panicking(), "{free}: {code}");
        });
    }
}
