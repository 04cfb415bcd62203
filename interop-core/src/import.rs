//! An array that has arrived: facts, and the owner that keeps the memory.
#![expect(unsafe_code, reason = "an import is a promise about memory")]
#![expect(
    clippy::inline_always,
    reason = "facts are built where they stay: to move them costs more than to read the tensor"
)]

use core::fmt;
use core::ptr::NonNull;

use crate::cai::CudaArrayInterface;
use crate::cuda::{self, Fence, Pending, Trust};
use crate::descriptor::Writes;
use crate::device::{Device, DeviceType};
use crate::dlpack::{Abi, ManagedTensor, release};
use crate::element::Element;
use crate::error::{Refused, Result};
use crate::facts::Facts;
use crate::host::HostElements;
use crate::owner::Owner;
use crate::stream::StreamHandle;

/// Foreign memory, described and owned: what every protocol turns an arriving array into.
///
/// [`FromArray::from_import`](crate::FromArray::from_import) makes a derived struct of it. Dropping it releases the
/// memory.
pub struct Import {
    facts: Facts,
    owner: Owner,
    /// The stream that the struct keeps beside the memory, if it has a field for one: work may be pending there.
    kept: StreamHandle,
}

impl Import {
    /// No memory: the place of an import that has yet to arrive, or that was taken.
    ///
    /// A constant, because what is made field by field and moved at once is waited for by the move.
    pub(crate) const NOTHING: Self = Self::of(Facts::NOTHING, Owner::nothing());

    #[inline(always)]
    const fn of(facts: Facts, owner: Owner) -> Self {
        Self { facts, owner, kept: StreamHandle::NothingPending }
    }

    /// The array in a managed tensor, which is used in place.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the reason: as [`ManagedTensor::facts`]; where there is a driver,
    /// [`ErrorKind::Device`](crate::ErrorKind::Device) for memory that it says is elsewhere,
    /// [`ErrorKind::Bounds`](crate::ErrorKind::Bounds) for elements outside the allocation, and
    /// [`ErrorKind::Driver`](crate::ErrorKind::Driver) when it cannot answer.
    ///
    /// ```
    /// use interop_core::dlpack::Versioned;
    /// use interop_core::{CudaArray, FromArray, Import};
    ///
    /// #[derive(CudaArray)]
    /// struct Samples { #[cuda_array(data)] values: Vec<f32>, #[cuda_array(shape)] shape: Vec<usize> }
    ///
    /// let tensor = Samples { values: vec![1.0; 6], shape: vec![2, 3] }.into_dlpack::<Versioned>()?;
    /// let import = Import::from_dlpack(tensor)?;
    /// assert_eq!(import.facts().shape(), [2, 3]);
    /// assert_eq!(Samples::from_import(import)?.values, [1.0; 6]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline(always)]
    pub fn from_dlpack<A: Abi>(tensor: ManagedTensor<A>) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Trust::Nothing)
    }

    /// As [`from_dlpack`](Self::from_dlpack), but what the tensor says of its memory is believed: the driver is not asked
    /// where the address is and how far it goes. It saves one driver call for memory of CUDA, and one more for each piece of
    /// memory that was mapped in pieces. Memory that a graph allocates while it is captured comes in this way only, because
    /// the driver knows it when the graph has run.
    ///
    /// # Errors
    ///
    /// As [`from_dlpack`](Self::from_dlpack), for what can be seen without the driver.
    ///
    /// # Safety
    ///
    /// The tensor tells the truth about its device and extent. (Elsewhere that is the promise of whoever made the
    /// [`ManagedTensor`], and here nothing stands behind it.) Work on it is in primary contexts, as that of the CUDA runtime
    /// and of nearly all libraries is: what the release comes after is not asked for either.
    #[inline]
    pub unsafe fn from_dlpack_trusted<A: Abi>(
        tensor: ManagedTensor<A>,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Trust::Memory)
    }

    #[inline(always)]
    fn from_dlpack_with<A: Abi>(
        tensor: ManagedTensor<A>,
        trust: Trust,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        // SAFETY: `release::<A>` releases a struct of the form `A`, and may be called on any thread (3 of
        // `ManagedTensor::from_raw`).
        match unsafe { Self::usual(tensor, release::<A>, trust, None) } {
            Ok(import) => Ok(import),
            Err(tensor) => {
                let mut import = Self::NOTHING;
                // SAFETY: as above.
                unsafe { import.receive(tensor, release::<A>, trust) }?;
                Ok(import)
            }
        }
    }

    /// The fast path: a tensor as nearly all are, about whose memory the driver need not be asked. `axes` is their number,
    /// where it is known. Any other tensor comes back.
    ///
    /// # Safety
    ///
    /// `release` releases a struct of the form `A`, on any thread.
    #[inline(always)]
    pub(crate) unsafe fn usual<A: Abi>(
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
        trust: Trust,
        axes: Option<usize>,
    ) -> Result<Self, ManagedTensor<A>> {
        let asked = trust == Trust::Nothing && cuda::is_opened();
        match tensor.usual_facts(axes, |address| !asked || cuda::is_host_memory(address)) {
            Some(facts) => {
                // SAFETY: the struct is ours to release once, on any thread (1 and 3 of `ManagedTensor::from_raw`).
                let owner = unsafe { Owner::from_raw(tensor.into_place(), release) };
                Ok(Self::of(facts, owner))
            }
            None => Err(tensor),
        }
    }

    /// Takes the place of [`NOTHING`](Self::NOTHING): any tensor, in any memory. If it is refused nothing has arrived.
    ///
    /// # Safety
    ///
    /// As [`usual`](Self::usual).
    #[inline(never)]
    pub(crate) unsafe fn receive<A: Abi>(
        &mut self,
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
        trust: Trust,
    ) -> Result<(), Refused<ManagedTensor<A>>> {
        let fence = match tensor.facts_to(&mut self.facts).and_then(|()| cuda::check(&self.facts, trust)) {
            Ok(fence) => fence,
            Err(error) => {
                self.facts = Facts::NOTHING;
                return Err(Refused { value: tensor, error });
            }
        };
        if self.facts.device != Device::CPU {
            // A producer that is told no stream orders its work before this one.
            self.facts.stream = StreamHandle::LegacyDefault;
        }
        // SAFETY: the struct is ours to release once, on any thread (1 and 3 of `ManagedTensor::from_raw`).
        self.owner = unsafe { Owner::from_raw(tensor.into_place(), release) }.after(fence);
        Ok(())
    }

    /// The array that `facts` describe and `owner` keeps alive.
    ///
    /// The driver is not asked about the address; the owner of CUDA memory is dropped after the work of the device
    /// ([`ReleasePolicy`](crate::cuda::ReleasePolicy)).
    ///
    /// # Safety
    ///
    /// As long as `owner` is not dropped, the memory that `facts` describe is live and initialized, on the device that
    /// they name, and may be written if they say so.
    #[must_use]
    #[inline]
    pub unsafe fn from_parts(facts: Facts, owner: Owner) -> Self {
        // One that comes from an import knows what it is dropped after.
        let fence = owner.fence().or_else(|| cuda::fence_in_use(&facts));
        Self::of(facts, owner.after(fence))
    }

    /// The array in an interface dict, on the device where its address is.
    ///
    /// The interface names no device and owns nothing: the caller knows the one and provides the other. Work that is
    /// pending stays pending on [`Facts::stream`]. Otherwise as [`from_parts`](Self::from_parts).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::facts`]; [`ErrorKind::Device`](crate::ErrorKind::Device) for memory that CUDA cannot
    /// reach.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai(
        interface: &CudaArrayInterface,
        device: Device,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        // SAFETY: as the caller promises.
        Ok(unsafe { Self::from_parts(interface.facts_on(device)?, Owner::new(owner)) })
    }

    /// The array in an interface dict, for work on `consumer`.
    ///
    /// The driver says on which device the address is and how far the allocation goes. Work that is pending on the stream
    /// of the interface is ordered before later work on `consumer`; of an interface of an earlier version than 3, which
    /// names none, see [`UnstatedStream`](crate::cuda::UnstatedStream).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::facts`]; [`ErrorKind::Driver`](crate::ErrorKind::Driver) without a driver,
    /// [`ErrorKind::Device`](crate::ErrorKind::Device) for an address that is not CUDA's,
    /// [`ErrorKind::Bounds`](crate::ErrorKind::Bounds) for elements outside the allocation, and as
    /// [`cuda::order`](crate::cuda::order).
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_for(
        interface: &CudaArrayInterface,
        consumer: StreamHandle,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        let mut facts = interface.facts()?;
        let stated = interface.version >= 3 || interface.stream != StreamHandle::NothingPending;
        let fence = cuda::arrive(&mut facts, stated, consumer)?;
        let mut import = Self::of(facts, Owner::new(owner).after(fence));
        import.put_on_stream(consumer);
        Ok(import)
    }

    /// Notes the stream that the struct will keep beside the memory.
    #[inline]
    pub(crate) fn keep_beside(&mut self, kept: StreamHandle) {
        self.kept = kept;
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
    /// As [`cuda::order`] and [`cuda::wait`].
    #[inline]
    pub(crate) fn pending_in_place(&mut self) -> Result<Pending> {
        if self.is_told_or_finished() {
            Ok(Pending::on(StreamHandle::NothingPending))
        } else {
            self.brought_to_default_stream()
        }
    }

    #[cold]
    fn brought_to_default_stream(&mut self) -> Result<Pending> {
        let Facts { stream, device, .. } = self.facts;
        match device.device_type {
            DeviceType::CPU => return Ok(Pending::on(stream)),
            DeviceType::CUDA => {}
            _ => return self.finish_in_place().map(|()| Pending::on(StreamHandle::NothingPending)),
        }
        if stream != StreamHandle::LegacyDefault {
            // Without a driver no work is pending; a graph orders its own work, and no other stream may wait for it.
            if !cuda::is_available() || cuda::captures(stream) {
                return Ok(Pending::on(StreamHandle::NothingPending));
            }
            cuda::hand_over(&self.facts, StreamHandle::LegacyDefault)?;
        }
        Pending::on_default_stream(device, self.owner.fence())
    }

    /// Whether nothing is pending, or the struct keeps the stream on which work is.
    #[inline]
    pub(crate) fn is_told_or_finished(&self) -> bool {
        self.facts.stream == StreamHandle::NothingPending || self.kept != StreamHandle::NothingPending
    }

    /// Waits on the host for the pending work, for a struct that cannot say that there is any.
    ///
    /// # Errors
    ///
    /// As [`cuda::wait`].
    #[cold]
    pub(crate) fn finish_in_place(&mut self) -> Result<()> {
        let Facts { stream, device, .. } = self.facts;
        if !cuda::captures(stream) {
            cuda::wait_for_host(stream, device)?;
            self.facts.stream = StreamHandle::NothingPending;
        }
        Ok(())
    }

    /// Takes the owner out: the import owns nothing afterwards.
    #[inline]
    pub(crate) fn take_owner(&mut self) -> Owner {
        core::mem::replace(&mut self.owner, Owner::nothing())
    }

    /// The stream on which a copy is made; and, where the struct keeps that stream, what the release of the source comes
    /// after. If the copy is among that, it may still be pending when it is handed out, because the struct says so.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(crate) fn copied_on(&self) -> (StreamHandle, Option<Fence>) {
        match self.kept {
            StreamHandle::NothingPending => (self.facts.stream, None),
            kept => (kept, self.owner.fence()),
        }
    }

    /// The facts and the owner.
    #[must_use]
    pub fn into_parts(self) -> (Facts, Owner) {
        (self.facts, self.owner)
    }

    /// What is known of the array.
    #[inline]
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same array, ready on another stream: the producer has ordered the work that was pending before that stream.
    ///
    /// An import of a DLPack tensor is ready on the legacy default stream unless the producer was told another. The stream
    /// is live; what is imported for work on a stream that captures a graph is released at once when it is dropped, whatever
    /// stream it is put on later. Memory that is the host's alone is ready as it is: no stream works on it.
    #[must_use]
    pub fn on_stream(mut self, stream: StreamHandle) -> Self {
        self.put_on_stream(stream);
        self
    }

    /// As [`on_stream`](Self::on_stream), in place.
    #[inline]
    pub(crate) fn put_on_stream(&mut self, stream: StreamHandle) {
        if self.facts.device == Device::CPU {
            return;
        }
        self.facts.stream = stream;
        if cuda::captures(stream) {
            // The capture orders the work, and an event of the release would spoil it.
            self.owner = self.take_owner().after(Some(Fence::NOTHING));
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
        self.facts.writes = Writes::Always;
        self
    }

    /// The elements, to be copied.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host`](crate::ArrayView::host), but any alignment will do.
    ///
    /// # Safety
    ///
    /// They are used no longer than `self` is there.
    pub(crate) unsafe fn elements<T: Element>(&self) -> Result<HostElements<T>> {
        // SAFETY: the memory is live while `self` is (contract of the constructors), and so long as the caller promises.
        unsafe { HostElements::of(&self.facts, false) }
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Import").field(&self.facts).finish()
    }
}
