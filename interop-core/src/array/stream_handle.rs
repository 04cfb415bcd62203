//! Stream handles, and their values in both protocols.
#![expect(unsafe_code, reason = "declares unsafe constructors that turn a number into a stream")]

use core::fmt;
use core::num::NonZeroUsize;

use crate::array::device::DeviceType;
use crate::error::{Error, ErrorKind, Result};

/// A CUDA stream with pending work, or the statement that no work is pending.
///
/// | meaning | CUDA Array Interface: the producer's stream | DLPack on CUDA: the consumer's stream |
/// | --- | --- | --- |
/// | [`NothingPending`](Self::NothingPending) | `None`, or no key | -1 |
/// | [`LegacyDefault`](Self::LegacyDefault) | 1 | 1, or `None` |
/// | [`PerThreadDefault`](Self::PerThreadDefault) | 2 | 2 |
/// | [`Raw`](Self::Raw) | the handle | the handle |
/// | error | 0, negative numbers | 0, numbers below -1 |
///
/// `None` has opposite meanings in the two protocols, so both are decoded only here. For a device without streams
/// DLPack allows `None` only; -1 is accepted too, because it requests no wait.
///
/// A `#[cuda_array(stream)]` field holds such a value: the stream on which the data was last written. The value does
/// not own the stream. If the stream has been destroyed, a driver call with it can crash the process. So only the
/// `unsafe` function [`from_raw`](Self::from_raw) creates a handle from a number; its caller keeps the stream alive as
/// long as the struct or an export of it exists. A field that owns its stream, such as `Arc<CudaStream>`, needs no such
/// promise, because an export owns the whole struct. A copy from
/// [`AsStream::as_stream`](crate::derive::fields::stream::AsStream::as_stream) does not keep the stream alive: do not
/// use it after the stream is destroyed.
///
/// There is no default value. If it is unknown which stream last wrote the data, leave the field out, or use `None` in an
/// `Option` of a stream: then exports wait for all work of the memory's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamHandle {
    /// No work is pending: any stream and the host may access the data immediately.
    NothingPending,
    /// The legacy default stream of the current context (`CU_STREAM_LEGACY`, 1).
    LegacyDefault,
    /// The default stream of the calling thread (`CU_STREAM_PER_THREAD`, 2). It is another stream on another thread.
    PerThreadDefault,
    /// A `CUstream`, which is the same as a `cudaStream_t`. Never 1 or 2: [`from_raw`](Self::from_raw) maps them to the
    /// variants above.
    Raw(RawStream),
}

/// A stream handle that was created by the unsafe [`StreamHandle::from_raw`]. [`StreamHandle::to_raw`] returns its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(NonZeroUsize);

impl RawStream {
    pub(crate) const fn get(self) -> usize {
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
    /// Creates a value from a `CUstream`.
    ///
    /// A null handle is the legacy default stream, as for the driver's symbols without `_ptsz`.
    ///
    /// # Safety
    ///
    /// The handle is 0, 1, 2, or a live stream. The stream stays alive while the value, a copy of it, a struct with it,
    /// or an export of that struct is in use.
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

    /// The handle for the driver, or `None` if nothing is pending and no driver call must be made. It is also the value of the
    /// key `stream` of an interface dict; omit the key for `None`, because consumers have crashed on a `None` there.
    #[must_use]
    pub const fn to_raw(self) -> Option<usize> {
        match self {
            Self::NothingPending => None,
            Self::LegacyDefault => Some(LEGACY),
            Self::PerThreadDefault => Some(PER_THREAD),
            Self::Raw(handle) => Some(handle.get()),
        }
    }

    /// As [`to_raw`](Self::to_raw), as a number that is never 0.
    #[inline]
    pub(crate) const fn number(self) -> Option<NonZeroUsize> {
        match self {
            Self::NothingPending => None,
            Self::LegacyDefault => NonZeroUsize::new(LEGACY),
            Self::PerThreadDefault => NonZeroUsize::new(PER_THREAD),
            Self::Raw(RawStream(number)) => Some(number),
        }
    }

    /// The handle with this [`number`](Self::number).
    #[inline]
    pub(crate) const fn of_number(number: NonZeroUsize) -> Self {
        match number.get() {
            LEGACY => Self::LegacyDefault,
            PER_THREAD => Self::PerThreadDefault,
            _ => Self::Raw(RawStream(number)),
        }
    }

    /// Decodes the value of the key `stream` of an interface dict. `None` stands for `None` and for a missing key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for 0, which the interface forbids as ambiguous, and for negative numbers.
    ///
    /// # Safety
    ///
    /// A number above 2 is a stream as for [`from_raw`](Self::from_raw), which the interface requires of the producer.
    pub unsafe fn from_cai(value: Option<i128>) -> Result<Self> {
        let Some(value) = value else { return Ok(Self::NothingPending) };
        let allowed = "None, 1 (legacy default), 2 (per-thread default) or a stream handle";
        // SAFETY: forwarded to the caller.
        let stream = unsafe { Self::from_positive(value) };
        stream.ok_or_else(|| Error::new(ErrorKind::Stream, "stream", value, allowed))
    }

    /// Decodes the argument `stream` of `__dlpack__`: the stream on which the consumer will use memory of `device`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for a number that the protocol forbids on that device (see the table at [`StreamHandle`]).
    ///
    /// # Safety
    ///
    /// A number above 2 is a stream as for [`from_raw`](Self::from_raw), which the protocol requires of the consumer.
    pub unsafe fn from_dlpack(device: DeviceType, value: Option<i128>) -> Result<Self> {
        if device == DeviceType::CPU {
            return match value {
                None | Some(-1) => Ok(Self::NothingPending),
                Some(value) => Err(Error::new(ErrorKind::Stream, "stream", value, "None on CPU memory")),
            };
        }
        let allowed = "None, -1 (no wait), 1 (legacy default), 2 (per-thread default) or a stream handle";
        match value {
            None => Ok(Self::LegacyDefault),
            Some(-1) => Ok(Self::NothingPending),
            Some(value) => {
                // SAFETY: forwarded to the caller.
                let stream = unsafe { Self::from_positive(value) };
                stream.ok_or_else(|| Error::new(ErrorKind::Stream, "stream", value, allowed))
            }
        }
    }

    /// The argument `stream` to pass to `__dlpack__` of a producer with memory on `device`; pass no argument for
    /// `None`.
    ///
    /// A CPU producer gets no argument. A CUDA producer always gets a number, because libraries interpret a missing one
    /// differently.
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
        // SAFETY: forwarded to the caller.
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
