//! An array that has arrived: facts, and the owner that keeps the memory.
#![expect(unsafe_code, reason = "an import is a promise about memory")]
#![expect(
    clippy::inline_always,
    reason = "facts are built where they stay: to move them costs more than to read the tensor"
)]

use core::fmt;

use crate::array::device::{Device, DeviceType};
use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::pending_work::PendingWork;
use crate::cuda::release::scope::ReleaseScope;
use crate::error::Result;
use crate::memory::host::elements::HostElements;
use crate::memory::owner::Owner;

/// Foreign memory, described and owned: what every protocol turns an arriving array into.
///
/// [`FromArray::from_import`](crate::derive::from_array::FromArray::from_import) makes a derived struct of it. Dropping it releases the
/// memory.
pub struct Import {
    pub(crate) info: ArrayInfo,
    pub(crate) owner: Owner,
    /// The stream that the struct keeps beside the memory, if it has a field for one: work may be pending there.
    stream_field: StreamHandle,
}

impl Import {
    /// No memory: the place of an import that has yet to arrive, or that was taken.
    ///
    /// A constant, because what is made field by field and moved at once is waited for by the move.
    pub(crate) const EMPTY: Self = Self::of(ArrayInfo::EMPTY, Owner::none());

    #[inline(always)]
    pub(crate) const fn of(info: ArrayInfo, owner: Owner) -> Self {
        Self { info, owner, stream_field: StreamHandle::NothingPending }
    }

    /// The array that `info` describe and `owner` keeps alive.
    ///
    /// The driver is not asked about the address; the owner of CUDA memory is dropped after the work of the device
    /// ([`ReleasePolicy`](crate::cuda::ReleasePolicy)).
    ///
    /// # Safety
    ///
    /// As long as `owner` is not dropped, the memory that `info` describe is live and initialized, on the device that
    /// they name, and may be written if they say so.
    #[must_use]
    #[inline]
    pub unsafe fn from_parts(info: ArrayInfo, owner: Owner) -> Self {
        // One that comes from an import knows what it is dropped after.
        let scope = owner.scope().or_else(|| cuda::release_scope_in_use(&info));
        Self::of(info, owner.after(scope))
    }

    /// Notes the stream that the struct will keep beside the memory.
    #[inline]
    pub(crate) fn set_stream_field(&mut self, stream_field: StreamHandle) {
        self.stream_field = stream_field;
    }

    /// Where work is pending on memory that a struct without a `stream` field uses in place. Its storage remembers the
    /// stream, or the host would read what a kernel still writes.
    ///
    /// It is the legacy default stream, which is first ordered after the stream that the import is ready on: that one may be
    /// destroyed by the time it is asked for, or be the default stream of another thread. With its context it is found where
    /// another is current. Pinned and managed memory is of no device whose default stream it could be, and is waited for.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_wait`] and [`cuda::stream_synchronize`].
    #[inline]
    pub(crate) fn pending_work(&mut self) -> Result<PendingWork> {
        if self.is_stream_known() {
            Ok(PendingWork::on(StreamHandle::NothingPending))
        } else {
            self.joined_to_default_stream()
        }
    }

    #[cold]
    fn joined_to_default_stream(&mut self) -> Result<PendingWork> {
        let ArrayInfo { stream, device, .. } = self.info;
        match device.device_type {
            DeviceType::CPU => return Ok(PendingWork::on(stream)),
            DeviceType::CUDA => {}
            _ => return self.synchronize().map(|()| PendingWork::on(StreamHandle::NothingPending)),
        }
        if stream != StreamHandle::LegacyDefault {
            // Without a driver no work is pending; a graph orders its own work, and no other stream may wait for it.
            if !cuda::is_available() || cuda::captures(stream) {
                return Ok(PendingWork::on(StreamHandle::NothingPending));
            }
            cuda::make_consumer_wait(&self.info, StreamHandle::LegacyDefault)?;
        }
        PendingWork::on_default_stream(device, self.owner.scope())
    }

    /// Whether nothing is pending, or the struct keeps the stream on which work is.
    #[inline]
    pub(crate) fn is_stream_known(&self) -> bool {
        self.info.stream == StreamHandle::NothingPending || self.stream_field != StreamHandle::NothingPending
    }

    /// Waits on the host for the pending work, for a struct that cannot say that there is any.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_synchronize`].
    #[cold]
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        let ArrayInfo { stream, device, .. } = self.info;
        if !cuda::captures(stream) {
            cuda::synchronize_if_available(stream, device)?;
            self.info.stream = StreamHandle::NothingPending;
        }
        Ok(())
    }

    /// Takes the owner out: the import owns nothing afterwards.
    #[inline]
    pub(crate) fn take_owner(&mut self) -> Owner {
        core::mem::replace(&mut self.owner, Owner::none())
    }

    /// The stream on which a copy is made; and, where the struct keeps that stream, what the release of the source comes
    /// after. If the copy is among that, it may still be pending when it is handed out, because the struct says so.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(crate) fn copy_stream(&self) -> (StreamHandle, Option<ReleaseScope>) {
        match self.stream_field {
            StreamHandle::NothingPending => (self.info.stream, None),
            stream_field => (stream_field, self.owner.scope()),
        }
    }

    /// The facts and the owner.
    #[must_use]
    pub fn into_parts(self) -> (ArrayInfo, Owner) {
        (self.info, self.owner)
    }

    /// What is known of the array.
    #[inline]
    #[must_use]
    pub fn info(&self) -> &ArrayInfo {
        &self.info
    }

    /// The same array, ready on another stream: the producer has ordered the work that was pending before that stream.
    ///
    /// An import of a DLPack tensor is ready on the legacy default stream unless the producer was told another. The stream
    /// is live; what is imported for work on a stream that captures a graph is released at once when it is dropped, whatever
    /// stream it is put on later. Memory that is the host's alone is ready as it is: no stream works on it.
    #[must_use]
    pub fn with_stream(mut self, stream: StreamHandle) -> Self {
        self.put_on_stream(stream);
        self
    }

    /// As [`on_stream`](Self::with_stream), in place.
    #[inline]
    pub(crate) fn put_on_stream(&mut self, stream: StreamHandle) {
        if self.info.device == Device::CPU {
            return;
        }
        self.info.stream = stream;
        if cuda::captures(stream) {
            // The capture orders the work, and an event of the release would spoil it.
            self.owner = self.take_owner().after(Some(ReleaseScope::NONE));
        }
    }

    /// The same array, writable.
    ///
    /// The legacy form of DLPack cannot say whether an array may be written, so it is imported as read-only.
    ///
    /// # Safety
    ///
    /// The producer allows writing.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        self.info.mutability = Mutability::Writable;
        self
    }

    /// The elements, to be copied.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host_view`](crate::memory::array_view::ArrayView::host_view), but any alignment will do.
    ///
    /// # Safety
    ///
    /// They are used no longer than `self` is there.
    pub(crate) unsafe fn elements<T: Element>(&self) -> Result<HostElements<T>> {
        // SAFETY: the memory is live while `self` is (contract of the constructors), and so long as the caller promises.
        unsafe { HostElements::of(&self.info, false) }
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Import").field(&self.info).finish()
    }
}
