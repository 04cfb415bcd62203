//! The stream and the arrays of a `LaunchScope`, and the order between them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;

use crate::array::device::{Device, DeviceType};
use crate::array::elements::Elements;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::host_launch::{check_place, is_on_host, not_on_host};
use crate::driver::functions::{driver, is_available};
use crate::driver::stream::{Stream, is_capturing};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::host::cells::check_readable;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, is_shared};
use crate::order::handover::{ArrayWork, later_work};
use crate::order::memory_state::MemoryState;
use crate::order::record::conflict;
use crate::order::uses::Uses;
use crate::order::wait::{Waiter, Work, order};

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
        let notice = move || -> Notice<'a> { Box::new(move |stream| array.note_read(stream)) };
        Self { writes: false, notice: info.state.is_foreign.then(notice) }
    }

    /// Moves it out of a description.
    pub(crate) fn take(&mut self) -> Self {
        Self { writes: self.writes, notice: self.notice.take() }
    }

    /// As [`read`](Self::read), for an array that the scope writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] for a storage of another crate with other handles: its own functions, which the record does
    /// not know, may use the memory meanwhile.
    pub(crate) fn write(array: &'a mut (impl CudaArray + ?Sized), info: &ArrayInfo) -> Result<Self> {
        if !info.state.is_foreign {
            return Ok(Self { writes: true, notice: None });
        }
        if !array.__is_only_handle() {
            return Err(other_handles());
        }
        Ok(Self { writes: true, notice: Some(Box::new(move |stream| array.note_write(stream))) })
    }

    /// The scope writes an array whose storage needs no notice.
    #[cfg(feature = "cuda-core")]
    pub(crate) const WRITE: Self = Self { writes: true, notice: None };
}

/// Returns the handle by which a default stream that the program has named can be used with memory of a device.
pub(crate) type DefaultStream<'a> = Box<dyn Fn(Device) -> Option<StreamHandle> + 'a>;

/// The stream and the arrays of a scope.
#[derive(Default)]
pub(crate) struct ScopeState<'a> {
    /// The stream, once it is known.
    stream: Option<ScopeStream>,
    /// A default stream that was named. The first array tells by which handle it can be used.
    default_stream: Option<DefaultStream<'a>>,
    /// Whether the stream was named by the user.
    is_named: bool,
    arrays: Members<'a>,
    pub(crate) across_devices: bool,
}

/// The arrays of a scope. Many scopes have one, which needs no memory of the heap.
#[derive(Default)]
struct Members<'a> {
    first: Option<Member<'a>>,
    others: Vec<Member<'a>>,
}

impl<'a> Members<'a> {
    fn iter(&self) -> impl Iterator<Item = &Member<'a>> + Clone {
        self.first.iter().chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member<'a>> {
        self.first.iter_mut().chain(&mut self.others)
    }

    fn push(&mut self, member: Member<'a>) {
        if self.first.is_none() {
            self.first = Some(member);
        } else {
            self.others.push(member);
        }
    }

    /// Notes that arrays were used in no other way than in a scope that has ended.
    fn leave_scope(&self) {
        self.iter().filter_map(|member| member.state.uses.as_deref()).for_each(Uses::leave_scope);
    }
}

/// The stream of a scope.
#[derive(Clone, Copy)]
pub(crate) struct ScopeStream {
    pub(crate) stream: Stream,
    /// The device with which it was waited for. Unknown for a stream that was named, until an array tells of it.
    pub(crate) device: Device,
}

impl ScopeStream {
    /// The stream for arrays of a device. A default stream is one of one context from then on, whatever context is current at the
    /// launches and at the end.
    #[inline]
    fn on(self, device: Device) -> Result<Self> {
        if self.stream.is_default() { self.locate(device) } else { Ok(Self { device, ..self }) }
    }

    #[cold]
    fn locate(self, device: Device) -> Result<Self> {
        let stream = self.stream.for_device(device);
        Ok(Self { stream: driver().map_or(Ok(stream), |driver| stream.with_context(driver))?, device })
    }
}

/// An array of a scope.
struct Member<'a> {
    state: MemoryState,
    device: Device,
    address: usize,
    /// Whether this crate knew all work on the array before the scope.
    is_followed: bool,
    /// For a storage of another crate.
    notice: Option<Notice<'a>>,
    writes: bool,
    elements: Elements,
    /// The use in the record of all uses. It ends with the scope.
    claim: Claim,
}

impl<'a> Member<'a> {
    /// The use of an array of these elements by a scope, of which the record knows.
    fn new(info: &ArrayInfo, elements: Elements, scope_use: ScopeUse<'a>, claim: Claim) -> Self {
        let ScopeUse { writes, notice } = scope_use;
        Self {
            state: info.state.clone(),
            device: info.device,
            address: info.unwatched_address,
            is_followed: info.state.followed().is_some(),
            notice,
            writes,
            elements,
            claim,
        }
    }

    fn work(&self) -> ArrayWork<'_> {
        let Self { ref state, is_followed, address, device, .. } = *self;
        ArrayWork { state, is_followed, address, device }
    }

    /// The stream of the array, if it can be that of a scope.
    fn stream(&self) -> Option<Stream> {
        self.state.placement.stream(self.device)
    }

    /// The stream of the array, if all work is on it.
    fn only_stream(&self) -> Option<Stream> {
        self.state.placement.only_stream(self.device)
    }

    /// Whether the array is on a default stream, and in memory of no single device: an array after it tells of which.
    fn is_on_any_default_stream(&self) -> bool {
        self.device.device_type.is_host_accessible() && self.stream().is_none_or(Stream::is_default)
    }

    /// Whether a capture on the stream of the scope orders all work on the array.
    fn is_in_capture(&self) -> bool {
        self.only_stream().is_some() && self.state.of_storage.is_none() && self.notice.is_none()
    }

    /// Whether all work on the array is on the stream of the scope, which orders it.
    fn is_on(&self, scope: Stream) -> bool {
        self.only_stream() == Some(scope) && self.state.of_storage.is_none()
    }

    /// Makes the stream of the scope wait for the work that is pending on the array. What else there is in a graph is ordered
    /// where it is launched.
    fn order_before(&self, scope: Stream, waiter: fn(Stream) -> Waiter) -> Result<()> {
        if self.is_on(scope) {
            return Ok(());
        }
        let is_unknown = !self.state.placement.is_known();
        if !is_available() || is_unknown && is_capturing(scope.handle()) {
            return Ok(());
        }
        self.work().order_before(waiter(scope), &self.claim)
    }

    /// Makes what comes after the scope wait for it. Returns whether the host has to wait instead.
    fn order_after(&self, scope: Stream, is_captured: bool) -> bool {
        if self.is_on(scope) {
            return false;
        }
        let fails = |waiter| order(waiter, Work::Stream(scope)).is_err();
        if is_captured {
            // The graph is ordered where it is launched.
            return self.only_stream().is_some_and(|own| fails(Waiter::Stream(own)));
        }
        // The storage frees the memory in the order of its own stream.
        let MemoryState { placement, ref of_storage, .. } = self.state;
        let streams = [Some(placement), of_storage.as_deref().copied()].into_iter().flatten();
        let mut needs_host = placement.is_nothing() || self.work().misses(scope).unwrap_or(true);
        for own in streams.filter_map(|work| work.stream(self.device)) {
            needs_host |= fails(Waiter::Stream(own));
        }
        if !placement.has_hidden_streams() || needs_host {
            return needs_host;
        }
        match later_work(self.address, self.device) {
            Ok(Waiter::Host) | Err(_) => true,
            Ok(context) => fails(context),
        }
    }

    /// Tells a storage of another crate of the work in the scope. Returns whether its functions are ordered after that.
    fn note(&mut self, scope: ScopeStream) -> bool {
        let Some(notice) = &mut self.notice else { return true };
        scope.stream.handle_here(scope.device).is_some_and(notice)
    }
}

impl<'a> ScopeState<'a> {
    /// On a stream whose handle means it in every context, or as a scope that names none for `NothingPending`.
    pub(crate) fn on(stream: StreamHandle) -> Self {
        let stream = named_stream(stream);
        Self { is_named: stream.is_some(), stream, ..Self::default() }
    }

    /// On a default stream that was named.
    pub(crate) fn on_default(default_stream: DefaultStream<'a>) -> Self {
        Self { default_stream: Some(default_stream), is_named: true, ..Self::default() }
    }

    /// The chosen stream, for messages.
    pub(crate) fn stream(&self) -> Option<StreamHandle> {
        self.stream.map(|scope| scope.stream.handle())
    }

    /// The number of arrays.
    pub(crate) fn len(&self) -> usize {
        self.arrays.iter().count()
    }

    /// Whether the arrays are in memory of the host. Then launches run on the CPU.
    pub(crate) fn is_on_host(&self) -> bool {
        self.arrays.first.as_ref().is_some_and(|first| is_on_host(first.device))
    }

    /// Returns the stream of the scope, and the device of its arrays.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for arrays of the host; as [`stream_wait`](crate::cuda::stream_wait()).
    pub(crate) fn stream_on_device(&mut self) -> Result<ScopeStream> {
        if self.is_on_host() {
            return Err(not_on_host());
        }
        let device = self.device().unwrap_or(Device::cuda(0));
        self.resolve(device)?;
        let scope = if let Some(scope) = self.stream {
            scope
        } else {
            let on_its_device = |member: &Member<'_>| {
                let stream = member.stream().filter(|_| !member.is_on_any_default_stream());
                stream.map(|stream| ScopeStream { stream, device: member.device })
            };
            let any = || self.arrays.iter().find_map(Member::stream);
            let any = || any().map(|stream| ScopeStream { stream, device });
            let stream = self.arrays.iter().find_map(on_its_device).or_else(any);
            self.choose(stream.unwrap_or(ScopeStream { stream: Stream::legacy(None, device), device }))?
        };
        // A default stream is that of the device with which it was waited for.
        let is_known = scope.stream.is_default() && scope.device != Device::UNKNOWN;
        scope.on(if is_known { scope.device } else { device })
    }

    /// Finds the handle of a default stream that was named, for memory of this device.
    fn resolve(&mut self, device: Device) -> Result<()> {
        let Some(default_stream) = &self.default_stream else { return Ok(()) };
        let handle = default_stream(device).ok_or_else(unnamed_default_stream)?;
        (self.stream, self.default_stream) = (named_stream(handle), None);
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
        if info.state.is_open() && info.device != Device::CPU {
            let mut info = info.clone();
            info.state.locate(info.device);
            return self.add_located(&info, scope_use);
        }
        self.add_located(info, scope_use)
    }

    /// Adds an array whose streams no other context changes.
    fn add_located(&mut self, info: &ArrayInfo, scope_use: ScopeUse<'a>) -> Result<()> {
        let elements = info.elements();
        let shared = is_shared(info).then_some(elements);
        self.check_aliases(&elements, scope_use.writes)?;
        check_place(info, self.arrays.first.as_ref().map(|first| first.device), self.is_named)?;
        if is_on_host(info.device) {
            let claim = Claim::by_host(shared, scope_use.writes)?;
            check_readable(info.work(), &claim)?;
            self.push(Member::new(info, elements, scope_use, claim));
            return Ok(());
        }
        self.resolve(info.device)?;
        let own = info.state.placement.only_stream(info.device);
        let device = match self.stream {
            // A stream that was named. The driver is not asked if it is the array's own.
            Some(ScopeStream { stream, device: Device::UNKNOWN }) => {
                let is_own = own.map(Stream::handle) == Some(stream.handle());
                if is_own { None } else { stream.device()? }
            }
            Some(ScopeStream { device, .. }) => Some(device),
            None => None,
        };
        self.check_device(info.device, device)?;
        let scope = self.stream.map(|scope| {
            // A default stream belongs to the device of the first array.
            let is_known = scope.device != Device::UNKNOWN;
            scope.on(if is_known { scope.device } else { device.unwrap_or(info.device) })
        });
        let scope = scope.transpose()?;
        // A library that hides its streams, or a kept array, leaves the choice to an array after it. So does an array on a default
        // stream in memory of no single device.
        let is_on_any = |own: &Stream| info.device.device_type.is_host_accessible() && own.is_default();
        let on = scope.map(|scope| scope.stream).or(own.filter(|own| !is_on_any(own)));
        let claim = Claim::by_device(shared, scope_use.writes, on)?;
        let member = Member::new(info, elements, scope_use, claim);
        // A stream that was named may become part of the capture of an array's stream. The end of the scope joins it again.
        let waiter = if self.is_named { Waiter::StreamIntoCapture } else { Waiter::Stream };
        match (scope, own) {
            (Some(scope), _) => {
                member.order_before(scope.stream, waiter)?;
                self.stream = Some(scope);
            }
            (None, Some(own)) if on.is_some() => {
                member.order_before(own, waiter)?;
                self.choose(ScopeStream { stream: own, device: member.device })?;
            }
            (None, _) => {}
        }
        self.push(member);
        Ok(())
    }

    fn push(&mut self, member: Member<'a>) {
        if let Some(uses) = &member.state.uses {
            uses.enter_scope();
        }
        self.arrays.push(member);
    }

    /// Refuses an array that shares elements with another one of the scope, if one of them is written.
    fn check_aliases(&self, elements: &Elements, writes: bool) -> Result<()> {
        let aliases = |other: &&Member<'_>| (writes || other.writes) && elements.overlap(&other.elements);
        match self.arrays.iter().find(aliases) {
            Some(other) => Err(conflict(&other.elements.range(), other.writes)),
            None => Ok(()),
        }
    }

    /// Sets the stream of the scope, and makes it wait for the arrays that came before.
    fn choose(&mut self, scope: ScopeStream) -> Result<ScopeStream> {
        let scope = scope.on(scope.device)?;
        self.arrays.iter().try_for_each(|member| member.order_before(scope.stream, Waiter::Stream))?;
        self.stream = Some(scope);
        Ok(scope)
    }

    /// Compares the device of an array with that of the arrays before it, or of the stream.
    fn check_device(&self, device: Device, chosen: Option<Device>) -> Result<()> {
        if self.arrays.first.as_ref().is_some_and(|first| first.device == device) {
            return Ok(());
        }
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
        if self.arrays.first.is_none() {
            // The scope has none, or is at its end for the second time, in its drop.
            return Ok(());
        }
        if self.is_on_host() {
            // The kernels have run.
            self.arrays.leave_scope();
            self.arrays = Members::default();
            return Ok(());
        }
        if self.stream.is_none()
            && is_available()
            && self.arrays.iter().any(|member| member.stream().is_some())
        {
            // Nobody has asked for the stream, so the launches were on that of the array.
            self.stream_on_device()?;
        }
        let mut arrays = core::mem::take(&mut self.arrays);
        let Some(scope) = self.stream.filter(|_| is_available()) else {
            arrays.leave_scope();
            return Ok(());
        };
        let stream = scope.stream;
        for uses in arrays.iter().filter_map(|member| member.state.uses.as_ref()) {
            uses.note_work(stream);
        }
        // The driver is asked only if it matters.
        let is_captured = !arrays.iter().all(Member::is_in_capture) && is_capturing(stream.handle());
        let mut needs_host = false;
        for member in arrays.iter() {
            needs_host |= member.order_after(stream, is_captured);
        }
        // Foreign code, so it comes last. Nobody is asked in vain.
        let note = || is_captured || needs_host || arrays.iter_mut().all(|member| member.note(scope));
        let noted = catch_unwind(AssertUnwindSafe(note));
        let mut waited = Ok(());
        if needs_host || !matches!(noted, Ok(true)) {
            waited = order(Waiter::Host, Work::Stream(stream)).map(drop);
        }
        // Arrays that nothing waits for stay in use.
        if waited.is_ok() {
            arrays.leave_scope();
        }
        match noted {
            Err(panic) if !panicking() => resume_unwind(panic),
            _ => waited,
        }
    }
}

/// A stream whose device no array has told yet.
fn named_stream(handle: StreamHandle) -> Option<ScopeStream> {
    let device = Device::UNKNOWN;
    Some(ScopeStream { stream: Stream::new(handle, None, device)?, device })
}

#[cold]
fn other_handles() -> Error {
    let found = "a storage of another crate that other handles share, in an `Arc` for example";
    let allowed = "the only handle, because the functions of that crate may use the memory meanwhile";
    let error = Error::new(ErrorKind::AlreadyBorrowed, "data", found, allowed);
    error.with_rust_hint("drop the other handles, or write an `Arc<CudaBuffer>`, which this crate follows")
}

#[cold]
pub(crate) fn unnamed_default_stream() -> Error {
    let found = "a default stream of a context that is not current, which no handle means here";
    let allowed = "a default stream of the current context, or another stream";
    let error = Error::new(ErrorKind::Stream, "stream", found, allowed);
    error.with_rust_hint("make its context current, or name a stream: `LaunchScope::on(&stream)`")
}
