//! `cudarc` 0.19: its slices and streams as fields, [`KernelView`](crate::kernel::KernelView) as an argument of its launch builder.
//!
//! | field | attribute | an import | exports are writable |
//! | --- | --- | --- | --- |
//! | `CudaSlice<T>` | `data` | copies, in order on the default stream of its device | always, except `bool` |
//! | `CudaViewMut<'_, T>` | `data`, for views and launches only, because it is borrowed | – | – |
//! | `CudaView<'_, T>` | as `CudaViewMut`, for reading | – | – |
//! | `PinnedHostSlice<T>`, `UnifiedSlice<T>` | `data` | copies, and waits for the copy; needs at least one element | if they consume the struct |
//! | `Arc<CudaStream>` | `stream` | the caller's stream, borrowed | |
//!
//! A slice knows its device and its stream. If a struct has no `stream` field, or `None` in it, the consumer of an
//! export waits for the slice's own stream, which waits for the last write that `cudarc` tracks. Beside a `stream` field both
//! streams are waited for. The end of a [`LaunchScope`](crate::LaunchScope) or of a loan adds its work to what `cudarc` tracks.
//! `cudarc` does not see other launches with a [`KernelView`](crate::kernel::KernelView): call
//! [`wait_for_stream`](crate::CudaArray::wait_for_stream) after them.
//!
//! A default stream, of a slice or in a field, belongs to its own context. On a thread with another current context, a
//! blocking stream of the first context is used instead. While the slice's stream captures a graph, the host waits for
//! the last write, so that a view does not invalidate the capture.
//!
//! An array that another library owns is lent to `cudarc` without a copy: see [`LentSlice`].
//!
//! `cudarc` frees its memory itself. It frees a `CudaSlice` in stream order if the device has memory pools. It frees
//! all other memory after waiting for pending work; the drop of a Python object then waits while it is attached to the
//! interpreter. (A [`CudaBuffer`](crate::cuda::CudaBuffer) detaches first.)
//!
//! The application selects the CUDA version of `cudarc`, by a feature of `cudarc` or by `CUDARC_CUDA_VERSION`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use cudarc::driver::{CudaContext, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
//! use interop_core::{CudaArray, FromArray, LaunchScope};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width, 3])]
//! struct Image<S = CudaSlice<f32>> {
//!     #[cuda_array(data)]
//!     pixels: S,
//!     height: usize,
//!     width: usize,
//! }
//!
//! # fn run(kernel: &cudarc::driver::CudaFunction) -> Result<(), Box<dyn std::error::Error>> {
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let pixels = stream.alloc_zeros::<f32>(480 * 640 * 3)?;
//! let mut image = Image { pixels, height: 480, width: 640 };
//!
//! let scope = LaunchScope::new();
//! let view = scope.write::<f32, 3>(&mut image)?;
//! let stream: Arc<CudaStream> = scope.stream()?;       // that of the slice
//! // SAFETY: the kernel takes an `interop::view<float, 3>`; the image lives until the stream has been waited for.
//! unsafe { stream.launch_builder(kernel).arg(&view).launch(LaunchConfig::for_num_elems(480 * 640 * 3))? };
//! scope.finish()?;
//! let tensor = image.into_dlpack()?;      // for torch, CuPy, ...: the consumer waits for the kernel
//! let copy: Image = Image::from_dlpack(tensor)?;       // copies into new memory
//! # Ok(())
//! # }
//! ```
//!
//! # candle
//!
//! `candle-core` 0.11 uses the same `cudarc` as this crate. To export a contiguous tensor in place, implement `Storage` for a
//! struct around it. `memory` takes `tensor.storage_and_layout()`, requires `contiguous_offsets()`, and describes the slice: on the
//! CPU by `MemoryRegion::new::<f32>(address, len, Device::CPU, Mutability::ReadOnly)`, on a device by
//! `as_cuda_slice::<f32>()?.slice(start..end).memory()`, whose `Storage::stream` is the stream. The program must change no tensor
//! in place (`inplace_op1`, `Var::set`) that is shared like this. An import is copied, because a tensor of candle owns its memory:
//!
//! ```rs
//! let tensor = Tensor::from_vec(array.to_vec::<f32>()?, (rows, columns), &candle_core::Device::Cpu)?;
//!
//! let device = cuda.as_cuda_device()?;                              // `cuda` is a `candle_core::Device`
//! let lent = LentSlice::<f32>::with_stream(&array, &device.cuda_stream())?;
//! let copy = CudaStorage::wrap_cuda_slice(device.cuda_stream().clone_dtod(&lent.view())?, device.clone());
//! let tensor = Tensor::from_storage(candle_core::Storage::Cuda(copy), (rows, columns), BackpropOp::none(), false);
//! lent.finish()?;
//! ```
//!
//! A custom operator (`InplaceOp1`) uses an array in place: it has the `CudaView` of a loan as a field. Call `lent.finish()` after
//! it.
//!
//! # Older versions of cudarc
//!
//! With `cudarc` 0.14 to 0.18, leave the feature out and implement `Storage` for a struct around the slice: `memory` has the
//! address of `slice.device_ptr(slice.stream())`, whose guard goes to `mem::forget`, and `stream` the slice's. To lend an import,
//! get the array from a `LaunchScope` by `read_any`, and make a slice of its address with `upgrade_device_ptr`, which you `leak`
//! before `scope.finish()`. Up to 0.13, slices have no stream: upgrade first.
#![expect(unsafe_code, reason = "implements `Storage` for cudarc's slices and borrows streams")]

pub(crate) mod context;
pub(crate) mod lend;
pub(crate) mod streams;

use core::mem::forget;
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    DeviceSlice, DriverError, HostSlice, PinnedHostSlice, SyncOnDrop, UnifiedSlice, result,
};

use crate::adapters::cudarc::context::captured;
use crate::adapters::cudarc::lend::{record, slice_over};
use crate::adapters::cudarc::streams::{blocking_proxy, current, device_of, handle_on};
use crate::adapters::{device_writes, failed};
use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::fields::stream::AsStream;
use crate::driver::functions::to_usize;
use crate::driver::stream::is_capturing;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::copy::transfer::ImportCopy;
use crate::memory::extraction::FromImport;
use crate::memory::import::Import;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::release::requests::make_room_on;

pub use crate::adapters::cudarc::context::context;
pub use crate::adapters::cudarc::lend::{LentSlice, LentSliceMut};

/// The address of a slice. The slice's stream waits for the work that `cudarc` tracks.
fn slice_address<T, S: DevicePtr<T>>(slice: &S) -> usize {
    after_pending(slice.stream(), |stream| {
        let (address, read) = slice.device_ptr(stream);
        // Dropping it would record an event as if the read were complete. The export orders the actual read later.
        forget(read);
        to_usize(address)
    })
}

/// Calls `get_address`, which makes a stream wait for the work that `cudarc` tracks on a slice. During capture, of the
/// stream or of one that synchronizes with the default stream, the host waits instead: a wait for work outside the
/// graph would invalidate the capture.
fn after_pending(stream: &Arc<CudaStream>, get_address: impl Fn(&CudaStream) -> usize) -> usize {
    let (context, handle) = (stream.context(), stream.as_stream());
    // `cudarc` leaves its context current on the thread.
    let _entered = current(context);
    if touches_capture(handle) {
        if let Ok(other @ StreamHandle::Raw(raw)) = blocking_proxy(context, StreamHandle::LegacyDefault) {
            // SAFETY: the stream belongs to the context and is never destroyed.
            let other_stream =
                unsafe { context.wrap_borrowed_stream(core::ptr::with_exposed_provenance_mut(raw.get())) };
            let address = get_address(&other_stream);
            context.record_err(cuda::stream_synchronize(other, device_of(context)).map_err(|_| captured()));
            return address;
        }
    }
    get_address(stream)
}

/// Returns whether work on a stream is part of a capture, or would invalidate one.
fn touches_capture(handle: StreamHandle) -> bool {
    match handle {
        StreamHandle::LegacyDefault => crate::driver::stream::legacy_stream_joins_capture(),
        handle => is_capturing(handle),
    }
}

/// Notes work on a slice as `cudarc` does: its functions on other streams wait for the event of the last read or write. The
/// slice's own stream has waited for the work. `access` returns the event.
fn noted<'s>(stream: &'s Arc<CudaStream>, access: impl FnOnce(&'s CudaStream) -> SyncOnDrop<'s>) -> bool {
    let _guards = (current(stream.context()), crate::driver::context::relaxed());
    // A graph is ordered where it is launched.
    touches_capture(stream.as_stream()) || record(access(stream)).is_ok()
}

macro_rules! slices {
    ($($slice:ty, $memory:expr, $write:ident;)*) => {
        $(
            // SAFETY: 1: `cudarc` makes uninitialized slices only in `unsafe` functions. 2: a slice frees its memory on
            // drop, and a view borrows one. 3: the memory is on the device of its context, or from `cuMemAllocManaged`. 4:
            // it is device memory, without references to elements, or no slice of elements outlives a borrow.
            unsafe impl<T: Element> Storage for $slice {
                fn memory(&self) -> Result<MemoryRegion> {
                    let memory: fn(&CudaContext) -> (Device, Mutability) = $memory;
                    let (device, mutability) = memory(DeviceSlice::stream(self).context());
                    Ok(MemoryRegion::new::<T>(slice_address(self), self.len(), device, mutability))
                }

                fn stream(&self) -> Option<StreamHandle> {
                    let memory: fn(&CudaContext) -> (Device, Mutability) = $memory;
                    let stream = DeviceSlice::stream(self);
                    Some(handle_on(stream, memory(stream.context()).0))
                }

                fn note_read(&self, _: StreamHandle) -> bool {
                    noted(DeviceSlice::stream(self), |stream| self.device_ptr(stream).1)
                }

                fn note_write(&mut self, _: StreamHandle) -> bool {
                    let stream = DeviceSlice::stream(self).clone();
                    noted(&stream, |stream| self.$write(stream).1)
                }
            }
        )*
    };
}

slices! {
    CudaSlice<T>, |context| (device_of(context), device_writes::<T>()), device_ptr_mut;
    CudaView<'_, T>, |context| (device_of(context), Mutability::ReadOnly), device_ptr;
    CudaViewMut<'_, T>, |context| (device_of(context), device_writes::<T>()), device_ptr_mut;
    UnifiedSlice<T>, |_| (Device::CUDA_MANAGED, Mutability::UniqueOwner), device_ptr_mut;
}

// SAFETY: 1, 2: as for `CudaSlice`. 3: it comes from `cuMemHostAlloc`. 4: no slice of elements outlives a borrow of the
// buffer.
unsafe impl<T: Element> Storage for PinnedHostSlice<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        let address = after_pending(&self.context().default_stream(), |stream| {
            // SAFETY: only the address of the slice is used.
            let (elements, read) = unsafe { self.stream_synced_slice(stream) };
            // As in `slice_address`.
            forget(read);
            elements.as_ptr().expose_provenance()
        });
        Ok(MemoryRegion::new::<T>(address, self.len(), Device::CUDA_HOST, Mutability::UniqueOwner))
    }

    /// The stream that `memory` made wait for pending work.
    fn stream(&self) -> Option<StreamHandle> {
        Some(handle_on(&self.context().default_stream(), Device::CUDA_HOST))
    }

    fn note_read(&self, _: StreamHandle) -> bool {
        // SAFETY: only the event of the slice is used.
        noted(&self.context().default_stream(), |stream| unsafe { self.stream_synced_slice(stream) }.1)
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.note_read(stream)
    }
}

impl<T: Element + DeviceRepr> FromImport for CudaSlice<T> {
    const COPIES: bool = true;
    const IS_FREED_ON_DEFAULT_STREAM: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        copy_to_slice(import, order)
    }
}

macro_rules! host_copies {
    ($($slice:ident, $make:expr;)*) => {
        $(
            impl<T: Element + DeviceRepr> FromImport for $slice<T> {
                const COPIES: bool = true;

                fn element() -> Option<ElementType> {
                    Some(T::TYPE)
                }

                fn check(info: &ArrayInfo) -> Result<()> {
                    if info.numel() != 0 {
                        return Ok(());
                    }
                    let found = text!("{:?}, which has no elements", info.shape());
                    let allowed = concat!("one element or more, for a `", stringify!($slice), "` of `cudarc`");
                    Err(Error::new(ErrorKind::Shape, "shape", found, allowed))
                }

                fn from_import(import: &mut Import, order: Order) -> Result<Self> {
                    Self::check(import.info())?;
                    copy_to_host_accessible::<T, _>(import, order, $make)
                }
            }
        )*
    };
}

host_copies! {
    PinnedHostSlice,
    // SAFETY: the memory is written before it is shared. It is not write-combined, which would make host reads slow.
    |context, count| unsafe { context.alloc_pinned_with_flags::<T>(count, 0) };
    UnifiedSlice,
    // SAFETY: as above.
    |context, count| unsafe { context.alloc_unified::<T>(count, true) };
}

/// Copies an import into host-accessible memory and waits for the copy.
fn copy_to_host_accessible<T: Element + DeviceRepr, S: Storage>(
    import: &mut Import,
    order: Order,
    make: impl FnOnce(&Arc<CudaContext>, usize) -> Result<S, DriverError>,
) -> Result<S> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    let copy = ImportCopy::on_default_stream(import)?;
    let context = context(copy.ordinal())?;
    let _guards = (current(&context), crate::driver::context::relaxed());
    let bytes = size_in_bytes::<T>(count)?;
    let lacking = text!("{bytes} bytes of free memory");
    let slice = make(&context, count).map_err(|error| failed("alloc", error, lacking))?;
    // SAFETY: the new memory has space for the elements; the device accesses it at the same address.
    unsafe { copy.copy(import, &T::TYPE, order, slice.memory()?.address, true) }?;
    Ok(slice)
}

/// The size of `count` elements in bytes. Returns an error for a size at which `cudarc` would panic.
fn size_in_bytes<T>(count: usize) -> Result<usize> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok_and(|bytes| bytes < isize::MAX) => Ok(bytes),
        _ => {
            let found = text!("{count} elements");
            Err(Error::new(ErrorKind::Overflow, "shape", found, "a size that fits the address space"))
        }
    }
}

/// Copies an import into a slice of the default stream. A slice is freed on its stream, and the default stream is never
/// destroyed.
fn copy_to_slice<T: Element + DeviceRepr>(import: &mut Import, order: Order) -> Result<CudaSlice<T>> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    let copy = ImportCopy::on_default_stream(import)?;
    let context = context(copy.ordinal())?;
    let _guards = (current(&context), crate::driver::context::relaxed());
    let stream = context.default_stream();
    // The driver cannot allocate 0 bytes, but `cudarc` would free the null pointer.
    let capacity = count.max(1);
    let bytes = size_in_bytes::<T>(capacity)?;
    make_room_on(import.info().device(), bytes);
    // SAFETY: the memory is written before it is read.
    let slice = unsafe { stream.alloc::<T>(capacity) };
    let lacking = text!("{bytes} bytes of free memory");
    let mut slice = slice.map_err(|error| failed("alloc", error, lacking))?;
    if count == 0 {
        return without_elements(slice);
    }
    let (target, written) = slice.device_ptr_mut(&stream);
    // SAFETY: the new memory belongs to the context and has space for the elements.
    let outcome = unsafe { copy.copy(import, &T::TYPE, order, to_usize(target), false) };
    record(written)?;
    outcome.map(|()| slice)
}

/// Turns a slice into one without elements that owns the same memory.
fn without_elements<T>(slice: CudaSlice<T>) -> Result<CudaSlice<T>> {
    let stream = CudaSlice::stream(&slice).clone();
    let address = slice.leak();
    // SAFETY: the address belongs to the leaked slice and is freed once: by the new slice, or below on failure.
    unsafe { slice_over(&stream, address, 0) }.inspect_err(|_| {
        let freed = if stream.context().has_async_alloc() {
            // SAFETY: nobody else has this memory of the pool; the stream is live.
            unsafe { result::free_async(address, stream.cu_stream()) }
        } else {
            // SAFETY: nobody else has this memory of `cuMemAlloc`.
            unsafe { result::free_sync(address) }
        };
        stream.context().record_err(freed);
    })
}
