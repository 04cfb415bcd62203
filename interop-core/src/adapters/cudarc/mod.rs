//! `cudarc` 0.19: its slices and streams as fields, [`KernelView`] as an argument of its launch builder.
//!
//! | field | as | an import | exports are writable |
//! | --- | --- | --- | --- |
//! | `CudaSlice<T>` | `data` | copies, on the default stream of its device, between the work before and after it | always; of `bool` never |
//! | `CudaViewMut<'_, T>` | `data`, for views and launches: it is borrowed | – | – |
//! | `CudaView<'_, T>` | the same, for reading | – | – |
//! | `PinnedHostSlice<T>`, `UnifiedSlice<T>` | `data` | copies, and waits; `cudarc` has none without elements | when they consume the struct |
//! | `CudaStream` in an `Arc` | `stream` | the caller's stream, borrowed | |
//!
//! A slice knows its device and its stream. Where a struct has no `stream` field, or `None` in it, an export is ordered
//! after the slice's own stream, and that after the last write that `cudarc` keeps track of. What is launched on a
//! [`KernelView`] `cudarc` does not see: name its stream in a field. A default stream, of a slice or in a field, is that of
//! its own context: on a thread on which another is current, a blocking stream of that context stands in for it. While the
//! slice's stream captures a graph, the host waits for that write where the stream would: a view of a slice spoils no
//! capture.
//!
//! `cudarc` frees by itself: a `CudaSlice` in the order of its stream, where the device has pools; all other memory after a wait for
//! work, which the drop of a Python object does with the interpreter's lock. (A [`CudaBuffer`](crate::cuda::CudaBuffer) gives the lock up
//! before it waits.)
//!
//! The application chooses the CUDA version of `cudarc`, by a feature of `cudarc` or by `CUDARC_CUDA_VERSION`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use cudarc::driver::{CudaContext, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
//! use interop_core::dlpack::Versioned;
//! use interop_core::{CudaArray, FromArray};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width, 3])]
//! struct Image<S = CudaSlice<f32>> {
//!     #[cuda_array(data)]
//!     pixels: S,
//!     height: usize,
//!     width: usize,
//!     #[cuda_array(stream)]
//!     stream: Arc<CudaStream>,
//! }
//!
//! # fn run(kernel: &cudarc::driver::CudaFunction) -> Result<(), Box<dyn std::error::Error>> {
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let pixels = stream.alloc_zeros::<f32>(480 * 640 * 3)?;
//! let mut image = Image { pixels, height: 480, width: 640, stream: stream.clone() };
//!
//! let view = image.kernel_view_mut::<f32, 3>()?;
//! // SAFETY: the kernel takes an `interop::view<float, 3>`; the image lives until the stream has been waited for.
//! unsafe { stream.launch_builder(kernel).arg(&view).launch(LaunchConfig::for_num_elems(480 * 640 * 3))? };
//! let tensor = image.into_dlpack::<Versioned>()?;      // to torch, CuPy, ...: its consumer waits for the kernel
//! let copy: Image = Image::from_dlpack(tensor)?;       // into memory of one's own
//! # Ok(())
//! # }
//! ```
#![expect(unsafe_code, reason = "vouches for the memory of cudarc's slices, and borrows streams for it")]

pub(crate) mod context;
pub(crate) mod streams;

use core::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    DeviceSlice, DriverError, HostSlice, PinnedHostSlice, SyncOnDrop, UnifiedSlice, result,
};

use crate::adapters::cudarc::context::{captured, failed};
use crate::adapters::cudarc::streams::{current, device_of, named, proxy_stream};
use crate::adapters::device_writes;
use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::allocation::to_usize;
use crate::derive::fields::stream::AsStream;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::copy_to_cuda::{DefaultStreamTarget, copy_on_default_stream};
use crate::memory::from_import::FromImport;
use crate::memory::import::Import;
use crate::memory::kernel_view::{KernelView, KernelViewMut};
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

pub use crate::adapters::cudarc::context::context;

/// The address of a slice, whose stream waits for what `cudarc` knows to be pending on it.
fn address<T, S: DevicePtr<T>>(slice: &S) -> usize {
    after_pending(slice.stream(), |stream| {
        let (address, read) = slice.device_ptr(stream);
        // It would record an event as if the reading were over; who reads comes later, and is ordered by the export.
        forget(read);
        to_usize(address)
    })
}

/// Calls `ask`, which has a stream wait for what `cudarc` knows to be pending on a slice and says where that is. While the
/// stream captures a graph, or the default stream joins with one that does, the host waits in its place: a wait for what is
/// not part of the graph would spoil it, and whoever asks meanwhile is about to launch into it.
fn after_pending(stream: &Arc<CudaStream>, ask: impl Fn(&CudaStream) -> usize) -> usize {
    let (context, own) = (stream.context(), stream.as_stream());
    // `cudarc` leaves its context current on the thread.
    let _entered = current(context);
    let captures = match own {
        StreamHandle::LegacyDefault => cuda::legacy_stream_captures(),
        own => cuda::captures(own),
    };
    if captures {
        if let Ok(other @ StreamHandle::Raw(raw)) = proxy_stream(context, StreamHandle::LegacyDefault) {
            // SAFETY: a stream of the context that is never destroyed.
            let other_stream =
                unsafe { context.wrap_borrowed_stream(core::ptr::with_exposed_provenance_mut(raw.get())) };
            let address = ask(&other_stream);
            context.record_err(cuda::stream_synchronize(other, device_of(context)).map_err(|_| captured()));
            return address;
        }
    }
    ask(stream)
}

// SAFETY: 1: initialized, since to make a slice that is not is `unsafe` in `cudarc`. 2: the slice frees its memory when it is
// dropped. 3: on the device of its context. 4: device memory, of which there are no references.
unsafe impl<T: Element> Storage for CudaSlice<T> {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion::new::<T>(address(self), self.len(), device_of(self.context()), device_writes::<T>())
    }

    fn stream(&self) -> StreamHandle {
        named(CudaSlice::stream(self), device_of(self.context()))
    }
}

macro_rules! views {
    ($($view:ident, $mutability:expr;)*) => {
        $(
            // SAFETY: as for the slice that is borrowed.
            unsafe impl<T: Element> Storage for $view<'_, T> {
                fn memory(&self) -> MemoryRegion {
                    let device = device_of(DeviceSlice::stream(self).context());
                    MemoryRegion::new::<T>(address(self), self.len(), device, $mutability)
                }

                fn stream(&self) -> StreamHandle {
                    let stream = DeviceSlice::stream(self);
                    named(stream, device_of(stream.context()))
                }
            }
        )*
    };
}

views! {
    CudaView, Mutability::ReadOnly;
    CudaViewMut, device_writes::<T>();
}

// SAFETY: 1, 2: as for `CudaSlice`. 3: `cuMemAllocManaged`. 4: `&self` lends a slice for a borrow of itself at most.
unsafe impl<T: Element> Storage for UnifiedSlice<T> {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion::new::<T>(address(self), self.len(), Device::CUDA_MANAGED, Mutability::WhenOwned)
    }

    fn stream(&self) -> StreamHandle {
        named(DeviceSlice::stream(self), Device::CUDA_MANAGED)
    }
}

// SAFETY: 1, 2: as for `CudaSlice`. 3: `cuMemHostAlloc`. 4: `&self` lends a slice for a borrow of itself at most.
unsafe impl<T: Element> Storage for PinnedHostSlice<T> {
    fn memory(&self) -> MemoryRegion {
        let address = after_pending(&self.context().default_stream(), |stream| {
            // SAFETY: of the slice only the address is used.
            let (elements, read) = unsafe { self.stream_synced_slice(stream) };
            // As in `address`.
            forget(read);
            elements.as_ptr().expose_provenance()
        });
        MemoryRegion::new::<T>(address, self.len(), Device::CUDA_HOST, Mutability::WhenOwned)
    }

    /// The stream that `memory` made wait for what is pending.
    fn stream(&self) -> StreamHandle {
        named(&self.context().default_stream(), Device::CUDA_HOST)
    }
}

impl<T: Element + DeviceRepr> FromImport for CudaSlice<T> {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn check(_: &ArrayInfo) -> Result<()> {
        Ok(())
    }

    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
        copied(&import, order).map_err(|error| Refused { value: import, error })
    }
}

macro_rules! waited_for {
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

                fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
                    let fits = Self::check(import.info());
                    let copy = fits.and_then(|()| copied_and_waited_for::<T, _>(&import, order, $make));
                    copy.map_err(|error| Refused { value: import, error })
                }
            }
        )*
    };
}

waited_for! {
    PinnedHostSlice,
    // SAFETY: written before anybody else has it. It is not write-combined, which the host would read slowly.
    |context, count| unsafe { context.alloc_pinned_with_flags::<T>(count, 0) };
    UnifiedSlice,
    // SAFETY: as above.
    |context, count| unsafe { context.alloc_unified::<T>(count, true) };
}

/// Memory that the host may read as soon as it is handed out.
fn copied_and_waited_for<T: Element + DeviceRepr, S: Storage>(
    import: &Import,
    order: Order,
    make: impl FnOnce(&Arc<CudaContext>, usize) -> Result<S, DriverError>,
) -> Result<S> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    let site = DefaultStreamTarget::of(import)?;
    let context = context(site.ordinal())?;
    let _guards = (current(&context), cuda::relaxed());
    let bytes = fits::<T>(count)?;
    let lacking = text!("{bytes} bytes of free memory");
    let slice = make(&context, count).map_err(|error| failed("alloc", error, lacking))?;
    // SAFETY: new memory with room for the elements, which the device reaches under the same address.
    unsafe { copy_on_default_stream::<T>(import, order, &site, slice.memory().address) }?;
    cuda::stream_synchronize(StreamHandle::LegacyDefault, device_of(&context))?;
    Ok(slice)
}

/// The bytes of so many elements. Refuses what `cudarc` panics over.
fn fits<T>(count: usize) -> Result<usize> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok_and(|bytes| bytes < isize::MAX) => Ok(bytes),
        _ => {
            let found = text!("{count} elements");
            Err(Error::new(ErrorKind::Overflow, "shape", found, "a size that fits the address space"))
        }
    }
}

/// A slice of the default stream, which outlives all others: a slice is freed on its stream.
fn copied<T: Element + DeviceRepr>(import: &Import, order: Order) -> Result<CudaSlice<T>> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    let site = DefaultStreamTarget::of(import)?;
    let context = context(site.ordinal())?;
    let _guards = (current(&context), cuda::relaxed());
    let stream = context.default_stream();
    // The driver does not allocate nothing, and `cudarc` would free it.
    let room = count.max(1);
    let bytes = fits::<T>(room)?;
    // SAFETY: all of it is written before it is read.
    let slice = unsafe { stream.alloc::<T>(room) };
    let lacking = text!("{bytes} bytes of free memory");
    let mut slice = slice.map_err(|error| failed("alloc", error, lacking))?;
    if count == 0 {
        return without_elements(slice);
    }
    let (target, written) = slice.device_ptr_mut(&stream);
    // SAFETY: new memory of the context with room for the elements.
    let outcome = unsafe { copy_on_default_stream::<T>(import, order, &site, to_usize(target)) };
    if let SyncOnDrop::Record(Some((event, stream))) = &written {
        // `cudarc` records it only where the context has several streams. They may be of another `CudaContext`.
        let recorded = event.record(stream);
        recorded.map_err(|error| failed("record", error, "an event of the stream's own context"))?;
    }
    forget(written);
    outcome.map(|()| slice)
}

/// A slice of no elements over the memory of another.
///
/// There is no other way to one, and on this `cudarc` unwraps what the driver answers when it makes events for the slice. So
/// a panic is caught, of which the program's hook has told by then; where panics abort, the program ends.
fn without_elements<T>(slice: CudaSlice<T>) -> Result<CudaSlice<T>> {
    let stream = CudaSlice::stream(&slice).clone();
    let address = slice.leak();
    // SAFETY: the slice's own address, which is freed once: by the new slice, or below if there is none.
    let made = catch_unwind(AssertUnwindSafe(|| unsafe { stream.upgrade_device_ptr(address, 0) }));
    made.map_err(|panic| {
        let freed = if stream.context().has_async_alloc() {
            // SAFETY: memory of the pool, which nobody has any more; the stream is live.
            unsafe { result::free_async(address, stream.cu_stream()) }
        } else {
            // SAFETY: memory of `cuMemAlloc`, which nobody has any more.
            unsafe { result::free_sync(address) }
        };
        stream.context().record_err(freed);
        let found = panic.downcast_ref::<String>().map_or("a panic of `cudarc`", String::as_str);
        Error::new(ErrorKind::Driver, "cuEventCreate", found, "a context that can have two more events")
    })
}

// SAFETY: plain numbers in the layout that `interop.cuh` declares.
unsafe impl<T, const N: usize> DeviceRepr for KernelView<'_, T, N> {}

// SAFETY: as above.
unsafe impl<T, const N: usize> DeviceRepr for KernelViewMut<'_, T, N> {}
