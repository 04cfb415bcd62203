//! An imported array: its checked description and the owner of its memory.
#![expect(unsafe_code, reason = "creates imports of memory that the caller vouches for")]
#![expect(
    clippy::inline_always,
    reason = "the description is built in place, because a move costs more than reading the tensor"
)]

use core::fmt;

use crate::array::device::{Device, DeviceType};
use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::cuda::context::Context;
use crate::cuda::release::scope::ReleaseScope;
use crate::error::Result;
use crate::memory::host::elements::HostElements;
use crate::memory::owner::Owner;

/// An imported array: a checked description and the owner that keeps its memory alive. All protocols import to this
/// type.
///
/// [`FromArray::from_import`](crate::derive::from_array::FromArray::from_import) creates a derived struct from it.
/// Dropping it releases the memory.
pub struct Import {
    pub(crate) info: ArrayInfo,
    pub(crate) owner: Owner,
    /// The value of the struct's `stream` field, if it has one: the stream on which work may be pending.
    stream_field: StreamHandle,
    protocol: Option<Protocol>,
}

/// The protocol by which an array was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange table of a Python object's type (DLPack 1.3).
    ExchangeTable,
    /// A versioned DLPack tensor.
    DlpackVersioned,
    /// A legacy DLPack tensor, which cannot state whether it may be written.
    DlpackLegacy,
    /// A CUDA Array Interface.
    CudaArrayInterface,
}

impl Import {
    /// A placeholder without memory.
    ///
    /// It is a constant, because moving a value that was just written field by field stalls the CPU.
    pub(crate) const EMPTY: Self = Self::of(ArrayInfo::EMPTY, Owner::none());

    #[inline(always)]
    pub(crate) const fn of(info: ArrayInfo, owner: Owner) -> Self {
        Self { info, owner, stream_field: StreamHandle::NothingPending, protocol: None }
    }

    /// Creates an import from a checked description and the owner of the memory.
    ///
    /// The driver is not asked about the address. The owner of CUDA memory is dropped after pending work on the device,
    /// see [`ReleasePolicy`](crate::cuda::ReleasePolicy).
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, the memory that `info` describes is live and initialized, on the device that it names.
    /// The memory may be written if `info` states so.
    #[must_use]
    #[inline]
    pub unsafe fn from_parts(info: ArrayInfo, owner: Owner) -> Self {
        // The owner of an earlier import already has its release scope.
        let scope = owner.scope().or_else(|| cuda::release_scope_in_use(&info));
        let stream = PendingWork::on(info.stream());
        Self::of(ArrayInfo { stream, ..info }, owner.after(scope))
    }

    /// Sets the value of the struct's `stream` field.
    #[inline]
    pub(crate) fn set_stream_field(&mut self, stream_field: StreamHandle) {
        self.stream_field = stream_field;
    }

    /// Returns the pending work on memory that a struct without a `stream` field uses in place. The storage stores it,
    /// so that the host does not read what a kernel still writes.
    ///
    /// For device memory this is work on the legacy default stream, which is made to wait for the import's stream. The
    /// import's stream itself may be destroyed later, or be the default stream of another thread. The context is stored
    /// too, because another one may be current later. Pinned and managed memory belongs to no single device, so the
    /// host waits for its work here.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`] and [`cuda::stream_synchronize`].
    #[inline]
    pub(crate) fn pending_work(&mut self) -> Result<PendingWork> {
        if self.is_stream_known() {
            Ok(PendingWork::on(StreamHandle::NothingPending))
        } else {
            self.pending_on_default_stream()
        }
    }

    #[cold]
    fn pending_on_default_stream(&mut self) -> Result<PendingWork> {
        let (pending, device) = (self.info.stream, self.info.device);
        let (stream, context) =
            (pending.name(), pending.context().and_then(|it| Context::from_driver(it.get())));
        match device.device_type {
            DeviceType::CPU => return Ok(pending),
            DeviceType::CUDA => {}
            _ => return self.synchronize().map(|()| PendingWork::on(StreamHandle::NothingPending)),
        }
        if stream != StreamHandle::LegacyDefault {
            // Without a driver no work is pending. During capture the graph orders its own work, and no stream outside
            // it may wait.
            if !cuda::is_available() || cuda::captures(stream) {
                return Ok(PendingWork::on(StreamHandle::NothingPending));
            }
            cuda::stream_wait_in(StreamHandle::LegacyDefault, stream, device, context)?;
        }
        match context {
            Some(context) => Ok(PendingWork::in_context(StreamHandle::LegacyDefault, context)),
            None => PendingWork::on_default_stream(device),
        }
    }

    /// Returns whether no work is pending, or the struct stores the stream with pending work.
    #[inline]
    pub(crate) fn is_stream_known(&self) -> bool {
        self.info.stream.name() == StreamHandle::NothingPending
            || self.stream_field != StreamHandle::NothingPending
    }

    /// Waits on the host for pending work.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_synchronize`].
    #[cold]
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        let (stream, device) = (self.info.stream(), self.info.device);
        if !cuda::captures(stream) {
            cuda::synchronize_if_available(stream, device)?;
            self.info.stream = PendingWork::on(StreamHandle::NothingPending);
        }
        Ok(())
    }

    /// The context of the memory, if it is known.
    pub(crate) fn context(&self) -> Option<Context> {
        self.owner.scope().and_then(ReleaseScope::own)
    }

    /// Leaves the release to the library that owns the memory: no context is made current for it, and the capture mode
    /// is not changed.
    #[cfg(feature = "python")]
    pub(crate) fn leave_to_its_owner(&mut self) {
        if let Some(scope) = self.owner.scope().filter(|scope| *scope != ReleaseScope::NONE) {
            self.owner = self.take_owner().after(Some(scope.self_reliant()));
        }
    }

    /// Takes the owner. The import owns nothing afterwards.
    #[inline]
    pub(crate) fn take_owner(&mut self) -> Owner {
        core::mem::replace(&mut self.owner, Owner::none())
    }

    /// Returns the stream for a copy of the elements. If the struct has a `stream` field, also returns the release
    /// scope of the source: the copy may then still be pending on return, because the struct contains its stream.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(crate) fn copy_stream(&self) -> (StreamHandle, Option<ReleaseScope>) {
        match self.stream_field {
            StreamHandle::NothingPending => (self.info.stream(), None),
            stream_field => (stream_field, self.owner.scope()),
        }
    }

    /// Returns the description and the owner.
    #[must_use]
    pub fn into_parts(self) -> (ArrayInfo, Owner) {
        (self.info, self.owner)
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

    #[inline(always)]
    pub(crate) const fn by(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    #[inline]
    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
    }

    /// States that the array is ready on another stream, which the producer has made wait for pending work.
    ///
    /// By default a DLPack tensor is ready on the legacy default stream. The stream must be live. If it captures a
    /// graph, the memory is released without waiting when the import is dropped, whatever stream is set later. The
    /// stream of CPU memory does not change.
    #[must_use]
    pub fn with_stream(mut self, stream: StreamHandle) -> Self {
        self.put_on_stream(stream);
        self
    }

    /// As [`with_stream`](Self::with_stream), in place.
    #[inline]
    pub(crate) fn put_on_stream(&mut self, stream: StreamHandle) {
        self.put_on_ordered_stream(stream, None, None);
    }

    /// As [`put_on_stream`](Self::put_on_stream). `captured` states whether the stream captures a graph, if known.
    /// `context` is the context whose default stream is meant.
    #[inline]
    pub(crate) fn put_on_ordered_stream(
        &mut self,
        stream: StreamHandle,
        captured: Option<bool>,
        context: Option<Context>,
    ) {
        if self.info.device == Device::CPU {
            return;
        }
        self.info.stream = match (stream, context) {
            (StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault, Some(context)) => {
                PendingWork::in_context(stream, context)
            }
            _ => PendingWork::on(stream),
        };
        // The query is needed only if an event would be recorded.
        if cuda::records_events() && captured.unwrap_or_else(|| cuda::captures(stream)) {
            // The graph makes other work wait. An event of the release would invalidate the capture.
            self.owner = self.take_owner().after(Some(ReleaseScope::NONE));
        }
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
        self.info.mutability = Mutability::Writable;
        self
    }

    /// Sets whether the memory may be written, which the producer stated in another way.
    #[cfg(feature = "python")]
    pub(crate) fn set_mutability(&mut self, mutability: Mutability) {
        self.info.mutability = mutability;
    }

    /// Returns the elements for a copy.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host_view`](crate::memory::array_view::ArrayView::host_view), but with any alignment.
    ///
    /// # Safety
    ///
    /// The result is not used after `self` is dropped.
    pub(crate) unsafe fn elements<T: Element>(&self) -> Result<HostElements<T>> {
        // SAFETY: the constructors guarantee that the memory is live while `self` is; the caller does not use the
        // elements longer.
        unsafe { HostElements::of(&self.info, false) }
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Import").field(&self.info).finish()
    }
}
