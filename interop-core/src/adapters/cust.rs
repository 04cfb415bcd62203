//! `cust` 0.3: its buffers and streams as fields, [`KernelView`](crate::kernel::KernelView) as an argument of `launch!`.
//!
//! | field | attribute | an import | exports are writable |
//! | --- | --- | --- | --- |
//! | `DeviceBuffer<T>` | `data` | copies, on the import's stream | always, except `bool` |
//! | `DeviceBox<T>` | `data` | as `DeviceBuffer`, for one element | as `DeviceBuffer` |
//! | `LockedBuffer<T>` | `data` | copies, and waits for the copy | if they consume the struct |
//! | `UnifiedBuffer<T>` | `data`, without exports that own it, because it is not `Send` | copies, and waits for the copy | – |
//! | [`InContext`] of one of these | `data` | as the buffer | always, except `bool` |
//! | `Stream`, and `&`, `Rc`, `Arc` and `Option` of one | `stream` | needs `default = ...`, because a `Stream` owns its stream | |
//!
//! An element type must implement [`Element`] and `DeviceCopy`.
//!
//! A `cust` buffer does not know its device or context, so the driver looks it up. `cust` frees it in the current context.
//! An export therefore makes the memory's context current for the drop, on any thread. It also keeps the device's
//! primary context alive, which `cust` uses. A struct that is dropped without an export is dropped as in `cust`; see
//! [`InContext`].
//!
//! ```no_run
//! use cust::memory::DeviceBuffer;
//! use cust::prelude::*;
//! use interop_core::launch::AsStream;
//! use interop_core::{CudaArray, FromArray, LaunchScope, StreamHandle};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width, 3])]
//! struct Image<S = DeviceBuffer<f32>> {
//!     #[cuda_array(data)]
//!     pixels: S,
//!     height: usize,
//!     width: usize,
//!     #[cuda_array(stream)]
//!     stream: StreamHandle,
//! }
//!
//! # static PTX: &str = "";
//! let _context = cust::quick_init()?;
//! let module = Module::from_ptx(PTX, &[])?;
//! let stream = Stream::new(StreamFlags::DEFAULT, None)?;
//! let pixels = DeviceBuffer::from_slice(&[0.5_f32; 480 * 640 * 3])?;
//! let written = stream.as_stream();
//! let mut image = Image { pixels, height: 480, width: 640, stream: written };
//!
//! let scope = LaunchScope::on(&stream);
//! let view = scope.write::<f32, 3>(&mut image)?;
//! // SAFETY: `brighten` takes an `interop::view<float, 3>`; the image lives until the stream has been waited for.
//! unsafe { launch!(module.brighten<<<3600, 256, 0, stream>>>(*view))? };
//! scope.finish()?;
//! let tensor = image.into_dlpack()?;      // for torch, CuPy, ...: the consumer waits for the kernel
//! let copy: Image = Image::from_dlpack(tensor)?;       // copies into new memory
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![expect(unsafe_code, reason = "implements `Storage` for cust's buffers and makes buffers from raw memory")]

use core::fmt;
use std::sync::Arc;

use ::cust::memory::{
    DeviceBox, DeviceBuffer, DeviceCopy, DevicePointer, LockedBuffer, UnifiedBuffer, UnifiedPointer,
};
use ::cust::stream::Stream;

use crate::adapters::device_writes;
use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::fields::stream::AsStream;
use crate::derive::single_error::FieldProbe;
use crate::driver::functions::{run_blocking, to_usize};
use crate::driver::pointer::{context_to_free, not_cuda};
use crate::driver::reach::{InReach, Reach, Sole};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::copy::transfer::copy_to_buffer;
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::extraction::FromImport;
use crate::memory::import::Import;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::order::handover::current_device;

/// Describes device memory of `cust`; the driver determines the device.
fn device_memory<T: Element + DeviceCopy>(first: DevicePointer<T>, len: usize) -> Result<MemoryRegion> {
    let address = to_usize(first.as_raw());
    let device = if len == 0 { current_device() } else { device_at(address) };
    Ok(MemoryRegion::new::<T>(address, len, device?, device_writes::<T>()))
}

/// Describes memory of `cust` that the host reaches.
fn slice_memory<T: Element>(elements: &[T], device: Device) -> MemoryRegion {
    let address = elements.as_ptr().expose_provenance();
    MemoryRegion::new::<T>(address, elements.len(), device, Mutability::UniqueOwner)
}

/// The device of an address, according to the driver.
fn device_at(address: usize) -> Result<Device> {
    let attributes = cuda::pointer_attributes(address)?;
    let allowed = "memory of a live context: keep the context as long as the buffer";
    attributes.map(|attributes| attributes.device).ok_or_else(|| not_cuda(address, allowed))
}

macro_rules! buffers {
    ($($buffer:ident, $memory:expr, $kind:expr, $make:expr $(, $check:path)?;)*) => {
        $(
            // SAFETY: 1: `cust` makes uninitialized buffers only in `unsafe` functions. 2: the buffer frees its memory on drop.
            // 3: the driver determines the device, or the memory comes from `cuMemAllocHost` or `cuMemAllocManaged`. 4: it is
            // device memory, without references to elements, or no slice of elements outlives a borrow of the buffer.
            unsafe impl<T: Element + DeviceCopy> Storage for $buffer<T> {
                fn memory(&self) -> Result<MemoryRegion> {
                    let memory: fn(&Self) -> Result<MemoryRegion> = $memory;
                    memory(self)
                }
            }

            impl<T: Element + DeviceCopy> FromImport for $buffer<T> {
                const COPIES: bool = true;

                fn element() -> Option<ElementType> {
                    Some(T::TYPE)
                }

                $(fn check(info: &ArrayInfo) -> Result<()> {
                    $check(info, T::TYPE)
                })?

                fn from_import(import: &mut Import, order: Order) -> Result<Self> {
                    Self::check(import.info())?;
                    let copy = copy_to_buffer(import, T::TYPE, $kind, order)?;
                    let len = copy.as_ref().map_or(0, CudaBuffer::len);
                    let address = copy.map_or(0, CudaBuffer::into_address);
                    // SAFETY: the new memory is of this kind, has space for the elements, and is freed by nobody else. On the
                    // host the elements are initialized and valid values of `T`.
                    Ok(unsafe { $make(address, len) })
                }
            }

            impl<T: Element + DeviceCopy> sealed::Sealed for $buffer<T> {}

            // SAFETY: the buffer is the only pointer to its memory, and its elements are `Send`.
            unsafe impl<T: Element + DeviceCopy> Buffer for $buffer<T> {}
        )*
    };
}

buffers! {
    DeviceBuffer, |buffer| device_memory::<T>(buffer.as_device_ptr(), buffer.len()), MemoryKind::Device, device_buffer;
    DeviceBox, |element| device_memory::<T>(element.as_device_ptr(), 1), MemoryKind::Device, device_box, one_element;
    LockedBuffer, |buffer| Ok(slice_memory(buffer, Device::CUDA_HOST)), MemoryKind::Pinned, locked_buffer;
    UnifiedBuffer, |buffer| Ok(slice_memory(buffer, Device::CUDA_MANAGED)), MemoryKind::Managed, unified_buffer;
}

fn one_element(info: &ArrayInfo, element: ElementType) -> Result<()> {
    let layout = info.layout_of(&element)?;
    if layout.numel() == 1 {
        return Ok(());
    }
    let found = text!("{:?}", layout.shape());
    Err(Error::new(ErrorKind::Shape, "shape", found, "one element, for a `DeviceBox`"))
}

/// # Safety
///
/// `address` is null, or memory of `cuMemAlloc` for `len` elements that nobody else frees.
unsafe fn device_buffer<T: DeviceCopy>(address: usize, len: usize) -> DeviceBuffer<T> {
    // SAFETY: forwarded to the caller; a buffer does not free null.
    unsafe { DeviceBuffer::from_raw_parts(DevicePointer::from_raw(address as u64), len) }
}

/// # Safety
///
/// `address` is memory of `cuMemAlloc` for one element that nobody else frees.
unsafe fn device_box<T: DeviceCopy>(address: usize, _: usize) -> DeviceBox<T> {
    // SAFETY: forwarded to the caller.
    unsafe { DeviceBox::from_raw(address as u64) }
}

/// # Safety
///
/// `len` is 0, or `address` is pinned memory with `len` valid values of `T` that nobody else frees. `cust` frees it
/// with `cuMemFreeHost`, which accepts all memory that the driver pinned.
unsafe fn locked_buffer<T: DeviceCopy>(address: usize, len: usize) -> LockedBuffer<T> {
    // SAFETY: forwarded to the caller; a buffer without elements frees nothing.
    unsafe { LockedBuffer::from_raw_parts(first(address, len), len) }
}

/// # Safety
///
/// As [`locked_buffer`], for memory of `cuMemAllocManaged`.
unsafe fn unified_buffer<T: DeviceCopy>(address: usize, len: usize) -> UnifiedBuffer<T> {
    // SAFETY: the buffer below takes ownership of the pointer.
    let first = unsafe { UnifiedPointer::wrap(first(address, len)) };
    // SAFETY: forwarded to the caller; a buffer without elements frees nothing.
    unsafe { UnifiedBuffer::from_raw_parts(first, len) }
}

/// A pointer to the first element, or a dangling one if there are no elements, as slices require it.
fn first<T>(address: usize, len: usize) -> *mut T {
    if len == 0 { core::ptr::dangling_mut() } else { core::ptr::with_exposed_provenance_mut(address) }
}

/// A buffer of `cust` that is tied only to the context in which it is freed, and not to a thread.
///
/// # Safety
///
/// The buffer may be dropped on any thread on which the context of its memory is current. `&self` of an [`InContext`]
/// gives no access to the elements.
pub unsafe trait Buffer: Storage + sealed::Sealed {}

impl<T: Buffer> FieldProbe<T> {
    /// A buffer of `cust` is freed in the context that is current, and leaks without one.
    #[doc(hidden)]
    pub const NEEDS_CONTEXT: bool = true;
}

impl<T: Buffer> FieldProbe<Arc<T>> {
    /// As for the buffer.
    #[doc(hidden)]
    pub const NEEDS_CONTEXT: bool = true;
}

mod sealed {
    /// Only the types below implement `Buffer`.
    pub trait Sealed {}
}

/// A buffer of `cust` that is freed in its own context on any thread, and that is `Send` and `Sync`.
///
/// Use it in structs that other threads may drop, such as a `#[pyclass]`. Use it also for `UnifiedBuffer`, which is not
/// `Send` and `Sync` in `cust` because it holds a raw pointer. (An export makes the context current for any buffer.)
///
/// The driver waits for work on the device before it frees memory; this type detaches from the Python interpreter for
/// that time. It returns the elements only for `&mut self`, so exports are writable, except those of `bool`.
///
/// ```no_run
/// use cust::memory::UnifiedBuffer;
/// use interop_core::adapters::cust::InContext;
/// use interop_core::CudaArray;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: InContext<UnifiedBuffer<f32>>, len: usize }
///
/// let _context = cust::quick_init()?;
/// let mut values = InContext::new(UnifiedBuffer::new(&0.0_f32, 100)?);
/// values.get_mut()[0] = 1.0;
/// let tensor = Samples { values, len: 100 }.into_dlpack()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct InContext<B: Buffer>(InReach<Sole<B>>);

// SAFETY: a `Buffer` may be dropped on any thread in its context, which the drop makes current.
unsafe impl<B: Buffer> Send for InContext<B> {}

// SAFETY: a shared reference returns only the address.
unsafe impl<B: Buffer> Sync for InContext<B> {}

impl<B: Buffer> InContext<B> {
    /// Wraps a buffer.
    pub fn new(buffer: B) -> Self {
        Self(InReach::new(Sole(buffer), None))
    }

    /// The buffer.
    pub fn get_mut(&mut self) -> &mut B {
        &mut self.0.handle_mut().0
    }

    fn buffer(&self) -> &B {
        &self.0.handle().0
    }

    fn address(&self) -> usize {
        self.buffer().memory().map_or(0, |memory| memory.address)
    }

    /// Returns the buffer, which is then dropped as in `cust`.
    #[must_use]
    pub fn into_inner(mut self) -> B {
        self.0.take()
    }
}

impl<B: Buffer> Drop for InContext<B> {
    fn drop(&mut self) {
        if self.0.is_taken() {
            return;
        }
        // `cust` frees in the context that is current.
        self.0.reach = context_to_free(self.address()).map(Reach::of_context);
        run_blocking(|| self.0.drop_handle());
    }
}

// SAFETY: 1 to 3: as for the inner buffer. 4: references to elements need `&mut self`.
unsafe impl<B: Buffer> Storage for InContext<B> {
    fn memory(&self) -> Result<MemoryRegion> {
        let memory = self.buffer().memory()?;
        // A consumer may write any bits, and `get_mut` returns references to elements again.
        let mutability = if memory.element.any_bits { Mutability::Writable } else { memory.mutability };
        Ok(MemoryRegion { mutability, ..memory })
    }
}

impl<B: Buffer + FromImport> FromImport for InContext<B> {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        B::element()
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        B::check(info)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        B::from_import(import, order).map(Self::new)
    }
}

impl<B: Buffer> fmt::Debug for InContext<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InContext({:#x})", self.address())
    }
}

impl AsStream for Stream {
    fn as_stream(&self) -> StreamHandle {
        // SAFETY: the stream belongs to a field; an export owns the whole struct.
        unsafe { StreamHandle::from_raw(self.as_inner() as usize) }
    }
}
