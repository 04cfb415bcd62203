//! Owned CUDA memory of every kind: device, pinned, managed, and from the device's pool.
#![expect(unsafe_code, reason = "calls the driver")]

use core::fmt;
use core::ptr::null_mut;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::{Element, ElementType};
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, Relaxed};
use crate::driver::functions::{CUstream, Driver, Outcome, driver, to_usize};
use crate::driver::pointer::reach_for;
use crate::driver::reach::Reach;
use crate::driver::stream::{OwnStream, SPARE, Stream, capture_error, key_of};
use crate::error::{Result, text};
use crate::order::block::{Allocation, MemoryKind};
use crate::order::pool::{PoolMemory, PoolOf, allocate, with_room};
use crate::order::record::forget;
use crate::order::release::owner::Owner;
use crate::order::release::queue::poll_in_passing;
use crate::order::uses::Uses;
use crate::order::wait::queue_and_finish;
use crate::process::counters::COUNTERS;

/// Owned CUDA memory of any kind, zeroed, for elements of a type that is known at run time.
///
/// This is one type for all kinds of memory, so code that takes one kind takes all. The memory is freed in its context,
/// from any thread, whatever context is current there. The driver frees after all work of the device, and waits for
/// that work; if an array class drops the buffer, the lock of the Python interpreter is released meanwhile.
///
/// Pool memory is freed without a wait. If it was made for a stream ([`zeroed_on`](Self::zeroed_on)) and only this crate
/// has used it, in a [`LaunchScope`](crate::LaunchScope) on that stream, it is free for the next allocation on that stream
/// as soon as it is dropped. All other pool memory is released according to
/// [`ReleasePolicy`](crate::order::release::ReleasePolicy).
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
    /// The context, and the stream on which pool memory was allocated.
    pub(crate) home: OwnStream,
    /// How pool memory that was allocated for a stream was used.
    pub(crate) uses: Option<Arc<Uses>>,
    /// Work on a stream is in the memory that the host has not waited for: a block, or the start of memory that is not followed.
    pub(crate) has_own_work: bool,
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
        let buffer = Self::for_elements(kind, ordinal, ElementType::from_whole_bytes(dtype, false)?, len)?;
        if buffer.bytes != 0 {
            buffer.zero(driver()?)?;
        }
        Ok(buffer)
    }

    /// Allocates `len` zeroed elements of pool memory for work on a stream of the device `ordinal`. They are zeroed in the
    /// order of that stream; work on another stream waits for it first. No call waits for a device.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed), and as [`stream_wait`](crate::cuda::stream_wait());
    /// [`ErrorKind::StreamCapture`](crate::ErrorKind::StreamCapture) for a stream that captures a graph, of which the memory
    /// could not be a part.
    ///
    /// ```no_run
    /// use interop_core::cuda::CudaBuffer;
    /// use interop_core::{DType, StreamHandle};
    ///
    /// let buffer = CudaBuffer::zeroed_on(StreamHandle::LegacyDefault, 0, DType::F32, 1 << 20)?;
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn zeroed_on(stream: StreamHandle, ordinal: i32, dtype: DType, len: usize) -> Result<Self> {
        let buffer = Self::for_stream(stream, ordinal, dtype, len)?;
        let bytes = buffer.bytes;
        if bytes != 0 {
            let driver = driver()?;
            let _entered = buffer.home.context.enter(driver)?;
            match stream.to_raw() {
                // SAFETY: this many bytes were allocated; the stream is live.
                Some(raw) => unsafe { driver.set(buffer.address as u64, 0, bytes, raw) }?,
                None => buffer.zero(driver)?,
            }
            buffer.note_work(stream);
        }
        Ok(buffer)
    }

    /// Allocates uninitialized memory for `len` elements that a kernel writes. It is ready on every stream.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// Every element is written before anything reads it, in stream order.
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    ///
    /// // SAFETY: the kernel that is launched next writes all of it.
    /// let buffer = unsafe { CudaBuffer::uninit::<f32>(MemoryKind::Device, 0, 1 << 20) }?;
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub unsafe fn uninit<T: Element>(kind: MemoryKind, ordinal: i32, len: usize) -> Result<Self> {
        Self::for_elements(kind, ordinal, T::TYPE, len)
    }

    /// As [`uninit`](Self::uninit), of pool memory for work on a stream, as [`zeroed_on`](Self::zeroed_on). It is ready on
    /// that stream.
    ///
    /// # Errors
    ///
    /// As [`zeroed_on`](Self::zeroed_on).
    ///
    /// # Safety
    ///
    /// 1. Every element is written before anything reads it, in stream order.
    /// 2. The first work on the memory is ordered after what is on the stream now.
    pub unsafe fn uninit_on(stream: StreamHandle, ordinal: i32, dtype: DType, len: usize) -> Result<Self> {
        Self::for_stream(stream, ordinal, dtype, len)
    }

    /// As [`uninitialized`](Self::uninitialized), in the primary context.
    pub(crate) fn for_elements(
        kind: MemoryKind,
        ordinal: i32,
        element: ElementType,
        len: usize,
    ) -> Result<Self> {
        let bytes = len.checked_mul(element.size).ok_or_else(|| element.too_large(len))?;
        Self::uninitialized(kind, Context::primary(ordinal)?, ordinal, element, bytes)
    }

    /// Allocates uninitialized memory in a context of the device `ordinal`. The caller writes all of it before anybody
    /// else gets it. The memory is ready on every stream.
    pub(crate) fn uninitialized(
        kind: MemoryKind,
        context: Context,
        ordinal: i32,
        element: ElementType,
        bytes: usize,
    ) -> Result<Self> {
        Self::allocated(kind, context, ordinal, element, bytes, |this, driver| match kind {
            MemoryKind::Pool => {
                this.allocate_in_pool(driver, PoolOf::device(ordinal), SPARE, None)?;
                queue_and_finish(driver, |_| Ok(()))
            }
            _ => this.allocate(driver),
        })
    }

    /// Allocates uninitialized pool memory for work on a stream, in the primary context: plain device memory if the device has
    /// no pool. It is ready on that stream.
    pub(crate) fn for_stream(stream: StreamHandle, ordinal: i32, dtype: DType, len: usize) -> Result<Self> {
        let element = ElementType::from_whole_bytes(dtype, false)?;
        let bytes = len.checked_mul(element.size).ok_or_else(|| element.too_large(len))?;
        let context = Context::primary(ordinal)?;
        if let Some(on) = Stream::new(stream, Some(context), Device::cuda(ordinal)).filter(|_| bytes != 0) {
            let driver = driver()?;
            let _entered = context.enter(driver)?;
            on.own_context(driver)?;
            if on.capture(driver)?.is_some() {
                return Err(capture_error(stream, "new memory"));
            }
            return Self::in_order(context, stream, ordinal, element, bytes);
        }
        Self::uninitialized(MemoryKind::Pool, context, ordinal, element, bytes)
    }

    /// As [`for_stream`](Self::for_stream), for a stream of a known context, which captures no graph.
    pub(crate) fn in_order(
        context: Context,
        stream: StreamHandle,
        ordinal: i32,
        element: ElementType,
        bytes: usize,
    ) -> Result<Self> {
        Self::allocated(MemoryKind::Pool, context, ordinal, element, bytes, |this, driver| {
            this.allocate_in_pool(driver, PoolOf::device(ordinal), key_of(stream), stream.to_raw())?;
            (this.uses, this.has_own_work) = (Uses::of_block(this.home), true);
            Ok(())
        })
    }

    /// Allocates uninitialized memory that other processes can open. It is ready on the stream, which captures no graph, or for the
    /// host.
    ///
    /// It is of a pool, because the release of plain device memory waits for all work of the device: the next copy would wait for
    /// work that the host may not have queued yet. Without such a pool it is plain, and has its pages for itself, because the
    /// driver places other small allocations in them.
    pub(crate) fn for_others(
        context: Context,
        stream: StreamHandle,
        ordinal: i32,
        element: ElementType,
        bytes: usize,
    ) -> Result<Self> {
        Self::allocated(MemoryKind::Pool, context, ordinal, element, bytes, |this, driver| {
            let consumer = stream.to_raw();
            this.allocate_in_pool(driver, PoolOf::copies_for_others(ordinal), SPARE, consumer)?;
            // Plain memory is ready at once.
            let is_awaited = consumer.is_none() && this.kind == MemoryKind::Pool;
            if is_awaited { queue_and_finish(driver, |_| Ok(())) } else { Ok(()) }
        })
    }

    fn allocated(
        kind: MemoryKind,
        context: Context,
        ordinal: i32,
        element: ElementType,
        bytes: usize,
        allocate: impl FnOnce(&mut Self, &'static Driver) -> Outcome,
    ) -> Result<Self> {
        let device = match kind {
            MemoryKind::Device | MemoryKind::Pool => Device::cuda(ordinal),
            MemoryKind::Pinned => Device::CUDA_HOST,
            MemoryKind::Managed => Device::CUDA_MANAGED,
        };
        let home = OwnStream::spare(context);
        let mut buffer =
            Self { address: 0, bytes, element, kind, device, home, uses: None, has_own_work: false };
        if bytes != 0 {
            poll_in_passing();
            let driver = driver()?;
            let _entered = context.enter(driver)?;
            let _relaxed = Relaxed::new(driver);
            let lacking = text!("{bytes} bytes of free memory");
            allocate(&mut buffer, driver).map_err(|failure| failure.expecting(lacking))?;
        }
        Ok(buffer)
    }

    /// Allocates memory that is not of the pool.
    fn allocate(&mut self, driver: &Driver) -> Outcome {
        const PORTABLE: u32 = 1;
        const GLOBAL: u32 = 1;
        let bytes = self.bytes;
        let (mut address, mut host) = (0, null_mut());
        // After a failure the variables may hold anything.
        match self.kind {
            MemoryKind::Device | MemoryKind::Pool => {
                with_room(driver, self.device.device_id, bytes, || {
                    // SAFETY: `address` is valid for a write; a context is current.
                    unsafe { driver.memory_alloc(&raw mut address, bytes) }
                })?;
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

    /// Allocates memory of a pool, in the order of a stream of this crate. If the device has no such pool, allocates plain
    /// device memory.
    fn allocate_in_pool(
        &mut self,
        driver: &'static Driver,
        of: PoolOf,
        key: usize,
        consumer: Option<CUstream>,
    ) -> Outcome {
        let home = OwnStream { key, ..self.home };
        match allocate(driver, home, consumer, of, self.bytes) {
            Err(failure) if of.is_missing_after(&failure) => {
                self.kind = MemoryKind::Device;
                self.bytes = of.bytes_without(self.bytes);
                self.allocate(driver)
            }
            allocated => {
                let PoolMemory { address, key } = allocated?;
                self.home.key = key;
                self.own(to_usize(address));
                Ok(())
            }
        }
    }

    /// Notes that this crate has queued work on the memory.
    pub(crate) fn note_work(&self, stream: StreamHandle) {
        if let (Some(uses), Some(on)) =
            (&self.uses, Stream::new(stream, Some(self.home.context), self.device))
        {
            uses.note_work(on);
        }
    }

    /// Returns whether the drop itself makes the release come after pending work, so that the owner need not.
    pub(crate) fn release_is_ordered(&self) -> bool {
        self.kind == MemoryKind::Pool
    }

    /// Stores the address. From here on the drop frees the memory.
    fn own(&mut self, address: usize) {
        self.address = address;
        COUNTERS.allocations.add();
    }

    fn zero(&self, driver: &Driver) -> Outcome {
        let _entered = self.home.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        // SAFETY: this many bytes were allocated.
        queue_and_finish(driver, |stream| unsafe {
            driver.set(self.address as u64, 0, self.bytes, stream.raw)
        })
    }

    /// Returns the address. The caller frees the memory.
    #[cfg(any(feature = "cust", feature = "cuda-core"))]
    pub(crate) fn into_address(self) -> usize {
        COUNTERS.allocations.sub();
        debug_assert!(self.uses.is_none(), "memory of a pool is freed in its order");
        core::mem::ManuallyDrop::new(self).address
    }

    /// Returns the reach of a release of pool memory.
    fn reach(&self) -> Reach {
        let context = self.home.context;
        let Ok(driver) = driver() else { return Reach::of_context(context) };
        // The memory may be used in stream order in a context that is not primary. The release has to wait for that one
        // too.
        let is_primary = context.primary_ordinal().is_some();
        let reach = if is_primary { reach_for(driver, self.device) } else { Reach::of_all(Some(context)) };
        reach.holding(self.bytes)
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
        let Self { address, kind, home, bytes, .. } = *self;
        // Those of leaked views and scopes.
        forget(address..address + bytes);
        let allocation = Allocation { address, kind, home };
        if kind != MemoryKind::Pool {
            return drop(allocation);
        }
        let work = self.uses.take().and_then(|uses| uses.end());
        let freed = match work {
            Some(work) => allocation.free_after(work.last.as_ref()),
            None => Err(allocation),
        };
        let Err(allocation) = freed else { return };
        // Freeing pool memory does not wait, so the next owner could write while kernels still read.
        drop(Owner::new(allocation).with_reach(Some(self.reach())));
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, element, device, kind, .. } = self;
        write!(f, "CudaBuffer({kind:?}, {} at {address:#x}, {device})", element.describe())
    }
}
