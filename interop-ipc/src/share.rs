//! How arrays are offered and opened as structs.

#![expect(unsafe_code, reason = "copies an array that the call borrows")]

use core::time::Duration;
use std::sync::Arc;

use interop_core::__private::processes::SharedWork;
use interop_core::{
    ArrayInfo, CudaArray, Device, DeviceType, Error, ErrorKind, FromArray, Import, Refused, Result,
    StreamHandle,
};

use crate::block::Block;
use crate::device_block::{DeviceBlock, uuid_of};
use crate::imports::{copied, share_import};
use crate::message::Message;
use crate::office::{Draft, Memory, Parcel};

/// Offers a struct to other processes. It is implemented for every [`CudaArray`](trait@CudaArray).
pub trait ShareParcel: CudaArray {
    /// Offers the array, and keeps a handle. Others can read it: `opens` times, until `time` is over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for memory that other processes cannot map; [`ErrorKind::StreamCapture`] if its stream captures a
    /// graph; as [`info`](CudaArray::info).
    fn share_parcel(self: &Arc<Self>, opens: u32, time: Duration) -> Result<Parcel<Arc<Self>>>
    where
        Self: Sized + Send + Sync + 'static,
    {
        Ok(draft(&self.info()?, true, opens, time)?.offer(self.clone()))
    }

    /// Gives the array away: one process can open it until `time` is over, and may write to it. When that process has given it back,
    /// [`take_back`](Parcel::take_back) returns the struct.
    ///
    /// # Errors
    ///
    /// The struct is returned with the reason, as [`share_parcel`](Self::share_parcel).
    fn into_parcel(self, time: Duration) -> Result<Parcel<Self>, Refused<Self>>
    where
        Self: Sized + Send + 'static,
    {
        let draft = self.info().and_then(|info| draft(&info, info.is_read_only(), 1, time));
        offered(self, draft)
    }

    /// Copies the elements into new memory that others can map, in the order of C, and offers the copy as
    /// [`share_parcel`](Self::share_parcel) does. It isolates the array from others in its block.
    ///
    /// The copy of GPU memory is queued on the array's stream, and lies in a pool of such copies on the same GPU. If the stream is unknown,
    /// the host waits. Managed memory becomes memory of its GPU, and pinned memory that of the host; for both, the host waits.
    ///
    /// # Errors
    ///
    /// `Unsupported` or [`ErrorKind::DType`] for elements that are packed below the byte, `OutOfMemory`, those of the driver;
    /// [`ErrorKind::StreamCapture`] if the array's stream captures a graph.
    ///
    /// ```
    /// use std::time::Duration;
    /// use interop_core::CudaArray;
    /// use interop_ipc::ShareParcel;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Row { #[cuda_array(data)] values: Vec<f32>, len: usize }
    ///
    /// let row = Row { values: vec![1.0, 2.0], len: 2 };
    /// let parcel = row.copy_parcel(1, Duration::from_secs(9))?;
    /// let import = interop_ipc::open(parcel.bytes())?;
    /// assert_eq!(import.info().shape(), [2]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    fn copy_parcel(&self, opens: u32, time: Duration) -> Result<Parcel<Import>> {
        // SAFETY: the struct, which this call borrows, keeps the memory.
        let copy = unsafe { copied(&self.info()?) }?;
        Ok(share_import(copy, opens, time)?)
    }
}

impl<A: CudaArray> ShareParcel for A {}

/// Offers an array, or returns it with the reason why it has no draft.
pub(crate) fn offered<A: Send + 'static>(array: A, draft: Result<Draft>) -> Result<Parcel<A>, Refused<A>> {
    match draft {
        Ok(draft) => Ok(draft.offer(array)),
        Err(error) => Err(Refused { value: Box::new(array), error }),
    }
}

/// Opens an array of another process as a struct. It is implemented for every [`FromArray`].
pub trait FromParcel: FromArray {
    /// Opens an array by the bytes of a [`Parcel`], and fills the struct as every import does.
    ///
    /// # Errors
    ///
    /// As [`open`](crate::open) and [`from_import`](FromArray::from_import). An array that does not fit is given back, and counts as
    /// opened.
    fn from_parcel(bytes: &[u8]) -> Result<Self> {
        Self::from_import(crate::open(bytes)?).map_err(Error::from)
    }

    /// As [`from_parcel`](Self::from_parcel). If the array is in memory of a GPU, `stream` waits for the producer's work, and the
    /// array is on this stream.
    ///
    /// # Errors
    ///
    /// As [`open_on`](crate::open_on) and [`from_import`](FromArray::from_import).
    fn from_parcel_on(bytes: &[u8], stream: StreamHandle) -> Result<Self> {
        Self::from_import(crate::open_on(bytes, stream)?).map_err(Error::from)
    }
}

impl<A: FromArray> FromParcel for A {}

/// Prepares the offer of an array.
pub(crate) fn draft(info: &ArrayInfo, is_read_only: bool, opens: u32, time: Duration) -> Result<Draft> {
    let memory = find(info)?;
    let on_device = info.device().device_type == DeviceType::CUDA;
    let device = if on_device { Some(uuid_of(info.device().device_id)?) } else { None };
    Draft::new((memory, is_read_only), opens, time, |memory, nonce, office| {
        let (block, range) = match memory {
            // The numbers of both kinds differ.
            Memory::Host(block) => (2 * block.id, block.mapping().range()),
            Memory::Device(block, _) => (2 * block.id + 1, block.range.clone()),
        };
        Message::new(info, (block, &range), device, is_read_only, (nonce, office)).write()
    })
}

/// Finds the memory in which an array lies, and records the work on it.
fn find(info: &ArrayInfo) -> Result<Memory> {
    if info.numel() == 0 {
        return Block::new(1).map(Memory::Host);
    }
    if info.device() != Device::CPU {
        return Ok(Memory::Device(DeviceBlock::find(info)?, SharedWork::of(info)?));
    }
    match Block::find(&info.byte_range()) {
        Some(block) => Ok(Memory::Host(block)),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            "memory",
            "memory of an allocator whose memory no other process can map, such as `malloc` (`Vec`, NumPy), an open array, or a `SharedVec` of another extension module",
            "memory of a `SharedVec`, in Python of `interop_ipc.empty`; or a copy: `copy_parcel`, in Python `share(array, copy=True)`",
        )),
    }
}
