//! Memory that CUDA reaches: where a new array goes, the stream that last wrote it, and the switches of order and release.
#![expect(unsafe_code, reason = "a stream is kept as its number, and a kernel fills memory")]

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use interop_core::cuda::{self, CudaBuffer, MemoryKind, MissingStreamPolicy, ReleasePolicy};
use interop_core::python::extract_stream;
use interop_core::{
    AsStream, CudaArray, Device, Element, Error, ErrorKind, FromStream, HostVec, MemoryRegion, Result,
    SharedBuffer, Storage, StreamHandle,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::launch;

/// Where a new array goes: `device` and `ordinal` of `Array.full`.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// `None` for host memory that CUDA knows nothing of.
    kind: Option<MemoryKind>,
    ordinal: i32,
}

/// The words for kinds of memory.
const KINDS: [(&str, Option<MemoryKind>); 5] = [
    ("cpu", None),
    ("cuda", Some(MemoryKind::Device)),
    ("pool", Some(MemoryKind::Pool)),
    ("pinned", Some(MemoryKind::Pinned)),
    ("managed", Some(MemoryKind::Managed)),
];

impl Place {
    /// The place that the arguments `device` and `ordinal` name.
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

    /// New memory there of elements that are all `value`, and the stream on which it is filled: that of a kernel, in memory
    /// that only devices reach.
    pub(crate) fn filled<T: Element>(self, len: usize, value: T) -> Result<(SharedBuffer, StreamHandle)> {
        if let Some(kind @ (MemoryKind::Device | MemoryKind::Pool)) = self.kind
            && len > 0
        {
            // SAFETY: filled by the kernel, on whose stream all users of the array come later; else dropped.
            let buffer = unsafe { CudaBuffer::uninit::<T>(kind, self.ordinal, len) }?;
            let MemoryRegion { address, device, .. } = buffer.memory();
            // SAFETY: an element without padding, as numbers are, is its bytes.
            let bytes = unsafe { slice::from_raw_parts((&raw const value).cast(), size_of::<T>()) };
            // SAFETY: the memory is new, and has so many elements.
            if unsafe { launch::fill(device, address, len, bytes) }? {
                return Ok((SharedBuffer::new(buffer), StreamHandle::LegacyDefault));
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

/// The stream on which memory was last written, one for an array and all its views: whoever gets the memory through
/// any of them waits for the kernel that was launched through another. Host memory has no stream, and none to share.
#[derive(Clone, Debug)]
pub(crate) struct LastStream(Option<Arc<AtomicUsize>>);

/// No stream has this handle.
const NOTHING_PENDING: usize = 0;

/// The words for the per-thread default streams are odd, as no address of a stream is: from this one on, two a thread.
/// (1 is the legacy default stream.)
const OF_THREADS: usize = 3;

/// The word for the default stream of this thread, which is another on every other.
fn of_this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static WORD: usize = OF_THREADS + 2 * THREADS.fetch_add(1, Ordering::Relaxed);
    }
    WORD.with(|word| *word)
}

impl LastStream {
    /// Of memory on this device, where nothing is pending yet.
    pub(crate) fn on(device: Device) -> Self {
        Self((device != Device::CPU).then(Arc::default))
    }

    /// The same for another array in this memory, which has just come in. What is pending was ordered before the stream that
    /// it came in for, which is what both go on with if it was `named`.
    pub(crate) fn shared_with(&self, came_for: StreamHandle, named: bool) -> Self {
        if named && came_for != StreamHandle::NothingPending {
            self.set(came_for);
        }
        self.clone()
    }

    /// The memory has been written on `stream`.
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
            // SAFETY: what `set` was told, which the array's producer keeps as the protocols ask.
            word if word < OF_THREADS || word % 2 == 0 => unsafe { StreamHandle::from_raw(word) },
            word if word == of_this_thread() => StreamHandle::PerThreadDefault,
            // Nothing names that of another thread; the legacy default stream comes after those of all threads.
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

/// The number of releases that wait: for a thread that has the interpreter, or for work on a device.
#[pyfunction]
pub(crate) fn pending_releases() -> usize {
    interop_core::python::deferred_ref_count() + cuda::pending_releases()
}

/// Releases what is due, and says how many releases still wait.
#[pyfunction]
pub(crate) fn poll_releases(py: Python<'_>) -> usize {
    cuda::poll_releases();
    interop_core::python::release_deferred_refs(py);
    pending_releases()
}

/// Waits for the devices until everything can be released, releases it, and says how many releases still wait: those that
/// are held, or that a capture keeps from being decided.
#[pyfunction]
pub(crate) fn finish_releases(py: Python<'_>) -> usize {
    // What is released may own what is to be released in its turn, such as a view of a view.
    const LONGEST_CHAIN: usize = 16;
    for _ in 0..LONGEST_CHAIN {
        // Without the interpreter's lock: work on a device may wait for a host function that needs it.
        py.detach(cuda::finish_releases);
        if poll_releases(py) == 0 {
            break;
        }
    }
    pending_releases()
}

const POLICIES: [(&str, ReleasePolicy); 4] = [
    ("after_context", ReleasePolicy::AfterContext),
    ("after_all_contexts", ReleasePolicy::AfterAllContexts),
    ("batched", ReleasePolicy::Batched),
    ("immediate", ReleasePolicy::Immediate),
];

const UNSTATED: [(&str, MissingStreamPolicy); 3] = [
    ("wait_for_all", MissingStreamPolicy::WaitForAll),
    ("legacy_default", MissingStreamPolicy::LegacyDefault),
    ("nothing_pending", MissingStreamPolicy::NothingPending),
];

/// Sets what releases of CUDA memory come after (`"after_context"`, `"after_all_contexts"`, `"batched"`, `"immediate"`),
/// and says what it was.
#[pyfunction]
pub(crate) fn set_release_policy(name: &str) -> PyResult<&'static str> {
    let policy = value_of(&POLICIES, name)?;
    let before = word_of(&POLICIES, &cuda::release_policy());
    cuda::set_release_policy(policy);
    Ok(before)
}

/// Sets what is ordered before work on arrays whose producer names no stream (`"wait_for_all"`, `"legacy_default"`,
/// `"nothing_pending"`), and says what it was.
#[pyfunction]
pub(crate) fn set_missing_stream_policy(name: &str) -> PyResult<&'static str> {
    let policy = value_of(&UNSTATED, name)?;
    let before = word_of(&UNSTATED, &cuda::missing_stream_policy());
    cuda::set_missing_stream_policy(policy);
    Ok(before)
}

fn value_of<T: Copy>(table: &[(&str, T)], name: &str) -> PyResult<T> {
    let known = table.iter().find(|(word, _)| *word == name).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let allowed = words(table);
        PyValueError::new_err(format!("`name`: found {name:?}, allowed: {allowed}"))
    })
}

/// The tables have every value of their type.
fn word_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

/// Holds releases while a graph is captured on a stream that the driver does not show: a context manager.
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
