//! The stream and the arrays of a `LaunchScope`, and the order between them.

use core::ops::Range;
use std::sync::Arc;

use crate::array::info::ArrayInfo;
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::driver::device::{Device, DeviceType};
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::driver::stream_wait::{Fork, StreamOnDevice, stream_here};
use crate::driver::uses::Uses;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::shared_range;
use crate::memory::borrow_registry::{Borrow, already_borrowed};

/// Tells a storage of another crate, at the end of a scope, on which stream its memory was used. Returns whether the crate's
/// own methods order later work after that.
pub(crate) type Notice<'a> = Box<dyn FnMut(StreamHandle) -> bool + 'a>;

/// How a scope uses an array.
pub(crate) struct ScopeUse<'a> {
    writes: bool,
    /// Storages of this crate need none.
    notice: Option<Notice<'a>>,
}

impl<'a> ScopeUse<'a> {
    /// The scope reads the array of this description.
    pub(crate) fn read(array: &'a (impl CudaArray + ?Sized), info: &ArrayInfo) -> Self {
        let notice = move || -> Notice<'a> { Box::new(move |stream| array.__note_read(stream)) };
        Self { writes: false, notice: info.is_foreign.then(notice) }
    }

    /// As [`read`](Self::read), for an array that the scope writes.
    pub(crate) fn write(array: &'a mut (impl CudaArray + ?Sized), info: &ArrayInfo) -> Self {
        let notice = move || -> Notice<'a> { Box::new(move |stream| array.__note_write(stream)) };
        Self { writes: true, notice: info.is_foreign.then(notice) }
    }

    /// The scope writes an array whose storage needs no notice.
    #[cfg(feature = "cuda-core")]
    pub(crate) const WRITE: Self = Self { writes: true, notice: None };
}

/// Returns the handle by which a default stream that the program has named can be used with memory of a device.
pub(crate) type Named<'a> = Box<dyn Fn(Device) -> Option<StreamHandle> + 'a>;

/// The stream and the arrays of a scope.
#[derive(Default)]
pub(crate) struct ScopeState<'a> {
    /// The stream and the device that selects its context, once they are known.
    stream: Option<StreamOnDevice>,
    /// A default stream that was named. The first array tells by which handle it can be used.
    named: Option<Named<'a>>,
    /// Whether the stream was named by the user.
    is_named: bool,
    arrays: Vec<Member<'a>>,
    /// The addresses in the arguments that the scope has returned.
    pub(crate) arguments: Vec<u64>,
    pub(crate) across_devices: bool,
}

/// An array of a scope.
struct Member<'a> {
    pending: PendingWork,
    /// The work that the storage knows of, if a `stream` field names another stream.
    of_storage: Option<PendingWork>,
    device: Device,
    address: usize,
    uses: Option<Arc<Uses>>,
    /// Whether this crate knew all work on the array before the scope.
    is_followed: bool,
    /// For a storage of another crate.
    notice: Option<Notice<'a>>,
    writes: bool,
    elements: Elements,
    /// The access in the record that scopes and host views share.
    #[expect(dead_code, reason = "it ends with the scope")]
    borrow: Option<Borrow>,
}

/// The bytes of an array: pieces of `item` bytes, in steps that are multiples of `step` bytes.
#[derive(Clone)]
struct Elements {
    range: Range<usize>,
    item: usize,
    step: usize,
}

impl Elements {
    fn new(info: &ArrayInfo) -> Self {
        let (range, bits) = (info.span(), info.dtype().item_bits(info.is_padded()));
        let item = bits.div_ceil(8);
        if bits % 8 != 0 || range.len() == info.numel() * item {
            // Elements without gaps are one piece.
            return Self { item: range.len(), range, step: 0 };
        }
        let steps = info.shape().iter().zip(info.strides()).filter(|(extent, _)| **extent > 1);
        let step = steps.fold(0, |all, (_, step)| gcd(all, step.unsigned_abs().saturating_mul(item)));
        Self { range, item, step }
    }

    /// Whether two arrays have a byte in common. Columns of one array, and rows in turns, have none.
    fn overlap(&self, other: &Self) -> bool {
        if self.range.end <= other.range.start || other.range.end <= self.range.start {
            return false;
        }
        let step = gcd(self.step, other.step);
        if step == 0 {
            return true;
        }
        // Where the pieces of `other` begin, within the steps of `self`.
        let offset = (other.range.start % step + step - self.range.start % step) % step;
        offset < self.item || offset + other.item > step
    }
}

fn gcd(one: usize, two: usize) -> usize {
    if two == 0 { one } else { gcd(two, one % two) }
}

impl<'a> Member<'a> {
    /// Starts the use of an array.
    fn new(info: &ArrayInfo, ScopeUse { writes, notice }: ScopeUse<'a>) -> Result<Self> {
        let is_followed = info.followed().is_some();
        // An argument of a call is ordered by its library, with other calls.
        let is_argument = info.has_one_handle && is_followed && info.device.device_type == DeviceType::CUDA;
        let shared = shared_range(info).filter(|_| !is_argument);
        Ok(Self {
            pending: info.pending,
            of_storage: info.of_storage(),
            device: info.device,
            address: info.address,
            uses: info.uses.clone(),
            is_followed,
            notice,
            writes,
            elements: Elements::new(info),
            borrow: Borrow::from_shared(shared, writes)?,
        })
    }
}

impl Member<'_> {
    /// Whether the array is on a stream that can be that of a scope.
    fn has_stream(&self) -> bool {
        self.pending.name().is_some() && !self.pending.is_nothing()
    }

    /// Whether all work on the array is on one stream, which can wait.
    fn has_only_stream(&self) -> bool {
        self.has_stream() && self.pending.only_name().is_some()
    }

    /// Whether the array is on a default stream, and in memory of no single device: an array after it tells of which.
    fn is_on_any_default_stream(&self) -> bool {
        self.device.device_type.is_host_accessible()
            && !matches!(self.pending.name(), Some(StreamHandle::Raw(_)))
    }

    fn on(&self, work: PendingWork) -> StreamOnDevice {
        (work, self.device)
    }

    /// Whether a capture on the stream of the scope orders all work on the array.
    fn is_in_capture(&self) -> bool {
        self.has_only_stream() && self.of_storage.is_none() && self.notice.is_none()
    }

    /// Makes the stream of the scope wait for the work that is pending on the array.
    fn make_scope_wait(&self, scope: StreamOnDevice, fork: Fork) -> Result<()> {
        if !cuda::is_available() {
            return Ok(());
        }
        // What else there is in a graph is ordered where it is launched.
        let is_captured = || scope.0.name().is_some_and(cuda::captures);
        match self.of_storage {
            Some(_) if is_captured() => {}
            Some(work) if work.name().is_some() => {
                cuda::wait_between(scope, self.on(work), Fork::Refused)?;
            }
            Some(_) => self.make_scope_wait_for_unknown(scope, self.uses.as_deref())?,
            None => {}
        }
        match self.pending.only_name() {
            Some(_) => cuda::wait_between(scope, self.on(self.pending), fork),
            None if is_captured() => Ok(()),
            None => {
                let followed = self.uses.as_deref().filter(|_| self.is_followed);
                self.make_scope_wait_for_unknown(scope, followed)
            }
        }
    }

    fn make_scope_wait_for_unknown(&self, scope: StreamOnDevice, known: Option<&Uses>) -> Result<()> {
        let waiter = scope.0.name().unwrap_or(StreamHandle::LegacyDefault);
        cuda::make_stream_wait_for_unknown(waiter, self.address, self.device, known)
    }

    /// Makes what comes after the scope wait for it. Returns whether the host has to wait instead.
    fn join(&mut self, scope: StreamOnDevice, is_captured: bool) -> bool {
        if is_captured {
            // The graph is ordered where it is launched.
            return self.has_only_stream() && self.make_wait(self.pending, scope).is_err();
        }
        let mut needs_host = false;
        match self.pending.name() {
            // Whoever uses the array next waits for all work.
            None => {}
            Some(StreamHandle::NothingPending) => needs_host = true,
            Some(_) => needs_host |= self.make_wait(self.pending, scope).is_err(),
        }
        // The storage frees the memory in the order of its own stream.
        if let Some(own) = self.of_storage.filter(|work| work.name().is_some()) {
            needs_host |= self.make_wait(own, scope).is_err();
        }
        if self.pending.has_hidden_streams() {
            // The library does not name its stream: later work of the context waits, if it is device memory.
            let is_ordered = !self.device.device_type.is_host_accessible()
                && cuda::make_context_wait((self.address, self.device), scope).unwrap_or(false);
            needs_host |= !is_ordered;
        }
        if let Some(notice) = &mut self.notice {
            needs_host |= !stream_here(scope.0, scope.1).is_some_and(notice);
        }
        needs_host
    }

    fn make_wait(&self, own: PendingWork, scope: StreamOnDevice) -> Result<()> {
        cuda::wait_between(self.on(own), scope, Fork::Refused)
    }
}

impl<'a> ScopeState<'a> {
    /// On a stream whose handle means it in every context.
    pub(crate) fn on(stream: StreamHandle) -> Self {
        Self { stream: Some((PendingWork::on(stream), Device::UNKNOWN)), is_named: true, ..Self::default() }
    }

    /// On a default stream that was named.
    pub(crate) fn on_default(named: Named<'a>) -> Self {
        Self { named: Some(named), is_named: true, ..Self::default() }
    }

    /// The chosen stream, for messages.
    pub(crate) fn stream(&self) -> Option<PendingWork> {
        self.stream.map(|(stream, _)| stream)
    }

    /// The number of arrays.
    pub(crate) fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Returns the stream of the scope, and the device of its arrays.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`].
    pub(crate) fn stream_on_device(&mut self) -> Result<StreamOnDevice> {
        let device = self.device().unwrap_or(Device::cuda(0));
        self.resolve(device)?;
        let (stream, of) = if let Some(stream) = self.stream {
            stream
        } else {
            let on_its_device =
                |member: &&Member<'_>| member.has_stream() && !member.is_on_any_default_stream();
            let chosen = self.arrays.iter().find(on_its_device).map(|member| member.on(member.pending));
            let any = || self.arrays.iter().find(|member| member.has_stream());
            let stream = chosen.or_else(|| any().map(|member| (member.pending, device)));
            let default = || PendingWork::on_default_stream(device, None).map(|stream| (stream, device));
            self.choose(stream.map_or_else(default, Ok)?)?
        };
        // A default stream is that of the device with which it was waited for.
        let is_default = !matches!(stream.name(), Some(StreamHandle::Raw(_)));
        Ok((stream, if is_default && of != Device::UNKNOWN { of } else { device }))
    }

    /// Finds the handle of a default stream that was named, for memory of this device.
    fn resolve(&mut self, device: Device) -> Result<()> {
        let Some(named) = &self.named else { return Ok(()) };
        let handle = named(device).ok_or_else(unnamed_default_stream)?;
        self.stream = Some((PendingWork::on(handle), Device::UNKNOWN));
        self.named = None;
        Ok(())
    }

    /// The device of the arrays, if one of them is on a device.
    fn device(&self) -> Option<Device> {
        let mut devices = self.arrays.iter().map(|member| member.device);
        let first = devices.clone().next();
        devices.find(|device| device.device_type == DeviceType::CUDA).or(first)
    }

    /// Adds the array of a description.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] for memory that another array of this scope, another scope or a host view uses, if one of
    /// them writes; otherwise as [`LaunchScope::read`](crate::LaunchScope::read).
    pub(crate) fn add(&mut self, info: &ArrayInfo, scope_use: ScopeUse<'a>) -> Result<()> {
        let member = Member::new(info, scope_use)?;
        self.check_aliases(&member)?;
        self.resolve(member.device)?;
        let device = match self.stream {
            // A stream that was named. The driver is not asked if it is the array's own.
            Some((stream, Device::UNKNOWN)) if member.pending.only_name() != stream.name() => {
                cuda::device_of_stream(stream)?
            }
            Some((_, Device::UNKNOWN)) | None => None,
            Some((_, device)) => Some(device),
        };
        self.check_device(member.device, device)?;
        // A stream that was named may become part of the capture of an array's stream. The end of the scope joins it again.
        let fork = if self.is_named { Fork::Allowed } else { Fork::Refused };
        match self.stream {
            Some((stream, Device::UNKNOWN)) => {
                // A default stream belongs to the device of the first array.
                let device = device.unwrap_or(member.device);
                member.make_scope_wait((stream, device), fork)?;
                self.stream = Some((stream, device));
            }
            Some(stream) => member.make_scope_wait(stream, fork)?,
            // A library that hides its streams, or a kept array, leaves the choice to an array after it.
            None if member.has_only_stream() && !member.is_on_any_default_stream() => {
                member.make_scope_wait(member.on(member.pending), fork)?;
                self.choose(member.on(member.pending))?;
            }
            None => {}
        }
        if let Some(uses) = &member.uses {
            uses.enter_scope();
        }
        self.arrays.push(member);
        Ok(())
    }

    /// Refuses an array that shares elements with another one of the scope, if one of them is written.
    fn check_aliases(&self, member: &Member<'_>) -> Result<()> {
        let aliases =
            |other: &&Member<'_>| (member.writes || other.writes) && member.elements.overlap(&other.elements);
        match self.arrays.iter().find(aliases) {
            Some(other) => Err(already_borrowed(&other.elements.range, other.writes)),
            None => Ok(()),
        }
    }

    /// Sets the stream of the scope, and makes it wait for the arrays that came before.
    fn choose(&mut self, stream: StreamOnDevice) -> Result<StreamOnDevice> {
        self.arrays.iter().try_for_each(|member| member.make_scope_wait(stream, Fork::Refused))?;
        self.stream = Some(stream);
        Ok(stream)
    }

    /// Compares the device of an array with that of the arrays before it, or of the stream.
    fn check_device(&self, device: Device, chosen: Option<Device>) -> Result<()> {
        let own = self.device().or(chosen).filter(|own| own.device_type == DeviceType::CUDA);
        match own {
            Some(own) if device.device_type == DeviceType::CUDA && own != device && !self.across_devices => {
                let allowed = text!("{own}, where the scope is");
                let error = Error::new(ErrorKind::Device, "device", device, allowed);
                Err(error.with_rust_hint(
                    "write `LaunchScope::new().across_devices()` if the program has enabled peer access",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Makes the streams of all arrays wait for the scope.
    ///
    /// # Errors
    ///
    /// As [`LaunchScope::finish`](crate::LaunchScope::finish).
    pub(crate) fn join(&mut self) -> Result<()> {
        if self.stream.is_none() && cuda::is_available() && self.arrays.iter().any(Member::has_stream) {
            // Nobody has asked for the stream, so the launches were on that of the array.
            self.stream_on_device()?;
        }
        let mut arrays = core::mem::take(&mut self.arrays);
        let Some(scope) = self.stream.filter(|_| cuda::is_available()) else {
            leave(&arrays);
            return Ok(());
        };
        for uses in arrays.iter().filter_map(|member| member.uses.as_ref()) {
            uses.note_work(scope);
        }
        // The driver is asked only if it matters.
        let is_captured =
            !arrays.iter().all(Member::is_in_capture) && scope.0.name().is_some_and(cuda::captures);
        let mut needs_host = false;
        for member in &mut arrays {
            needs_host |= member.join(scope, is_captured);
        }
        if needs_host {
            cuda::synchronize_stream_of(scope)?;
        }
        leave(&arrays);
        Ok(())
    }
}

#[cold]
pub(crate) fn unnamed_default_stream() -> Error {
    let found = "a default stream of a context that is not current, which no handle means here";
    let allowed = "a default stream of the current context, or another stream";
    let error = Error::new(ErrorKind::Stream, "stream", found, allowed);
    error.with_rust_hint("make its context current, or name a stream: `LaunchScope::on(&stream)`")
}

/// Notes that arrays were used in no other way than in a scope that has ended.
fn leave(arrays: &[Member<'_>]) {
    arrays.iter().filter_map(|member| member.uses.as_deref()).for_each(Uses::leave_scope);
}
