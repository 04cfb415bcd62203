//! Memory of every kind that CUDA has, owned: device, pinned, managed, and from the device's pool.

use core::fmt;
use core::ptr::null_mut;

use super::block::Block;
use super::check::fence_for;
use super::context::{Context, Relaxed};
use super::driver::{Driver, Outcome, RawStream, driver};
use super::order::{LEGACY, capture_of, wait};
use super::release::{Fence, after_work};
#[cfg(feature = "python")]
use crate::buffer::HostBuffer;
use crate::buffer::HostVec;
use crate::counters;
use crate::descriptor::Writes;
use crate::device::Device;
#[cfg(feature = "python")]
use crate::device::DeviceType;
use crate::dtype::DType;
use crate::element::{Element, ElementType};
use crate::error::{Error, Result, text};
use crate::facts::Facts;
#[cfg(feature = "python")]
use crate::layout::{Layout, Order};
use crate::owner::Owner;
use crate::storage::{Memory, Storage};
use crate::stream::StreamHandle;

/// The kinds of memory that CUDA has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from its stream-ordered pool (`cuMemAllocAsync`).
    Pool,
    /// Host memory that all devices reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}

/// Owned memory of any of CUDA's kinds, zeroed, for elements of a type that is known at run time.
///
/// One type, and one kind of address, for all kinds of memory: what takes one takes all. It is freed in its context, from
/// any thread, whatever context is current there. The driver frees after all work of the device, and waits for it, without
/// the lock of the Python interpreter where an array class drops it; memory from the pool, which the driver would free at
/// once, is released as [`ReleasePolicy`](super::ReleasePolicy) says.
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
/// assert_eq!(table.facts()?.device().to_string(), "CUDA (2), ordinal 0");
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct CudaBuffer {
    address: usize,
    bytes: usize,
    element: ElementType,
    kind: MemoryKind,
    device: Device,
    context: Context,
}

impl CudaBuffer {
    /// `len` zeroed elements, in the primary context of the device `ordinal`. For pinned and managed memory the device is
    /// the one whose context allocates.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Driver` without a driver, for an ordinal that is none, and when the memory is
    /// used up; `Overflow` when the size does not fit the address space; `DType` for types packed below the byte.
    pub fn zeroed(kind: MemoryKind, ordinal: i32, dtype: DType, len: usize) -> Result<Self> {
        let buffer = Self::for_elements(kind, ordinal, ElementType::of_whole_bytes(dtype, false)?, len)?;
        if buffer.bytes != 0 {
            buffer.zero(driver()?)?;
        }
        Ok(buffer)
    }

    /// A copy of these elements, complete on return.
    ///
    /// The padding of structs, the bytes between their fields, is copied as zeros.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    ///
    /// let buffer = CudaBuffer::from_slice(MemoryKind::Managed, 0, &[1.0_f32, 2.0, 3.0])?;
    /// assert_eq!(buffer.len(), 3);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_slice<T: Element>(kind: MemoryKind, ordinal: i32, elements: &[T]) -> Result<Self> {
        let buffer = Self::for_elements(kind, ordinal, T::TYPE, elements.len())?;
        let padding = T::TYPE.padding();
        // What lies between the fields of a struct may be left over from other data, which is nobody else's business.
        let cleared =
            if padding.is_empty() { None } else { Some(HostVec::without_padding(elements, &padding)?) };
        let plain = elements.as_ptr().expose_provenance();
        let from = cleared.as_ref().map_or(plain, |cleared| cleared.memory().address);
        // SAFETY: as many bytes on both sides, both live until the copy is waited for.
        unsafe { copy_now(driver()?, buffer.context, buffer.address, from, buffer.bytes) }?;
        Ok(buffer)
    }

    /// As [`uninitialized`](Self::uninitialized), in the primary context.
    fn for_elements(kind: MemoryKind, ordinal: i32, element: ElementType, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(element.size).ok_or_else(|| element.too_large(len))?;
        Self::uninitialized(kind, Context::primary(ordinal)?, ordinal, element, bytes)
    }

    /// Memory that nothing was written to, in a context of the device `ordinal`. Whoever asks for it writes all of it
    /// before somebody else has it.
    pub(super) fn uninitialized(
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
        let mut buffer = Self { address: 0, bytes, element, kind, device, context };
        if bytes != 0 {
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
        // After a failure the places hold anything.
        match self.kind {
            // SAFETY: a place for an address; a context is current.
            MemoryKind::Device => unsafe { driver.memory_alloc(&raw mut address, bytes) }?,
            MemoryKind::Pool => return on_a_stream(driver, |stream| self.allocate_in_order(driver, stream)),
            // SAFETY: as above.
            MemoryKind::Managed => unsafe { driver.memory_managed_alloc(&raw mut address, bytes, GLOBAL) }?,
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe { driver.memory_host_alloc(&raw mut host, bytes, PORTABLE) }?,
        }
        let pinned = self.kind == MemoryKind::Pinned;
        self.own(if pinned { host.expose_provenance() } else { to_usize(address) });
        Ok(())
    }

    /// Memory of the pool, which may be used on any stream.
    fn allocate_in_order(&mut self, driver: &Driver, stream: RawStream) -> Outcome {
        let mut address = 0;
        // SAFETY: a place for an address; the stream is live.
        unsafe { driver.memory_pool_alloc(&raw mut address, self.bytes, stream) }?;
        self.own(to_usize(address));
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(stream) }
    }

    /// From here on the drop frees the memory.
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

    /// The address; whoever takes it frees the memory.
    #[cfg(feature = "cust")]
    pub(super) fn into_address(self) -> usize {
        counters::ALLOCATIONS.sub();
        core::mem::ManuallyDrop::new(self).address
    }

    /// What the release of memory from a pool comes after.
    fn fence(&self) -> Fence {
        driver().map_or(Fence::of_device(self.context), |driver| fence_for(driver, self.device))
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes / self.element.size
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }
}

/// A device address of the driver's; CUDA has no 32-bit machines any more.
#[expect(clippy::cast_possible_truncation, reason = "as wide as an address")]
pub(crate) const fn to_usize(address: u64) -> usize {
    address as usize
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let block = Block { address: self.address, kind: self.kind, context: self.context };
        match self.kind {
            // Freeing it waits for nothing: the next owner would write while kernels still read.
            MemoryKind::Pool => after_work(Owner::new(block), self.fence()),
            _ => drop(block),
        }
    }
}

// SAFETY: 1, 2: allocated, and written once by whoever made it, until the drop. 3: as it was allocated. 4: `&self` lends nothing.
unsafe impl Storage for CudaBuffer {
    fn memory(&self) -> Memory {
        Memory {
            address: self.address,
            range: self.address..self.address + self.bytes,
            element: self.element,
            device: self.device,
            writes: Writes::Always,
        }
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, element, device, kind, .. } = self;
        write!(f, "CudaBuffer({kind:?}, {} at {address:#x}, {device})", element.describe())
    }
}

/// Copies bytes between any two places, and waits for it.
///
/// # Safety
///
/// Both places have so many bytes, and nobody writes to the source or uses the target meanwhile.
pub(super) unsafe fn copy_now(
    driver: &Driver,
    context: Context,
    to: usize,
    from: usize,
    bytes: usize,
) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    // SAFETY: as the caller promises; the stream is live.
    finished(driver, |stream| unsafe { driver.copy(to as u64, from as u64, bytes, stream) })
}

/// Queues work on a stream of the current context and waits for it.
fn finished(driver: &Driver, work: impl FnOnce(RawStream) -> Outcome) -> Outcome {
    on_a_stream(driver, |stream| {
        work(stream)?;
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(stream) }
    })
}

/// Runs `work` with the legacy default stream of the current context. While a stream that joins with it captures a graph,
/// which it would spoil, with a stream that is there for this work alone.
pub(super) fn on_a_stream(driver: &Driver, work: impl FnOnce(RawStream) -> Outcome) -> Outcome {
    const NON_BLOCKING: u32 = 1;
    if capture_of(driver, LEGACY).is_ok() {
        return work(LEGACY);
    }
    let mut stream = 0;
    // SAFETY: a place for a stream.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    let done = work(stream);
    // SAFETY: created above, used no more.
    let _ = unsafe { driver.stream_destroy(stream) };
    done
}

/// A copy in host memory of all bytes that the elements of an array span, after the work that is pending on it.
pub(crate) struct Staged {
    /// Aligned for any element; kept while the facts are in use.
    _bytes: Vec<u128>,
    pub(crate) facts: Facts,
}

/// Copies the bytes of an array to the host: the same layout, at another address.
///
/// # Errors
///
/// As [`wait`], and [`ErrorKind::Memory`](crate::ErrorKind::Memory) for more than fits the host's memory.
///
/// # Safety
///
/// The memory that `facts` describe is live.
pub(crate) unsafe fn stage(facts: &Facts) -> Result<Staged> {
    let (driver, range) = (driver()?, facts.byte_range());
    wait(facts.stream(), facts.device())?;
    let words = range.len().div_ceil(size_of::<u128>());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(words).map_err(|_| Error::no_memory(range.len()))?;
    bytes.resize(words, 0_u128);
    let start = bytes.as_mut_ptr().expose_provenance();
    let context = super::place::context_for(driver, facts.device())?;
    // SAFETY: the array's own range, live as the caller promises; the vector is new and as long.
    unsafe { copy_now(driver, context, start, range.start, range.len()) }?;
    Ok(Staged { _bytes: bytes, facts: moved(facts, start, Device::CPU) })
}

/// Copies an array on its device into new memory of the same kind, and waits for the copy. The copy is writable whether or
/// not the original is, unless elements share their place: to write one would be to write others.
///
/// The layout stays the same. Only an array with axes that run backwards, which some consumers of copies cannot read, is
/// put together on the host, compact in C order.
///
/// # Errors
///
/// As [`wait`] and [`CudaBuffer::zeroed`]; [`ErrorKind::DType`](crate::ErrorKind::DType) for packed elements that run
/// backwards.
///
/// # Safety
///
/// As [`stage`].
#[cfg(feature = "python")]
pub(crate) unsafe fn duplicate(facts: &Facts) -> Result<(CudaBuffer, Facts)> {
    let driver = driver()?;
    let kind = match facts.device().device_type {
        DeviceType::CUDA_HOST => MemoryKind::Pinned,
        DeviceType::CUDA_MANAGED => MemoryKind::Managed,
        _ => MemoryKind::Device,
    };
    let ordinal = match kind {
        MemoryKind::Device => facts.device().device_id,
        // Where the original is, so that no context is made on a device that nobody uses.
        _ => super::pointer_facts(facts.address())?.map_or(0, |known| known.ordinal()),
    };
    let (mut facts, mut start) = (facts.clone(), facts.byte_range().start);
    let together;
    if facts.strides().iter().any(|stride| *stride < 0) {
        // SAFETY: as the caller promises.
        let staged = unsafe { stage(&facts) }?;
        // SAFETY: staged above, on the host.
        together = unsafe { HostBuffer::copy_of(&staged.facts) }?;
        start = together.memory().address;
        let layout = Layout::compact(facts.shape(), Order::C)?;
        facts = Facts { layout, address: start, range: together.memory().range, ..facts };
    } else {
        wait(facts.stream(), facts.device())?;
    }
    let bytes = facts.byte_range().len();
    let buffer = CudaBuffer::for_elements(kind, ordinal, u8::TYPE, bytes)?;
    // SAFETY: the array's own range, live as the caller promises, or put together above; the buffer is new and as long.
    unsafe { copy_now(driver, buffer.context, buffer.address, start, bytes) }?;
    let writes = if facts.layout().is_injective() { Writes::Always } else { facts.writes() };
    let facts = Facts { writes, ..moved(&facts, buffer.address, buffer.device) };
    Ok((buffer, facts))
}

/// The facts of the same bytes elsewhere, where nothing is pending on them.
fn moved(facts: &Facts, start: usize, device: Device) -> Facts {
    let range = facts.byte_range();
    Facts {
        address: if facts.numel() == 0 { 0 } else { start + (facts.address() - range.start) },
        range: start..start + range.len(),
        device,
        stream: StreamHandle::NothingPending,
        ..facts.clone()
    }
}
