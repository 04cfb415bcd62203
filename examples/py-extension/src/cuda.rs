//! CUDA memory: where a new array is allocated, the stream that last wrote it, and the settings for streams and
//! releases.
#![expect(unsafe_code, reason = "a stream is kept as its number, and a kernel fills memory")]

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use interop_core::cuda::{self, CudaBuffer, MemoryKind, ReleasePolicy, Unordered};
use interop_core::launch::{AsStream, FromStream};
use interop_core::protocols::Layout;
use interop_core::python::extract_stream;
use interop_core::{
    CudaArray, Device, Element, Error, ErrorKind, HostVec, LaunchScope, Order, Result, SharedBuffer,
    StreamHandle,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::launch;

/// The location of a new array: the arguments `device` and `ordinal` of `Array.full`.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// `None` for host memory that CUDA does not know.
    kind: Option<MemoryKind>,
    ordinal: i32,
}

/// The names of the kinds of memory.
const KINDS: [(&str, Option<MemoryKind>); 5] = [
    ("cpu", None),
    ("cuda", Some(MemoryKind::Device)),
    ("pool", Some(MemoryKind::Pool)),
    ("pinned", Some(MemoryKind::Pinned)),
    ("managed", Some(MemoryKind::Managed)),
];

impl Place {
    /// Parses the arguments `device` and `ordinal`.
    pub(crate) fn named(device: &str, ordinal: i32) -> Result<Self> {
        let known = KINDS.iter().find(|(word, _)| *word == device).map(|(_, kind)| *kind);
        match known {
            Some(kind) if kind.is_some() || ordinal == 0 => Ok(Self { kind, ordinal }),
            _ => {
                let found = format!("{device:?}, ordinal {ordinal}");
                let allowed = format!("{}; an ordinal of a GPU for all but \"cpu\"", words(&KINDS));
                Err(Error::new(ErrorKind::Device, "device", found, allowed))
            }
        }
    }

    /// Returns new memory at this location in which every element is `value`, and the stream on which it is filled.
    ///
    /// A kernel fills memory that only devices can access.
    pub(crate) fn filled<T: Element>(self, len: usize, value: T) -> Result<(SharedBuffer, StreamHandle)> {
        if let Some(kind @ (MemoryKind::Device | MemoryKind::Pool)) = self.kind
            && len > 0
        {
            let (stream, dtype) = (StreamHandle::LegacyDefault, T::TYPE.dtype());
            // The kernel fills the memory on this stream, for which all later users wait. If the launch fails, the buffer is
            // dropped.
            let buffer = match kind {
                // SAFETY: the kernel writes all of it, on that stream, as stated above.
                MemoryKind::Pool => unsafe { CudaBuffer::uninit_on(stream, self.ordinal, dtype, len) },
                // SAFETY: as above.
                _ => unsafe { CudaBuffer::uninit::<T>(kind, self.ordinal, len) },
            }?;
            let (memory, device) = (SharedBuffer::new(buffer), Device::cuda(self.ordinal));
            let last = LastStream::on(device);
            last.set(stream);
            let mut array = Array::of(memory.clone(), &Layout::contiguous(&[len], Order::C)?, last);
            // SAFETY: numbers have no padding, so the bytes of an element are initialized.
            let bytes = unsafe { slice::from_raw_parts((&raw const value).cast(), size_of::<T>()) };
            let scope = LaunchScope::new();
            let address = scope.write_any(&mut array)?.address();
            // SAFETY: the memory is new and has `len` elements.
            let is_filled = unsafe { launch::fill(device, address, len, bytes) }?;
            scope.finish()?;
            if is_filled {
                return Ok((memory, stream));
            }
        }
        let mut elements = HostVec::<T>::try_zeroed(len)?;
        elements.as_mut_slice()?.fill(value);
        let memory = match self.kind {
            None => SharedBuffer::new(elements),
            Some(kind) => {
                SharedBuffer::new(CudaBuffer::from_slice(kind, self.ordinal, elements.as_mut_slice()?)?)
            }
        };
        Ok((memory, StreamHandle::NothingPending))
    }
}

fn words<T>(table: &[(&str, T)]) -> String {
    table.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// The stream on which memory was last written. An array shares it with all its views.
///
/// So a user of one view waits for a kernel that was launched through another. Host memory has no stream.
#[derive(Clone, Debug)]
pub(crate) struct LastStream(Option<Arc<AtomicUsize>>);

/// The value for no pending work. No stream has this handle.
const NOTHING_PENDING: usize = 0;

/// The first value for per-thread default streams.
///
/// These values are odd, because addresses of streams are even, and each thread gets its own. (1 is the legacy default
/// stream.)
const OF_THREADS: usize = 3;

/// Returns the value for this thread's default stream. Other threads have other values.
fn of_this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static WORD: usize = OF_THREADS + 2 * THREADS.fetch_add(1, Ordering::Relaxed);
    }
    WORD.with(|word| *word)
}

impl LastStream {
    /// Creates the value for memory on this device, with no pending work.
    pub(crate) fn on(device: Device) -> Self {
        Self((device != Device::CPU).then(Arc::default))
    }

    /// Returns the same stream for another array that was just imported from this memory.
    ///
    /// Pending work was ordered before `came_for`, the stream of the import. If the caller `named` that stream, both
    /// arrays use it from now on.
    pub(crate) fn shared_with(&self, came_for: StreamHandle, named: bool) -> Self {
        if named && came_for != StreamHandle::NothingPending {
            self.set(came_for);
        }
        self.clone()
    }

    /// Records that the memory was written on `stream`.
    pub(crate) fn set(&self, stream: StreamHandle) {
        let Some(last) = &self.0 else { return };
        let word = match stream {
            StreamHandle::PerThreadDefault => of_this_thread(),
            stream => stream.to_raw().unwrap_or(NOTHING_PENDING),
        };
        last.store(word, Ordering::Release);
    }
}

impl AsStream for LastStream {
    fn as_stream(&self) -> StreamHandle {
        match self.0.as_ref().map_or(NOTHING_PENDING, |last| last.load(Ordering::Acquire)) {
            NOTHING_PENDING => StreamHandle::NothingPending,
            // SAFETY: `set` stored this handle, and the array's producer keeps the stream alive, as the protocols
            // require.
            word if word < OF_THREADS || word % 2 == 0 => unsafe { StreamHandle::from_raw(word) },
            word if word == of_this_thread() => StreamHandle::PerThreadDefault,
            // Another thread's default stream has no handle here. The legacy default stream waits for those of all
            // threads.
            _ => StreamHandle::LegacyDefault,
        }
    }
}

impl FromStream for LastStream {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        let this = Self::on(device);
        this.set(stream);
        Ok(this)
    }
}

/// Makes later work on `stream` wait for the work that is pending on the array.
#[pyfunction]
pub(crate) fn order(array: &Bound<'_, Array>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
    Ok(array.get().make_stream_wait(extract_stream(stream)?)?)
}

/// Returns the number of deferred releases: those that need the interpreter, and those that wait for work on a device.
#[pyfunction]
pub(crate) fn pending_releases() -> usize {
    interop_core::python::deferred_ref_count() + cuda::pending_releases()
}

/// Performs the releases that are due, and returns the number of releases that are still deferred.
#[pyfunction]
pub(crate) fn poll_releases(py: Python<'_>) -> usize {
    cuda::poll_releases();
    interop_core::python::release_deferred_refs(py);
    pending_releases()
}

/// Waits for the devices and performs all releases. Returns the number of releases that are still deferred.
///
/// Releases stay deferred if they are held, or if a graph capture prevents recording their event.
#[pyfunction]
pub(crate) fn finish_releases(py: Python<'_>) -> usize {
    // A released object may own another one that must be released then, such as a view of a view. So this goes on as
    // long as something is released.
    let mut live = usize::MAX;
    loop {
        // Without the interpreter's lock, because work on a device may wait for a host function that needs it.
        py.detach(cuda::finish_releases);
        let (pending, before) = (poll_releases(py), live);
        live = interop_core::live_exports();
        if pending == 0 || live >= before {
            return pending;
        }
    }
}

const POLICIES: [(&str, ReleasePolicy); 2] =
    [("after_context", ReleasePolicy::AfterContext), ("after_all_contexts", ReleasePolicy::AfterAllContexts)];

/// Sets what releases of CUDA memory wait for (`"after_context"`, `"after_all_contexts"`), and returns the previous setting.
#[pyfunction]
pub(crate) fn set_release_policy(name: &str) -> PyResult<&'static str> {
    let policy = value_of(&POLICIES, name)?;
    let before = word_of(&POLICIES, &cuda::release_policy());
    cuda::set_release_policy(policy);
    Ok(before)
}

/// Sets how many bytes of each device may wait for their release before an allocation waits; `None` is the default.
#[pyfunction]
pub(crate) fn set_release_limit(bytes: Option<usize>) -> PyResult<()> {
    Ok(cuda::set_release_limit(bytes)?)
}

/// Sets what is left unordered: releases of CUDA memory, and work whose stream is unknown. Returns the previous setting.
#[pyfunction]
#[pyo3(signature = (*, releases = false, unknown_work = false))]
pub(crate) fn set_unordered(releases: bool, unknown_work: bool) -> (bool, bool) {
    let before = cuda::unordered();
    // SAFETY: the tests that leave something unordered wait for the device, or expect the race.
    unsafe { cuda::set_unordered(Unordered { releases, unknown_work }) };
    (before.releases, before.unknown_work)
}

fn value_of<T: Copy>(table: &[(&str, T)], name: &str) -> PyResult<T> {
    let known = table.iter().find(|(word, _)| *word == name).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let allowed = words(table);
        PyValueError::new_err(format!("`name`: found {name:?}, allowed: {allowed}"))
    })
}

/// Returns the name of a value. The tables contain every value of their type.
fn word_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

/// A context manager that holds releases, for a graph capture on a stream that the driver does not report.
#[pyclass(frozen, module = "interop_demo")]
pub(crate) struct HoldReleases(Mutex<Option<cuda::HoldReleases>>);

#[pymethods]
impl HoldReleases {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn __enter__<'py>(this: &Bound<'py, Self>) -> Bound<'py, Self> {
        let held = this.py().detach(cuda::HoldReleases::new);
        this.get().replace(Some(held));
        this.clone()
    }

    fn __exit__(&self, _class: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) {
        self.replace(None);
    }
}

impl HoldReleases {
    fn replace(&self, guard: Option<cuda::HoldReleases>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = guard;
    }
}
