//! An array that has arrived: facts, and the owner that keeps the memory.
#![expect(unsafe_code, reason = "an import is a promise about memory")]

use core::fmt;
use core::ptr::NonNull;

use crate::cai::CudaArrayInterface;
use crate::descriptor::Writes;
use crate::device::Device;
use crate::dlpack::{Abi, ManagedTensor, release};
use crate::element::Element;
use crate::error::{Refused, Result};
use crate::facts::Facts;
use crate::host::HostElements;
use crate::layout::Order;
use crate::owner::Owner;
#[cfg(feature = "python")]
use crate::stream::StreamHandle;

/// Memory of somebody else, described and owned: what every protocol turns an arriving array into.
///
/// [`FromArray::from_import`](crate::FromArray::from_import) makes a derived struct of it. Dropping it releases the
/// memory.
pub struct Import {
    facts: Facts,
    owner: Owner,
}

impl Import {
    /// The array in a managed tensor, which is used in place.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the reason; see [`ManagedTensor::facts`].
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
    #[inline]
    pub fn from_dlpack<A: Abi>(tensor: ManagedTensor<A>) -> Result<Self, Refused<ManagedTensor<A>>> {
        // SAFETY: the release of such a tensor.
        unsafe { Self::from_dlpack_with(tensor, release::<A>) }
    }

    /// As [`from_dlpack`](Self::from_dlpack), with a release of one's own.
    ///
    /// # Safety
    ///
    /// `release` releases a struct of the form `A`, on any thread.
    #[inline]
    pub(crate) unsafe fn from_dlpack_with<A: Abi>(
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        tensor.into_import(release)
    }

    /// The array that `facts` describe and `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// As long as `owner` is not dropped, the memory that `facts` describe is live and initialized, on the device that
    /// they name, and may be written if they say so.
    #[must_use]
    #[inline]
    pub unsafe fn from_parts(facts: Facts, owner: Owner) -> Self {
        Self { facts, owner }
    }

    /// The array in an interface dict, on the device where its address is.
    ///
    /// The interface names no device and owns nothing: the caller knows the one and provides the other. Work that is
    /// pending stays pending on [`Facts::stream`].
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
        Ok(Self { facts: interface.facts_on(device)?, owner: Owner::new(owner) })
    }

    /// The facts and the owner.
    #[must_use]
    pub fn into_parts(self) -> (Facts, Owner) {
        (self.facts, self.owner)
    }

    /// What is known of the array.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same array, ready on another stream: work that was pending on it has been ordered before that stream.
    #[cfg(feature = "python")]
    #[must_use]
    pub(crate) fn on_stream(mut self, stream: StreamHandle) -> Self {
        self.facts.stream = stream;
        self
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

    /// The elements in compact order, copied.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host`](crate::ArrayView::host), but any alignment will do.
    pub(crate) fn to_vec<T: Element>(&self, order: Order) -> Result<Vec<T>> {
        // SAFETY: the memory is live while `self` is (contract of the constructors).
        unsafe { HostElements::of(&self.facts, false) }?.to_vec(order)
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Import").field(&self.facts).finish()
    }
}
