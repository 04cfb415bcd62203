//! An imported array: its checked description and the owner of its memory.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]
#![expect(clippy::inline_always, reason = "an import is written in place, see `ImportSlot`")]

use core::fmt;
use core::ptr::NonNull;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::array::description::Description;
use crate::array::device::{Device, DeviceType};
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::Context;
use crate::driver::functions::{driver, is_available};
use crate::driver::reach::Reach;
use crate::driver::stream::{Stream, capture_error, is_capturing};
use crate::error::{Error, Origin, Refused, Result};
use crate::order::array_info::ArrayInfo;
use crate::order::claim::Claim;
use crate::order::default_streams::legacy_stream;
use crate::order::handover::hand_over;
use crate::order::memory_check::{self, Verification};
use crate::order::memory_state::MemoryState;
use crate::order::owned_memory::OwnedMemory;
use crate::order::placement::{Change, Placement};
use crate::order::release::owner::Owner;
use crate::order::release::queue::poll_in_passing;
use crate::order::uses::Uses;
use crate::order::wait::{Waiter, Work, order};
use crate::process::settings::unordered;

/// An imported array: a checked description and the owner that keeps its memory alive. All protocols import to this
/// type.
///
/// [`FromArray::from_import`](crate::derive::from_array::FromArray::from_import) creates a derived struct from it.
/// Dropping it releases the memory.
pub struct Import {
    pub(crate) info: ArrayInfo,
    pub(crate) owner: Owner,
    /// The work that the struct's `stream` field states, if it has one.
    pub(crate) stream_field: Option<Placement>,
    pub(crate) protocol: Option<Protocol>,
    /// Where the array is from, for errors.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Called before the memory is used in place for writing.
    pub(crate) write_notice: Option<WriteNotice>,
}

/// Tells the library of an array that Rust may write to it from now on.
pub(crate) type WriteNotice = Box<dyn FnOnce() -> Result<()> + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The protocol by which an array was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange table of a Python object's type.
    ExchangeTable,
    /// A versioned DLPack tensor.
    DlpackVersioned,
    /// A legacy DLPack tensor, which cannot state whether it may be written.
    DlpackLegacy,
    /// A CUDA Array Interface.
    CudaArrayInterface,
    /// Python's buffer protocol, for host memory that is not exported by DLPack.
    Buffer,
    /// The C struct of a `NumPy` array.
    NumPy,
}

impl Import {
    /// An import of nothing.
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self::new(
            ArrayInfo::new(Description::empty(), MemoryState::new(Placement::Nothing)),
            Owner::none(),
            None,
        )
    }

    #[inline(always)]
    pub(crate) const fn new(info: ArrayInfo, owner: Owner, protocol: Option<Protocol>) -> Self {
        Self { info, owner, stream_field: None, protocol, origin: None, write_notice: None }
    }

    /// Creates an import from a checked description and the owner of the memory.
    ///
    /// The driver is not asked about the address. The owner of CUDA memory is dropped after pending work on the device,
    /// see [`ReleasePolicy`](crate::cuda::ReleasePolicy).
    ///
    /// # Safety
    ///
    /// 1. Until `owner` is dropped, the memory that `info` describes is live and initialized, on the device that it
    ///    names. The memory may be written if `info` states so.
    /// 2. The memory is not in a `Box` that was moved into `owner` after its address was taken, because a move of a
    ///    `Box` invalidates pointers into it. A `Vec` or an `Arc` is fine.
    /// 3. Work that is pending on device memory comes before later work on the stream that `info` states, which is live as
    ///    long as the import is. If it states none ([`RawDescriptor::stream`](crate::protocols::RawDescriptor::stream) is
    ///    `None`), the work is in the context of the memory, and users of the import wait for all work there.
    #[must_use]
    #[inline]
    pub unsafe fn from_parts(info: ArrayInfo, owner: Owner) -> Self {
        // The owner of an earlier import already has its reach.
        let reach = owner.reach().or_else(|| memory_check::reach_in_use(&info));
        let owner = owner.with_reach(reach);
        let placement = info.state.on_one_stream().next(Change::Stored).located(info.device);
        let release_is_ordered = info.state.release_is_ordered;
        let state = MemoryState { release_is_ordered, ..MemoryState::new(placement) };
        Self::new(ArrayInfo::new(info.description, state), owner, None)
    }

    /// Says where the array is from, for errors about it, such as the name of a parameter. A Python object's class follows.
    ///
    /// ```
    /// use interop_core::{CudaArray, FromArray, Import, dispatch};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let tensor = Row { values: vec![1_u8], len: 1 }.into_dlpack()?;
    /// let array = Import::from_dlpack(tensor)?.with_origin("argument `weights`");
    /// let refused = dispatch!(array, [f32, f64], T => Row::<Vec<T>>::from_import(array)?.len);
    /// let expected = "`dtype`: found uint8, allowed: float32, float64 (from argument `weights`)";
    /// assert_eq!(refused.unwrap_err().to_string(), expected);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn with_origin(mut self, origin: impl fmt::Display) -> Self {
        let (text, library) = match &self.origin {
            Some(object) => (format!("{origin}, {}", object.text), object.library),
            None => (origin.to_string(), ""),
        };
        self.origin = Some(Arc::new(Origin { text, library }));
        self
    }

    /// Adds where the array is from, if that is known, to an error about it.
    pub(crate) fn add_origin(&self, error: Error) -> Error {
        match &self.origin {
            Some(origin) => error.with_object(origin),
            None => error,
        }
    }

    /// Tells the library of the array that the memory is used in place for writing from now on.
    ///
    /// # Errors
    ///
    /// If the library does not accept that.
    #[inline]
    pub(crate) fn announce_write(&mut self) -> Result<()> {
        self.write_notice.take().map_or(Ok(()), |notice| notice())
    }

    /// Returns the placement of memory that a storage uses in place, so that the host does not read what a kernel still writes.
    ///
    /// An import on its caller's stream stays there. Other device memory has its pending work on the legacy default
    /// stream, which is made to wait for the import's stream: that one may be destroyed later, or be the default stream of
    /// another thread. Pinned and managed memory belongs to no single device, so the host waits for its work here. A `stream`
    /// field of the struct states the work itself.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize()).
    #[inline]
    fn stored_placement(&mut self) -> Result<Placement> {
        let placement = self.info.state.placement;
        if placement.is_nothing() || placement.is_argument() || self.is_settled() {
            return Ok(placement.next(Change::Stored));
        }
        if self.stream_field.is_some() {
            return Ok(placement.next(Change::StoredBesideField));
        }
        self.placement_on_default_stream()
    }

    #[cold]
    fn placement_on_default_stream(&mut self) -> Result<Placement> {
        let device = self.info.device;
        match device.device_type {
            DeviceType::CPU => return Ok(self.info.state.placement),
            DeviceType::CUDA => {}
            _ => {
                let finished = self.info.state.placement.next(Change::Ordered(None));
                return self.synchronize().map(|()| finished);
            }
        }
        let Some(stream) = self.known_stream()? else { return Ok(self.info.state.placement) };
        let placement = self.info.state.placement;
        let mut context = stream.context_of_default();
        if stream.handle() != StreamHandle::LegacyDefault {
            // Without a driver no work is pending.
            if !is_available() {
                return Ok(placement.next(Change::Ordered(None)));
            }
            // Work on the array belongs to the graph, and no stream outside of the capture may wait.
            if is_capturing(stream.handle()) {
                return Ok(placement);
            }
            // The one that orders the blocking streams of the library, whatever context is current.
            context = stream.own_context(driver()?)?.or(context);
            order(Waiter::Stream(Stream::legacy(context, device)), Work::Stream(stream))?;
        }
        Ok(placement.next(Change::Ordered(Some(legacy_stream(device, context)?))))
    }

    /// Returns the stream of pending work. If it is unknown, the legacy default stream of the memory's context is first made to
    /// wait for all work that there may be. `None` if nothing is pending.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()).
    #[inline]
    pub(crate) fn known_stream(&mut self) -> Result<Option<Stream>> {
        if self.info.state.placement.is_unknown() {
            self.wait_for_unknown()?;
        }
        Ok(self.info.state.placement.stream(self.info.device))
    }

    #[cold]
    fn wait_for_unknown(&mut self) -> Result<()> {
        let (device, context) = (self.info.device, self.context());
        self.make_wait_for_unknown(StreamHandle::LegacyDefault)?;
        self.change(Change::Ordered(Some(legacy_stream(device, context)?)));
        Ok(())
    }

    /// Changes the placement by the table of changes.
    #[inline]
    pub(crate) fn change(&mut self, event: Change) {
        self.info.state.placement = self.info.state.placement.next(event);
    }

    /// Makes a stream wait for the work on the memory of which nobody knows the stream.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()).
    #[cold]
    pub(crate) fn make_wait_for_unknown(&self, stream: StreamHandle) -> Result<()> {
        match self.owner.reach() {
            Some(reach) => {
                let waiter = Stream::new(stream, self.context(), self.info.device);
                order(waiter.into(), Work::All(reach)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Prepares the import for a struct that is kept after the call that imported it.
    ///
    /// An argument is on the stream on which the caller works. That stream may be destroyed after the call, and the caller's
    /// library works on, on any stream. So the stream of the array is unknown from then on: whoever uses it waits for all
    /// work of the memory's context. A [`LaunchScope`](crate::derive::launch_scope::LaunchScope) also makes all later work
    /// wait for it. [`Kept`](crate::derive::kept::Kept) does this for an argument, and `#[cuda_array(pyclass)]` for a class.
    ///
    /// An import on another stream than its caller's, or on a stream that the caller has named, stays there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StreamCapture`](crate::error::ErrorKind::StreamCapture) if the stream captures a graph.
    pub fn settle(&mut self) -> Result<()> {
        let placement = self.info.state.placement;
        match placement {
            Placement::Callers(stream) if is_capturing(stream.handle()) => {
                return Err(capture_error(stream.handle(), "an array that is kept after the call"));
            }
            Placement::Callers(_) => poll_in_passing(),
            Placement::Named(stream) => self.put_on_ordered_stream(Some(stream), None),
            _ => return Ok(()),
        }
        self.info.state.note_used();
        self.info.state.placement = placement.next(Change::Kept);
        Ok(())
    }

    /// Whether the import has [settled](Self::settle).
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.info.state.placement, Placement::Settled(_))
    }

    /// Returns whether no work is pending, or the struct stores the stream with pending work.
    #[inline]
    pub(crate) fn is_stream_known(&self) -> bool {
        self.info.state.placement.is_nothing() || self.stream_field.is_some()
    }

    /// Waits on the host for pending work.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_synchronize`](crate::cuda::stream_synchronize()).
    #[cold]
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        if !self.info.state.placement.handle().is_some_and(is_capturing) {
            let claim = Claim::asked(&self.info, None)?;
            self.info.work().order_before(Waiter::Host, claim)?;
            self.change(Change::Stated(None));
        }
        Ok(())
    }

    /// The context of the memory, if it is known.
    pub(crate) fn context(&self) -> Option<Context> {
        self.owner.reach().and_then(Reach::own)
    }

    /// Leaves the release to the library that owns the memory: no context is made current for it, and the capture mode
    /// is not changed.
    #[cfg(feature = "python")]
    pub(crate) fn leave_to_its_owner(&mut self) {
        if let Some(reach) = self.owner.reach().filter(|reach| *reach != Reach::NONE) {
            self.owner = core::mem::take(&mut self.owner).with_reach(Some(reach.without_context()));
        }
    }

    /// Takes the memory for a storage that uses it in place. The import has no elements afterwards.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize()).
    #[inline]
    pub(crate) fn take_memory(&mut self) -> Result<OwnedMemory> {
        let placement = self.stored_placement()?;
        let uses = self.info.state.uses.take();
        Ok(OwnedMemory::new(self.take_owner(), placement, uses))
    }

    /// Takes the owner of the memory. The import has no elements afterwards, so nobody reaches the memory by it.
    #[inline]
    pub(crate) fn take_owner(&mut self) -> Owner {
        self.info.description.forget_elements();
        core::mem::take(&mut self.owner)
    }

    /// Returns the stream for a copy of the elements. If the struct has a `stream` field, also returns the release
    /// reach of the source: the copy may then still be pending on return, because the struct contains its stream. It may
    /// not if the library could meanwhile write the memory on a stream that nobody knows.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()).
    pub(crate) fn copy_stream(&mut self) -> Result<(Option<Stream>, Option<Reach>)> {
        let own = self.known_stream()?;
        let may_change = self.info.state.placement.has_hidden_streams();
        Ok(match self.stream_field.and_then(Placement::last) {
            None => (own, None),
            Some(field) => (Some(field), self.owner.reach().filter(|_| !may_change)),
        })
    }

    /// Makes the import's own stream wait for a copy of the elements on another one.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()).
    pub(crate) fn wait_for_copy(&self, copy: Option<Stream>) -> Result<()> {
        order(self.info.state.placement.stream(self.info.device).into(), copy.into()).map(drop)
    }

    /// Returns the description and the owner.
    #[must_use]
    pub fn into_parts(mut self) -> (ArrayInfo, Owner) {
        // An error does not matter: whoever gets the parts is responsible for what is written.
        let _ = self.announce_write();
        self.info.state.note_used();
        let info = ArrayInfo::new(Description::empty(), MemoryState::new(Placement::Nothing));
        (core::mem::replace(&mut self.info, info), core::mem::take(&mut self.owner))
    }

    /// States that the memory is only read. A [`SharedBuffer`](crate::memory::shared_buffer::SharedBuffer) of it is
    /// read-only.
    ///
    /// `PyTorch` is told of each import from Python that can write a tensor, but not of this one.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.info.description.mutability = Mutability::ReadOnly;
        self.write_notice = None;
        self
    }

    /// The description of the array.
    #[inline]
    #[must_use]
    pub fn info(&self) -> &ArrayInfo {
        &self.info
    }

    /// The protocol by which the array was imported; `None` for [`from_parts`](Self::from_parts).
    #[must_use]
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Puts the array on another stream, which waits for the work that is known. By default a DLPack tensor is ready on the
    /// legacy default stream. With [`NothingPending`](StreamHandle::NothingPending) the host waits.
    ///
    /// The stream must be live. If it captures a graph, the memory is released without waiting when the import is dropped,
    /// whatever stream is set later. The stream of CPU memory does not change.
    ///
    /// # Errors
    ///
    /// The import is returned with the reason: as [`cuda::stream_wait`](crate::cuda::stream_wait()) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize());
    /// [`ErrorKind::AlreadyBorrowed`](crate::ErrorKind::AlreadyBorrowed) while a [`LaunchScope`](crate::LaunchScope) writes to the
    /// memory on another stream, by another import of it for example.
    pub fn with_stream(mut self, stream: StreamHandle) -> Result<Self, Refused<Self>> {
        let stream = Stream::named(stream, self.info.device);
        // Without a driver no work is pending.
        if is_available() {
            if let Err(error) = hand_over(&self.info, stream) {
                return Err(Refused::new(self, error));
            }
        }
        // A library with hidden streams goes on working on them.
        let after = self.info.state.placement.next(Change::Ordered(stream));
        if self.info.device != Device::CPU {
            self.put_on_ordered_stream(stream, None);
            self.info.state.placement = after;
        }
        Ok(self)
    }

    /// States that the array is ready on another stream, which the producer has made wait for pending work. Otherwise as
    /// [`with_stream`](Self::with_stream), without a wait.
    ///
    /// # Safety
    ///
    /// All work that is pending on the memory is on this stream, or comes before what is queued on it later. With
    /// [`NothingPending`](StreamHandle::NothingPending), no work is pending.
    #[must_use]
    pub unsafe fn assume_ready_on(mut self, stream: StreamHandle) -> Self {
        self.put_on_ordered_stream(Stream::named(stream, self.info.device), None);
        self
    }

    /// As [`assume_ready_on`](Self::assume_ready_on), in place. `captured` states whether the stream captures a graph, if known.
    #[inline]
    pub(crate) fn put_on_ordered_stream(&mut self, stream: Option<Stream>, captured: Option<bool>) {
        if self.info.device == Device::CPU {
            return;
        }
        // The library of the array knows nothing of this stream, so it may not order the release.
        self.info.state.note_used();
        let stream = stream.map(|stream| stream.located(self.info.device));
        self.change(Change::Stated(stream));
        // The query is needed only if an event would be recorded.
        let is_captured = || stream.is_some_and(|stream| is_capturing(stream.handle()));
        if !unordered().releases && captured.unwrap_or_else(is_captured) {
            // The graph makes other work wait. An event of the release would invalidate the capture.
            self.owner = core::mem::take(&mut self.owner).with_reach(Some(Reach::NONE));
        }
    }

    /// States that the array is on the stream on which its caller works now, as the argument of a function whose caller
    /// passes the stream (XLA's and TVM's FFI). The work that is pending on the array is on that stream.
    ///
    /// Nothing has to wait for anything then, also during graph capture. While the array is used on this stream alone, by
    /// this crate's own operations and in a [`LaunchScope`](crate::LaunchScope), it is released at once. Python objects are
    /// imported so where their library tells its stream.
    ///
    /// # Safety
    ///
    /// 1. The stream is live until the call returns.
    /// 2. The owner of the memory orders its next use after the work that is on this stream when the import is dropped.
    #[must_use]
    pub unsafe fn with_callers_stream(mut self, stream: StreamHandle) -> Self {
        let context = self.context();
        self.put_on_callers_stream(stream, context);
        self
    }

    /// As [`with_callers_stream`](Self::with_callers_stream), in place, for a default stream of a context that is known.
    ///
    /// A per-thread default stream is another one on another thread. So the legacy default stream takes its place, because
    /// both wait for each other.
    pub(crate) fn put_on_callers_stream(&mut self, stream: StreamHandle, context: Option<Context>) {
        let stream = match stream {
            // Only the stream that captures can be used until the capture is over.
            StreamHandle::PerThreadDefault if !is_capturing(stream) => StreamHandle::LegacyDefault,
            stream => stream,
        };
        let stream = Stream::in_context_of(stream, context).map(|stream| stream.located(self.info.device));
        let is_argument = self.info.device.device_type == DeviceType::CUDA && self.owner.reach().is_some();
        match stream {
            Some(stream) if is_argument => {
                self.change(Change::Argument(stream));
                // Uses matter to the release only.
                if self.owner.releases() {
                    self.info.state.uses.get_or_insert_with(Uses::of_import);
                }
            }
            stream => self.change(Change::Stated(stream)),
        }
    }

    /// Puts an import on the legacy default stream, which waits for `stream`.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`](crate::cuda::stream_wait()).
    pub(crate) fn move_to_default_stream(&mut self, stream: Stream) -> Result<()> {
        let (device, context) = (self.info.device, self.context());
        order(Waiter::Stream(Stream::legacy(context, device)), Work::Stream(stream.for_device(device)))?;
        self.change(Change::Stated(Some(legacy_stream(device, context)?)));
        self.change(Change::Hides);
        Ok(())
    }

    /// Marks the array as writable.
    ///
    /// A legacy DLPack tensor cannot state whether it may be written, so it is imported as read-only.
    ///
    /// # Safety
    ///
    /// The producer permits writes.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        self.info.description.mutability = Mutability::Writable;
        self
    }
}

/// The place of an import that is being made: [`describe`](Self::describe), then [`DescribedSlot::own`]. Until then it cannot be
/// read, because that takes a [`Filled`].
///
/// All that leads from a foreign struct to an import is written in its place, and functions fill the slot that they are given.
/// A value that is returned is moved: wide loads copy it directly after narrow stores have written its fields, and the CPU waits
/// for these. An import from `NumPy` would take 1.46 times as long, and one by an exchange table 1.56 times.
pub(crate) struct ImportSlot(Import);

/// States that a slot has been filled, and where it is. A word, because a byte that is written and then read as a part of a word
/// stalls the CPU.
#[must_use]
pub(crate) struct Filled(NonNull<Import>);

/// A slot with a checked description. The owner of the memory is missing.
#[must_use]
pub(crate) struct DescribedSlot<'a> {
    import: &'a mut Import,
    /// What a release of the memory must come after.
    pub(crate) reach: Option<Reach>,
}

impl ImportSlot {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(Import::empty())
    }

    /// Writes a description, and asks the driver about the memory.
    ///
    /// # Errors
    ///
    /// As `write` and [`memory_check::check`].
    #[inline(always)]
    pub(crate) fn describe<E: From<Error>>(
        &mut self,
        verification: Verification,
        write: impl FnOnce(&mut Description) -> Result<(), E>,
    ) -> Result<DescribedSlot<'_>, E> {
        debug_assert!(!self.0.owner.releases(), "an import that is given up is cleared");
        write(&mut self.0.info.description)?;
        let reach = memory_check::check(&self.0.info.description, verification)?;
        Ok(DescribedSlot { import: &mut self.0, reach })
    }

    /// Fills the slot with an import that is ready.
    #[cfg(feature = "python")]
    pub(crate) fn put(&mut self, import: Import) -> Filled {
        self.0 = import;
        Filled(NonNull::from(&mut self.0))
    }

    /// Gives up what an earlier protocol has left.
    #[cfg(feature = "python")]
    pub(crate) fn clear(&mut self) {
        self.0 = Import::empty();
    }

    /// Returns the import.
    #[inline(always)]
    pub(crate) fn import(&mut self, filled: &Filled) -> &mut Import {
        debug_assert_eq!(filled.0, NonNull::from(&mut self.0), "another slot has been filled");
        &mut self.0
    }

    /// As [`import`](Self::import), by value.
    #[inline(always)]
    pub(crate) fn into_import(self, _: Filled) -> Import {
        self.0
    }
}

impl DescribedSlot<'_> {
    /// Fills the slot with the memory's owner.
    #[inline(always)]
    pub(crate) fn own(self, owner: Owner, protocol: Option<Protocol>) -> Filled {
        self.import.owner = owner;
        self.import.protocol = protocol;
        Filled(NonNull::from(self.import))
    }
}

impl Drop for Import {
    #[inline]
    fn drop(&mut self) {
        self.owner.leave_order_to_caller(self.info.state.uses.as_deref());
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Import").field(&self.info).finish()
    }
}
