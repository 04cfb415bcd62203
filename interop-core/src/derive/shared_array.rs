//! `Arc` of an array: an array that several handles share.
#![expect(unsafe_code, reason = "implements `CudaArray`")]

use std::sync::Arc;

use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::from_array::FromArray;
use crate::error::Result;
use crate::memory::extraction::{DataField, Extraction};
use crate::order::array_info::ArrayInfo;

// SAFETY: 1 to 3: as for the array, which lives as long as any handle, and which a move of a handle does not move. 4: other
// handles use the memory too, so what only a sole owner may write is described as read-only. 5 and 6: as for the array.
unsafe impl<T: CudaArray + ?Sized> CudaArray for Arc<T> {
    fn info(&self) -> Result<ArrayInfo> {
        let info = T::info(self)?;
        Ok(if info.mutability() == Mutability::Writable { info } else { info.readonly() })
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        T::note_read(self, stream)
    }

    // Other handles may use the array now, so the host waits instead.
    fn note_write(&mut self, stream: StreamHandle) -> bool {
        Arc::get_mut(self).is_some_and(|array| array.note_write(stream))
    }

    fn __is_only_handle(&mut self) -> bool {
        Arc::get_mut(self).is_some_and(T::__is_only_handle)
    }
}

impl<T: FromArray> FromArray for Arc<T> {
    const DATA_FIELD: DataField = T::DATA_FIELD;

    fn struct_name() -> &'static str {
        T::struct_name()
    }

    unsafe fn assemble(extraction: &mut Extraction<'_>) -> Result<Self> {
        // SAFETY: as the caller promises, because an `Arc` is `BorrowedFor` what its value is.
        unsafe { T::assemble(extraction) }.map(Self::new)
    }
}
