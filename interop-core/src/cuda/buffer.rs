//! Owned CUDA memory of every kind: device, pinned, managed, and from the device's pool.

use core::fmt;
use core::ptr::null_mut;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::ElementType;
use crate::cuda::allocation::{
    Allocation, MemoryKind, allocate_in_pool, finished, with_trimmed_pools, with_usable_stream,
};
use crate::cuda::context::{Context, Relaxed};
#[cfg(feature = "python")]
use crate::cuda::driver::code;
use crate::cuda::driver::{Driver, Outcome, RawStream, driver, to_usize};
#[cfg(feature = "python")]
use crate::cuda::ordered_free::free_in_order;
use crate::cuda::release::queue::{after_work, poll_in_passing};
use crate::cuda::release::scope::{ErasedOwner, ReleaseScope};
use crate::cuda::stream_query::LEGACY;
use crate::cuda::verify::release_scope_for;
use crate::error::{Result, text};
use crate::process::counters;

/// Owned CUDA memory of any kind, zeroed, for elements of a type that is known at run time.
///
/// This is one type for all kinds of memory, so code that takes one kind takes all. The memory is freed in its context,
/// from any thread, whatever context is current there. The driver frees after all work of the device, and waits for
/// that work; if an array class drops the buffer, the lock of the Python interpreter is released meanwhile. Pool
/// memory, which the driver would free at once, is released according to
/// [`ReleasePolicy`](crate::cuda::release::policy::ReleasePolicy).
///
/// ```no_run
/// use interop_core::cuda::{CudaBuffer, MemoryKind};
/// use interop_core::{CudaArray, DType};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 4], export)]
/// struct Table { #[cuda_array(data)] cells: CudaBuffer, rows: usize }
///
/// let cells = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 12)?;
/// let table = Table { cells, rows: 3 };
/// assert_eq!(table.info()?.device().to_string(), "CUDA (2), ordinal 0");
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct CudaBuffer {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) element: ElementType,
    kind: MemoryKind,
    pub(crate) device: Device,
    pub(crate) context: Context,
    /// Whether the memory returns to the pool in stream order, as it was allocated.
    #[cfg(feature = "python")]
    is_in_order: bool,
}

impl CudaBuffer {
    /// Allocates `len` zeroed elements in the primary context of the device `ordinal`. Pinned and managed memory is
    /// allocated in the context of that device.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Driver` without a driver, for an ordinal that does not exist, and if the
    /// memory is used up; `Overflow` if the size does not fit the address space; `DType` for packed types of less than
    /// a byte.
    pub fn zeroed(kind: MemoryKind, ordinal: i32, dtype: DType, len: usize) -> Result<Self> {
        let buffer = Self::for_elements(kind, ordinal, ElementType::of_whole_bytes(dtype, false)?, len)?;
        if buffer.bytes != 0 {
            buffer.zero(driver()?)?;
        }
        Ok(buffer)
    }

    /// As [`uninitialized`](Self::uninitialized), in the primary context. The memory is ready on every stream.
    pub(crate) fn for_elements(
        kind: MemoryKind,
        ordinal: i32,
        element: ElementType,
        len: usize,
    ) -> Result<Self> {
        let bytes = len.checked_mul(element.size).ok_or_else(|| element.too_large(len))?;
        let buffer = Self::uninitialized(kind, Context::primary(ordinal)?, ordinal, element, bytes)?;
        if kind == MemoryKind::Pool && bytes != 0 {
            let driver = driver()?;
            let _entered = buffer.context.enter(driver)?;
            let _relaxed = Relaxed::new(driver);
            finished(driver, |_| Ok(()))?;
        }
        Ok(buffer)
    }

    /// Allocates uninitialized memory in a context of the device `ordinal`. The caller writes all of it before anybody
    /// else gets it. Memory of the pool is ready on the legacy default stream.
    pub(crate) fn uninitialized(
        kind: MemoryKind,
        context: Context,
        ordinal: i32,
        element: ElementType,
        bytes: usize,
    ) -> Result<Self> {
        let device = match kind {
            MemoryKind::Device | MemoryKind::Pool => Device::cuda(ordinal),
            MemoryKind::Pinned => Device::CUDA_HOST,
            MemoryKind::Managed => Device::CUDA_MANAGED,
        };
        let mut buffer = Self {
            address: 0,
            bytes,
            element,
            kind,
            device,
            context,
            #[cfg(feature = "python")]
            is_in_order: false,
        };
        if bytes != 0 {
            poll_in_passing();
            let lacking = text!("{bytes} bytes of free memory");
            buffer.allocate(driver()?).map_err(|failure| failure.expecting(lacking))?;
        }
        Ok(buffer)
    }

    fn allocate(&mut self, driver: &Driver) -> Outcome {
        const PORTABLE: u32 = 1;
        const GLOBAL: u32 = 1;
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        let bytes = self.bytes;
        let (mut address, mut host) = (0, null_mut());
        // After a failure the variables may hold anything.
        match self.kind {
            MemoryKind::Device => with_trimmed_pools(driver, || {
                // SAFETY: `address` is valid for a write; a context is current.
                unsafe { driver.memory_alloc(&raw mut address, bytes) }
            })?,
            MemoryKind::Pool => {
                return with_usable_stream(driver, |stream| self.allocate_in_order(driver, stream));
            }
            // SAFETY: as above.
            MemoryKind::Managed => unsafe { driver.memory_managed_alloc(&raw mut address, bytes, GLOBAL) }?,
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe { driver.memory_host_alloc(&raw mut host, bytes, PORTABLE) }?,
        }
        let pinned = self.kind == MemoryKind::Pinned;
        self.own(if pinned { host.expose_provenance() } else { to_usize(address) });
        Ok(())
    }

    /// Allocates memory of the pool, which is ready on the legacy default stream.
    fn allocate_in_order(&mut self, driver: &Driver, stream: RawStream) -> Outcome {
        self.own(to_usize(allocate_in_pool(driver, self.device.device_id, self.bytes, stream)?));
        if stream == LEGACY {
            return Ok(());
        }
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(stream) }
    }

    /// Allocates uninitialized bytes from the device's pool, for use in stream order on a stream of the current
    /// context. If the device has no pool, allocates plain device memory.
    #[cfg(feature = "python")]
    pub(crate) fn in_order(
        driver: &Driver,
        (context, stream): (Context, RawStream),
        ordinal: i32,
        bytes: usize,
    ) -> Outcome<Self> {
        let (element, device) = (<u8 as crate::array::element::Element>::TYPE, Device::cuda(ordinal));
        let kind = MemoryKind::Pool;
        let mut buffer = Self { address: 0, bytes, element, kind, device, context, is_in_order: true };
        let address = match allocate_in_pool(driver, ordinal, bytes, stream) {
            Err(failure) if matches!(failure.code, code::NOT_FOUND | code::NOT_SUPPORTED) => {
                (buffer.kind, buffer.is_in_order) = (MemoryKind::Device, false);
                let mut address = 0;
                // SAFETY: `address` is valid for a write; a context is current.
                unsafe { driver.memory_alloc(&raw mut address, bytes) }?;
                address
            }
            allocated => allocated?,
        };
        buffer.own(to_usize(address));
        Ok(buffer)
    }

    /// Returns whether the drop itself makes the release come after pending work, so that the owner need not.
    #[cfg(feature = "python")]
    pub(crate) fn is_in_order(&self) -> bool {
        self.is_in_order
    }

    #[cfg(feature = "python")]
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Stores the address. From here on the drop frees the memory.
    fn own(&mut self, address: usize) {
        self.address = address;
        counters::ALLOCATIONS.add();
    }

    fn zero(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        // SAFETY: this many bytes were allocated.
        finished(driver, |stream| unsafe { driver.set(self.address as u64, 0, self.bytes, stream) })
    }

    /// The same memory, as elements of another type.
    pub(crate) fn holding(self, element: ElementType) -> Self {
        let mut this = self;
        this.element = element;
        this
    }

    /// Returns the address. The caller frees the memory.
    #[cfg(any(feature = "cust", feature = "cuda-core"))]
    pub(crate) fn into_address(self) -> usize {
        counters::ALLOCATIONS.sub();
        core::mem::ManuallyDrop::new(self).address
    }

    /// Returns the scope of a release of pool memory.
    fn scope(&self) -> ReleaseScope {
        let Ok(driver) = driver() else { return ReleaseScope::of_context(self.context) };
        // The memory may be used in stream order in a context that is not primary. The release has to wait for that one
        // too.
        let is_primary = self.context.primary_ordinal().is_some();
        let scope = if is_primary {
            release_scope_for(driver, self.device)
        } else {
            ReleaseScope::of_all(Some(self.context))
        };
        scope.holding(self.bytes)
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes / self.element.size
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let allocation = Allocation { address: self.address, kind: self.kind, context: self.context };
        match self.kind {
            #[cfg(feature = "python")]
            MemoryKind::Pool if self.is_in_order => free_in_order(allocation, self.scope()),
            // Freeing pool memory does not wait, so the next owner could write while kernels still read.
            MemoryKind::Pool => after_work(ErasedOwner::new(allocation), self.scope()),
            _ => drop(allocation),
        }
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, element, device, kind, .. } = self;
        write!(f, "CudaBuffer({kind:?}, {} at {address:#x}, {device})", element.describe())
    }
}
