//! Streams.

use std::rc::Rc;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::error::Result;
use crate::memory::extraction::Extraction;
use crate::memory::info_builder::InfoBuilder;

/// A `stream` field, on the way out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `stream` of a `CudaArray`",
    label = "not a stream",
    note = "write `interop_core::StreamHandle`, or an `Option` of a stream: with `None` the storage's own stream counts, if it has one"
)]
pub trait AsStream {
    /// The stream on which the data was last written.
    fn as_stream(&self) -> StreamHandle;

    /// The same, by a name that stands for it on this thread beside memory of `device`: both decide which context a default
    /// stream is taken to be of. `None` of a field that says nothing, where the storage knows better.
    #[doc(hidden)]
    #[inline]
    fn as_stream_on(&self, _device: Device) -> Option<StreamHandle> {
        Some(self.as_stream())
    }

    /// The derive's call on the way out.
    #[doc(hidden)]
    #[inline]
    fn describe_field<'a>(&self, to: InfoBuilder<'a>) -> InfoBuilder<'a>
    where
        Self: Sized,
    {
        to.stream(self)
    }

    /// The derive's call on the way in, for `stream, default = ...`: the struct's own stream.
    #[doc(hidden)]
    #[must_use]
    fn receive(self, from: &mut Extraction<'_>, field: &'static str) -> Self
    where
        Self: Sized,
    {
        // The struct's own stream waits for the work that is pending on what arrives.
        let stream = self.as_stream_on(from.device()).unwrap_or(StreamHandle::NothingPending);
        from.make_stream_wait(stream, field);
        self
    }
}

/// A `stream` field that an import can fill with the caller's stream.
///
/// With [`AsStream`] it makes a stream type of your own a field:
///
/// ```
/// use interop_core::{AsStream, CudaArray, Device, FromStream, StreamHandle};
///
/// /// A `cudaStream_t` that somebody else keeps.
/// struct BorrowedStream(StreamHandle);
///
/// impl AsStream for BorrowedStream {
///     fn as_stream(&self) -> StreamHandle {
///         self.0
///     }
/// }
///
/// impl FromStream for BorrowedStream {
///     fn from_stream(stream: StreamHandle, _device: Device) -> interop_core::Result<Self> {
///         Ok(Self(stream))
///     }
/// }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples {
///     #[cuda_array(data)]
///     values: Vec<f32>,
///     len: usize,
///     #[cuda_array(stream)]
///     stream: BorrowedStream,
/// }
///
/// let samples = Samples { values: vec![0.0; 4], len: 4, stream: BorrowedStream(StreamHandle::NothingPending) };
/// assert_eq!(samples.info()?.stream(), StreamHandle::NothingPending);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold the stream of an import",
    label = "an import cannot fill this field",
    note = "write `interop_core::StreamHandle`; or say how an import fills it, `#[cuda_array(stream, default = ...)]`; or write `#[cuda_array(export)]` on the struct"
)]
pub trait FromStream: Sized {
    /// The field for this stream, which is not owned, and for memory of this device.
    ///
    /// # Errors
    ///
    /// When the type cannot stand for the stream, such as a stream of another context.
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self>;

    /// The derive's call on the way in.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Option<Self> {
        from.stream(Self::from_stream)
    }
}

impl AsStream for StreamHandle {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        *self
    }
}

impl FromStream for StreamHandle {
    fn from_stream(stream: StreamHandle, _device: Device) -> Result<Self> {
        Ok(stream)
    }
}

#[diagnostic::do_not_recommend]
impl<S: AsStream> AsStream for Option<S> {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        self.as_ref().map_or(StreamHandle::NothingPending, AsStream::as_stream)
    }

    #[inline]
    fn as_stream_on(&self, device: Device) -> Option<StreamHandle> {
        self.as_ref().and_then(|stream| stream.as_stream_on(device))
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => {
        $(
            #[diagnostic::do_not_recommend]
            impl<S: AsStream + ?Sized> AsStream for $pointer {
                #[inline]
                fn as_stream(&self) -> StreamHandle {
                    S::as_stream(self)
                }

                #[inline]
                fn as_stream_on(&self, device: Device) -> Option<StreamHandle> {
                    S::as_stream_on(self, device)
                }
            }
        )*
    };
}

pointers!(&S, Rc<S>, Arc<S>);

#[diagnostic::do_not_recommend]
impl<S: FromStream> FromStream for Option<S> {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        (stream != StreamHandle::NothingPending).then(|| S::from_stream(stream, device)).transpose()
    }
}
