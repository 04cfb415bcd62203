//! CUDA memory that a kernel initializes.
#![expect(unsafe_code, reason = "fills memory that the caller vouches for")]

use crate::array::element::Element;
use crate::cuda::allocation::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::cuda::context::Context;
use crate::error::Result;

impl CudaBuffer {
    /// Allocates uninitialized memory for `len` elements that a kernel writes. Unlike [`zeroed`](Self::zeroed) it waits
    /// for no work. Memory of the pool is allocated in the order of the legacy default stream.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// 1. Every element is written before anything reads it, in stream order.
    /// 2. Work that uses memory of [`MemoryKind::Pool`] is ordered after the legacy default stream of the device's
    ///    primary context.
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    ///
    /// // SAFETY: the kernel that is launched next writes all of it.
    /// let buffer = unsafe { CudaBuffer::uninit::<f32>(MemoryKind::Device, 0, 1 << 20) }?;
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub unsafe fn uninit<T: Element>(kind: MemoryKind, ordinal: i32, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| T::TYPE.too_large(len))?;
        Self::uninitialized(kind, Context::primary(ordinal)?, ordinal, T::TYPE, bytes)
    }
}
