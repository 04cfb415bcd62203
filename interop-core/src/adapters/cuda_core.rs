//! `cuda-core` 0.5, NVIDIA's CUDA Rust: its buffers and streams as fields, imports as its allocations.
//!
//! | field | attribute | an import | exports are writable |
//! | --- | --- | --- | --- |
//! | `DeviceBuffer<T>` | `data` | copies, and waits for the copy | always, except `bool` |
//! | `DeviceBufferView<'_, T>` | `data`, for views and launches only, because it is borrowed | – | – |
//! | [`ImportedBuffer<T>`] | `data` | in place | always |
//! | `Stream`, and `&`, `Rc`, `Arc` and `Option` of one | `stream` | `Arc<Stream>`: the caller's stream, borrowed | |
//!
//! The feature needs Rust 1.89, and CUDA headers and libclang to compile, which `cuda-core` translates. So it is in no
//! set of all features, and not on docs.rs. `cuda-core` loads libcuda at run time, like this crate.
//!
//! A `DeviceBuffer` does not know the stream that wrote it last. Put that stream in a `stream` field, or consumers wait
//! for all work of its context. `cuda-core` frees memory on a thread of its own, after the work that it tracks; it does not
//! track the work of consumers, for which an export waits before it drops the buffer. It does not see launches with a
//! kernel view either.
//!
//! A default stream is that of the current context. Where another context is current than that of the stream, an export
//! waits for all work of the context instead.
//!
//! ```no_run
//! use cuda_core::{Context, DeviceBuffer, Function, Stream};
//! use interop_core::adapters::cuda_core::ImportedBuffer;
//! use interop_core::{CudaArray, FromArray, LaunchScope};
//! use std::sync::Arc;
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [len])]
//! struct Row<B> { #[cuda_array(data)] values: B, len: usize, #[cuda_array(stream)] stream: Arc<Stream> }
//!
//! # fn run(kernel: &Function) -> Result<(), Box<dyn std::error::Error>> {
//! let stream = Context::new(0)?.new_stream()?;
//! let values = DeviceBuffer::from_host(&stream, &[1.0_f32, 2.0])?;
//! let mut row = Row { values, len: 2, stream: stream.clone() };
//!
//! let scope = LaunchScope::on(&stream);
//! let mut view = scope.write::<f32, 1>(&mut row)?;
//! let arguments = &mut [(&raw mut view).cast()];
//! // SAFETY: the kernel takes an `interop::view<float, 1>`; the row lives until the stream has been waited for.
//! unsafe { cuda_core::launch_kernel_on_stream(kernel, (1, 1, 1), (32, 1, 1), 0, &stream, arguments)? };
//! scope.finish()?;
//!
//! let tensor = row.into_dlpack()?;         // for torch, CuPy, ...: the consumer waits for the kernel
//! let mut same: Row<ImportedBuffer<f32>> = Row::from_dlpack(tensor)?;
//! let buffer = same.values.on(&stream)?;   // `stream` waits for pending work on the import
//! assert_eq!(buffer.to_host_vec()?.len(), 2);
//! # Ok(())
//! # }
//! ```
#![expect(
    unsafe_code,
    reason = "implements `Storage` and `DeviceAllocation`, and makes buffers from raw memory"
)]

use core::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, PoisonError};

use ::cuda_core::{
    Context, DeviceAllocation, DeviceBuffer, DeviceBufferView, DeviceCopy, DriverError, RawDeviceBuffer,
    Stream,
};

use crate::adapters::{check_allocated_in, contiguous_elements, device_writes, failed};
use crate::array::device::{Device, DeviceType};
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::derive::launch_scope::LaunchScope;
use crate::derive::scope_state::ScopeUse;
use crate::driver;
use crate::driver::context::enter_primary_context;
use crate::driver::functions::to_usize;
use crate::driver::stream::{is_capturing, is_stream_of};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::copy::transfer::{ImportCopy, ordinal_of};
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::extraction::FromImport;
use crate::memory::import::Import;
use crate::memory::lease::LeaseMut;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::order::claim::Claim;
use crate::order::default_streams::order_default_stream;
use crate::order::handover::ArrayWork;
use crate::order::memory_state::{MemoryState, StorageState};
use crate::order::placement::Placement;
use crate::process::fork::PerProcess;

/// Returns the context that imports use: the primary context of a device. It is kept until the program ends.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, and for an invalid ordinal.
pub fn context(ordinal: usize) -> Result<Arc<Context>> {
    static CONTEXTS: PerProcess<Mutex<Vec<Arc<Context>>>> = PerProcess::new(|_| Mutex::new(Vec::new()));
    let mut contexts = CONTEXTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = contexts.iter().find(|context| context.ordinal() == ordinal) {
        return Ok(context.clone());
    }
    // `cuda-core` leaves its context current on the thread.
    let _entered = enter_primary_context(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
    let usable = text!("a usable device with ordinal {ordinal}");
    let context = Context::new(ordinal).map_err(|error| failed("Context", error, usable))?;
    contexts.push(context.clone());
    Ok(context)
}

fn driver_context(context: &Context) -> Option<cuda::Context> {
    // SAFETY: `cuda-core` got the handle from the driver and keeps the context alive.
    unsafe { cuda::Context::from_raw(context.cu_ctx() as usize) }
}

fn device_of(context: &Context) -> Device {
    // The driver's device ordinals are `int`.
    Device::cuda(i32::try_from(context.ordinal()).unwrap_or(i32::MAX))
}

/// Takes a lease until the work that is on a stream now is done, as `cuda-core` does for its own work. Returns whether it did.
fn leased(storage: &RawDeviceBuffer, stream: StreamHandle, write: bool) -> bool {
    let Some(raw) = stream.to_raw() else { return true };
    if !is_stream_of(stream, driver_context(storage.context())).unwrap_or(false) {
        return false;
    }
    let _guards = enter_primary_context(device_of(storage.context()).device_id);
    // SAFETY: the stream is that of a scope, which is live, and it belongs to this context.
    let stream = unsafe { Stream::borrow_raw(with_exposed_provenance_mut(raw), storage.context()) };
    let lease = storage.acquire(&stream, write, false);
    lease.and_then(|lease| lease.retain_until_complete(&stream)).is_ok()
}

macro_rules! buffers {
    ($($buffer:ty, $mutability:expr;)*) => {
        $(
            // SAFETY: 1: `cuda-core` makes uninitialized buffers only in `unsafe` functions. 2: the allocation is freed
            // after the last buffer or view of it. 3: the memory is on the device of its context. 4: it is device memory,
            // without references to elements.
            unsafe impl<T: Element> Storage for $buffer {
                fn memory(&self) -> Result<MemoryRegion> {
                    let (address, device) = (to_usize(self.cu_deviceptr()), device_of(self.context()));
                    Ok(MemoryRegion::new::<T>(address, self.len(), device, $mutability))
                }

                fn note_read(&self, stream: StreamHandle) -> bool {
                    leased(self.storage(), stream, false)
                }

                fn note_write(&mut self, stream: StreamHandle) -> bool {
                    leased(self.storage(), stream, true)
                }

                fn is_only_handle(&mut self) -> bool {
                    self.storage().is_unique()
                }
            }
        )*
    };
}

buffers! {
    DeviceBuffer<T>, device_writes::<T>();
    DeviceBufferView<'_, T>, Mutability::ReadOnly;
}

impl<T: Element + DeviceCopy> FromImport for DeviceBuffer<T> {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        copy_to_device_buffer(import, order)
    }
}

/// Copies an import into memory of the primary context and waits for the copy, because streams of `cuda-core` do not wait
/// for the default stream.
fn copy_to_device_buffer<T: Element + DeviceCopy>(
    import: &mut Import,
    order: Order,
) -> Result<DeviceBuffer<T>> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    let copy = ImportCopy::on_default_stream(import)?;
    let context = context(copy.ordinal())?;
    if count == 0 {
        // SAFETY: there is no memory to free.
        return typed(unsafe { RawDeviceBuffer::from_raw_parts(0, 0, context) }, 0);
    }
    let device = device_of(&context);
    let _guards = (enter_primary_context(device.device_id)?, crate::driver::context::relaxed());
    let bytes = count.checked_mul(size_of::<T>()).ok_or_else(|| T::TYPE.too_large(count))?;
    let primary = cuda::Context::primary(device.device_id)?;
    let target = CudaBuffer::uninitialized(MemoryKind::Device, primary, device.device_id, T::TYPE, bytes)?;
    // SAFETY: the new memory belongs to the context and has space for the elements.
    unsafe { copy.copy(import, &T::TYPE, order, target.address, true) }?;
    // SAFETY: the memory comes from `cuMemAlloc` in this context, has this size, and is freed by nobody else.
    typed(unsafe { RawDeviceBuffer::from_raw_parts(target.into_address() as u64, bytes, context) }, count)
}

/// Makes a typed buffer of storage that has `count` valid elements `T`.
fn typed<T: DeviceCopy>(storage: RawDeviceBuffer, count: usize) -> Result<DeviceBuffer<T>> {
    // SAFETY: the callers hand over this many elements, which have been written. Other types that share the storage need
    // `unsafe` code in the program.
    let buffer = unsafe { DeviceBuffer::from_storage_copy(storage, count) };
    buffer.map_err(|error| {
        failed("from_storage_copy", error, "memory of the size and alignment of the elements")
    })
}

/// An import as a buffer of `cuda-core`, in place: the memory is released when the last buffer, view and launch that
/// uses it has ended.
///
/// The array must be writable, contiguous in C or Fortran order, and device memory of the primary context, in which
/// `cuda-core` works. `bool`, and other types for which some bytes are invalid, do not compile, because `cuda-core` copies
/// elements to the host unchecked. See the [module](self) for an example.
///
/// [`on`](Self::on) orders the work on the buffer with that of the import's owner. It does not know a `stream` field beside
/// the buffer: there it waits for all work of the context, and at the end the host waits.
#[derive(Debug)]
pub struct ImportedBuffer<T> {
    buffer: DebugBuffer<T>,
    info: ArrayInfo,
}

/// An imported buffer in use on a stream. At the end the stream of the import waits for that stream.
///
/// Its methods are those of `DeviceBuffer`, on this stream. It does not dereference to the buffer, because safe code could then
/// exchange the buffer for another one, or use it on a stream that waits for nothing.
///
/// ```compile_fail,E0614
/// use cuda_core::DeviceBuffer;
/// use interop_core::adapters::cuda_core::BufferOnStream;
///
/// fn exchange(buffer: &mut BufferOnStream<'_, f32>, other: &mut DeviceBuffer<f32>) {
///     std::mem::swap(&mut **buffer, other);
/// }
/// ```
#[derive(Debug)]
pub struct BufferOnStream<'a, T> {
    buffer: &'a mut DebugBuffer<T>,
    stream: &'a Stream,
    scope: LaunchScope<'a>,
}

/// A `DeviceBuffer`, which has no `Debug`.
struct DebugBuffer<T>(DeviceBuffer<T>);

impl<T> core::fmt::Debug for DebugBuffer<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.0.storage())
    }
}

impl<T: Element + DeviceCopy> ImportedBuffer<T> {
    /// Returns the buffer for use on a stream: the stream waits for pending work on the import.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for a stream of another context, and for a default stream if its context is not current; as
    /// [`LaunchScope::write`].
    pub fn on<'a>(&'a mut self, stream: &'a Stream) -> Result<BufferOnStream<'a, T>> {
        let (own, context) = (self.buffer.0.context(), stream.context());
        let handle = stream.as_stream_on(self.info.device);
        let (true, Some(handle)) = (own == context, handle) else {
            let found = text!("{}, of context {:p}", stream.as_stream(), context.cu_ctx());
            let allowed = text!(
                "a stream of the buffer's context {:p}; for a default stream it must be current",
                own.cu_ctx()
            );
            return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
        };
        if self.info.state.placement.is_nothing() && self.info.unwatched_address != 0 && !is_capturing(handle)
        {
            // The import left its work to a `stream` field of the struct, which is not known here. At its end the scope
            // makes the host wait, so that nothing is pending beside that stream either.
            let waiter = driver::stream::Stream::new(handle, None, self.info.device);
            let claim = Claim::asked(&self.info, waiter)?;
            let state = MemoryState::new(Placement::Unknown);
            ArrayWork { state: &state, ..self.info.work() }.order_before(waiter.into(), claim)?;
        }
        let scope = LaunchScope::on_handle(handle);
        scope.add(&self.info, ScopeUse::WRITE)?;
        Ok(BufferOnStream { buffer: &mut self.buffer, stream, scope })
    }

    /// Returns the buffer. The stream waits for pending work on the import.
    ///
    /// # Errors
    ///
    /// As [`on`](Self::on).
    ///
    /// # Safety
    ///
    /// The program orders its work on the buffer with all other uses of the array, for example because nobody else uses it. Only
    /// the release of the memory waits for that work.
    pub unsafe fn into_buffer(mut self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        self.on(stream)?.finish()?;
        Ok(self.buffer.0)
    }
}

impl<T: DeviceCopy> BufferOnStream<'_, T> {
    /// Copies the elements to the host, and waits for the copy.
    ///
    /// # Errors
    ///
    /// As `DeviceBuffer::to_host_vec`.
    pub fn to_host_vec(&self) -> Result<Vec<T>, DriverError> {
        self.buffer.0.to_host_vec(self.stream)
    }

    /// Copies elements from the host, and waits for the copy.
    ///
    /// # Errors
    ///
    /// As `DeviceBuffer::copy_from_host`.
    ///
    /// # Panics
    ///
    /// If the slice has another length.
    pub fn copy_from_host(&mut self, elements: &[T]) -> Result<(), DriverError> {
        self.buffer.0.copy_from_host(self.stream, elements)
    }

    /// Queues a copy of the elements of another buffer.
    ///
    /// # Errors
    ///
    /// As `DeviceBuffer::copy_from_device_async`.
    ///
    /// # Panics
    ///
    /// If the other buffer has another length.
    pub fn copy_from_device_async(&mut self, other: &DeviceBuffer<T>) -> Result<(), DriverError> {
        self.buffer.0.copy_from_device_async(other, self.stream)
    }

    /// Queues a write of zeros to all bytes.
    ///
    /// # Errors
    ///
    /// As `DeviceBuffer::zero_async`.
    pub fn zero_async(&mut self) -> Result<(), DriverError> {
        self.buffer.0.zero_async(self.stream)
    }
}

impl<T> BufferOnStream<'_, T> {
    /// Returns the buffer itself, for a launch.
    ///
    /// # Safety
    ///
    /// 1. The buffer stays in its place: it is not exchanged for another one.
    /// 2. All work on it is on the stream of this use, and is queued before the use ends.
    pub unsafe fn buffer(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.buffer.0
    }

    /// Ends the use: the stream of the import waits for the work that was queued.
    ///
    /// # Errors
    ///
    /// As [`LaunchScope::finish`].
    pub fn finish(self) -> Result<()> {
        self.scope.finish()
    }
}

/// The memory of an import as `cuda-core` keeps it.
struct ImportedMemory<T> {
    _lease: LeaseMut<T>,
    address: u64,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the lease keeps the memory, in which the elements have this extent, and which was found to be of the context. The
// context is kept until the program ends.
unsafe impl<T: Element> DeviceAllocation for ImportedMemory<T> {
    fn device_ptr(&self) -> u64 {
        self.address
    }

    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn context(&self) -> Arc<Context> {
        self.context.clone()
    }
}

/// Returns the address and the number of the elements, and the context of their memory.
fn place<T: Element>(info: &ArrayInfo) -> Result<(u64, usize, Arc<Context>)> {
    let (address, len) = contiguous_elements::<T>(info)?;
    if info.device.device_type != DeviceType::CUDA {
        let allowed = "device memory (CUDA, 2); copy the array there";
        return Err(Error::new(ErrorKind::Device, "device", info.device, allowed));
    }
    let context = context(usize::try_from(info.device.device_id).unwrap_or(usize::MAX))?;
    check_allocated_in(info.unwatched_address, driver_context(&context))?;
    Ok((address, len, context))
}

impl<T: Element + DeviceCopy> FromImport for ImportedBuffer<T> {
    const COPIES: bool = false;
    const WRITES: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        info.check_import_writable()
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        const {
            assert!(T::TYPE.any_bits, "not every byte is a value of this type");
        };
        let (address, len, context) = place::<T>(import.info())?;
        let mut info = import.info().clone();
        let lease = LeaseMut::<T>::from_import(import, order)?;
        // What `cuda-core` does with the memory is not noticed here, so the release waits for all work of the context.
        info.state.note_used();
        info.state = MemoryState::new(lease.state().placement);
        let bytes = len * size_of::<T>();
        let memory = Arc::new(ImportedMemory { _lease: lease, address, bytes, context });
        // The size and the alignment have been checked, so there is no error that would lose the import.
        let buffer = typed(RawDeviceBuffer::foreign(memory, bytes), len)?;
        Ok(Self { buffer: DebugBuffer(buffer), info })
    }
}

// SAFETY: as for the buffer, whose memory the import keeps.
unsafe impl<T: Element> Storage for ImportedBuffer<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        self.buffer.0.memory()
    }

    fn stream(&self) -> Option<StreamHandle> {
        self.info.stream()
    }

    fn state(&self) -> StorageState<'_> {
        StorageState::new(self.info.state.placement)
    }
}

impl AsStream for Stream {
    fn as_stream(&self) -> StreamHandle {
        // SAFETY: the stream belongs to a field; an export owns the whole struct.
        unsafe { StreamHandle::from_raw(self.cu_stream() as usize) }
    }

    fn as_stream_on(&self, device: Device) -> Option<StreamHandle> {
        let handle = self.as_stream();
        let is_meant = || {
            driver_context(self.context())
                .is_none_or(|context| crate::driver::context::has_default_streams(context, device))
        };
        // Without the stream, consumers wait for all work of the memory's context.
        (matches!(handle, StreamHandle::Raw(_)) || is_meant()).then_some(handle)
    }
}

/// The stream is borrowed. As with a [`StreamHandle`], its owner keeps it alive while the struct is in use.
impl FromStream for Arc<Stream> {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        let context = context(ordinal_of(stream, device)?)?;
        order_default_stream(stream, driver_context(&context), device)?;
        let raw = stream.to_raw().unwrap_or(0);
        // SAFETY: `ordinal_of` has found that the stream belongs to the context, which is kept. Whoever created the stream
        // keeps it alive.
        Ok(unsafe { Stream::borrow_raw(with_exposed_provenance_mut(raw), &context) })
    }
}
