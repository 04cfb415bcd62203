//! What a stream can be, and how the two protocols spell it.
#![expect(unsafe_code, reason = "whoever makes a stream of a number vouches for it")]

use core::fmt;
use core::num::NonZeroUsize;

use crate::array::device::DeviceType;
use crate::error::{Error, ErrorKind, Result};

/// A CUDA stream as the protocols see it, or that there is nothing to wait for.
///
/// | meaning | CUDA Array Interface: the producer's stream | DLPack on CUDA: the consumer's stream |
/// | --- | --- | --- |
/// | [`NothingPending`](Self::NothingPending) | `None`, or no key | -1 |
/// | [`LegacyDefault`](Self::LegacyDefault) | 1 | 1, or `None` |
/// | [`PerThreadDefault`](Self::PerThreadDefault) | 2 | 2 |
/// | [`Raw`](Self::Raw) | the handle | the handle |
/// | refused | 0, negative numbers | 0, numbers below -1 |
///
/// `None` means opposite things in the two protocols, which is why both are decoded here and nowhere else. On a device
/// without streams DLPack allows `None` alone; -1 is accepted there because it asks for nothing.
///
/// A struct holds one in its `#[cuda_array(stream)]` field: the stream on which the data was last written.
/// The handle is not owned, and the driver ends the process over one that is no stream, or none any more. So only `unsafe` code
/// makes one of a number ([`from_raw`](Self::from_raw)), and keeps the stream alive as long as the struct or an export of it is
/// there. A field that owns its stream, such as an `Arc<CudaStream>`, does so by itself: exports keep the whole struct.
/// Nothing ties the copy that [`AsStream::as_stream`](crate::derive::fields::stream::AsStream::as_stream) gives to its stream: do not use it after the
/// stream is destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamHandle {
    /// Nothing is pending: the data may be read at once, on any stream.
    #[default]
    NothingPending,
    /// The legacy default stream of the current context (`CU_STREAM_LEGACY`, 1).
    LegacyDefault,
    /// The default stream of the calling thread (`CU_STREAM_PER_THREAD`, 2). It means another stream on another thread.
    PerThreadDefault,
    /// A `CUstream`, the same as a `cudaStream_t`; never 1 or 2, for which [`from_raw`](Self::from_raw) gives their names.
    Raw(RawStream),
}

/// The handle of a stream that somebody vouched for, by [`StreamHandle::from_raw`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(NonZeroUsize);

impl RawStream {
    /// The handle, a `CUstream`.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0.get()
    }
}

impl fmt::Debug for RawStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

const LEGACY: usize = 1;

const PER_THREAD: usize = 2;

impl StreamHandle {
    /// The stream behind a `CUstream` that a library handed out; null is the legacy default stream, as it is for the
    /// driver's symbols without `_ptsz`.
    ///
    /// # Safety
    ///
    /// The handle is 0, 1, 2, or a stream that is alive whenever somebody waits for it: as long as the value or a copy of it, a
    /// struct that holds one, or an export of that struct is in use.
    ///
    /// ```
    /// use interop_core::StreamHandle;
    /// // SAFETY: the default streams are always there.
    /// let default = unsafe { StreamHandle::from_raw(0) };
    /// assert_eq!(default, StreamHandle::LegacyDefault);
    /// ```
    #[must_use]
    pub const unsafe fn from_raw(handle: usize) -> Self {
        match NonZeroUsize::new(handle) {
            None => Self::LegacyDefault,
            Some(handle) => match handle.get() {
                LEGACY => Self::LegacyDefault,
                PER_THREAD => Self::PerThreadDefault,
                _ => Self::Raw(RawStream(handle)),
            },
        }
    }

    /// The value for the driver; `None` when nothing is pending, which no driver call may be told.
    #[must_use]
    pub const fn to_raw(self) -> Option<usize> {
        match self {
            Self::NothingPending => None,
            Self::LegacyDefault => Some(LEGACY),
            Self::PerThreadDefault => Some(PER_THREAD),
            Self::Raw(handle) => Some(handle.get()),
        }
    }

    /// Reads the value of the key `stream` of an interface dict; `None` stands for `None` and for an absent key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for 0, which the interface forbids as ambiguous, and for negative numbers.
    ///
    /// # Safety
    ///
    /// A number above 2 is a stream, as for [`from_raw`](Self::from_raw): the interface asks so of the producer.
    pub unsafe fn from_cai(value: Option<i128>) -> Result<Self> {
        let Some(value) = value else { return Ok(Self::NothingPending) };
        let allowed = "None, 1 (legacy default), 2 (per-thread default) or a stream handle";
        // SAFETY: as the caller promises.
        let stream = unsafe { Self::from_positive(value) };
        stream.ok_or_else(|| Error::new(ErrorKind::Stream, "stream", value, allowed))
    }

    /// The value of the key `stream` of an interface dict; `None` means that the key is left out.
    ///
    /// ```
    /// use interop_core::StreamHandle;
    /// // The key is left out rather than None: consumers have crashed on a None.
    /// assert_eq!(StreamHandle::NothingPending.to_cai(), None);
    /// assert_eq!(StreamHandle::LegacyDefault.to_cai(), Some(1));
    /// ```
    #[must_use]
    pub const fn to_cai(self) -> Option<usize> {
        self.to_raw()
    }

    /// Reads the argument `stream` of `__dlpack__`: the stream that the consumer of memory on `device` will work on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for a number that is forbidden on that device (see the table at [`StreamHandle`]).
    ///
    /// # Safety
    ///
    /// A number above 2 is a stream, as for [`from_raw`](Self::from_raw): the protocol asks so of the consumer.
    pub unsafe fn from_dlpack(device: DeviceType, value: Option<i128>) -> Result<Self> {
        if device == DeviceType::CPU {
            return match value {
                None | Some(-1) => Ok(Self::NothingPending),
                Some(value) => Err(Error::new(ErrorKind::Stream, "stream", value, "None on CPU memory")),
            };
        }
        let allowed = "None, -1 (no ordering), 1 (legacy default), 2 (per-thread default) or a stream handle";
        match value {
            None => Ok(Self::LegacyDefault),
            Some(-1) => Ok(Self::NothingPending),
            Some(value) => {
                // SAFETY: as the caller promises.
                let stream = unsafe { Self::from_positive(value) };
                stream.ok_or_else(|| Error::new(ErrorKind::Stream, "stream", value, allowed))
            }
        }
    }

    /// The argument `stream` for the `__dlpack__` of a producer whose memory is on `device`; `None`: do not pass one.
    ///
    /// A CPU producer is passed nothing. A CUDA producer is always passed a number, because libraries differ in what
    /// they take a missing one for.
    #[must_use]
    pub fn to_dlpack(self, device: DeviceType) -> Option<i128> {
        if device == DeviceType::CPU {
            return None;
        }
        Some(self.to_raw().map_or(-1, |handle| handle as i128))
    }

    /// # Safety
    ///
    /// As for [`from_raw`](Self::from_raw).
    unsafe fn from_positive(value: i128) -> Option<Self> {
        let handle = usize::try_from(value).ok().filter(|handle| *handle != 0)?;
        // SAFETY: as the caller promises.
        Some(unsafe { Self::from_raw(handle) })
    }
}

impl fmt::Display for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingPending => f.write_str("nothing pending"),
            Self::LegacyDefault => f.write_str("legacy default stream (1)"),
            Self::PerThreadDefault => f.write_str("per-thread default stream (2)"),
            Self::Raw(handle) => write!(f, "stream {handle:?}"),
        }
    }
}
