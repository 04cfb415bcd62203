//! Field types for streams.

use std::rc::Rc;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::error::Result;
use crate::memory::extraction::Extraction;
use crate::memory::storage::InfoBuilder;

/// The type of a `stream` field, for exports.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `stream` of a `CudaArray`",
    label = "not a stream",
    note = "write `interop_core::StreamHandle`, or an `Option` of a stream, where `None` means the storage's stream"
)]
pub trait AsStream {
    /// The stream on which the data was last written.
    fn as_stream(&self) -> StreamHandle;

    /// The stream in a form that is valid on this thread and for memory of `device`, which select the context of a
    /// default stream. `None` if the field is empty and the storage's stream applies.
    #[doc(hidden)]
    #[inline]
    fn as_stream_on(&self, _device: Device) -> Option<StreamHandle> {
        Some(self.as_stream())
    }

    /// Called by expanded code for exports.
    #[doc(hidden)]
    #[inline]
    fn describe_field<'a>(&self, to: InfoBuilder<'a>) -> InfoBuilder<'a>
    where
        Self: Sized,
    {
        let stream = self.as_stream_on(to.memory.device);
        to.stream(stream)
    }

    /// Called by expanded code for imports with `stream, default = ...`: the struct's own stream.
    #[doc(hidden)]
    #[must_use]
    fn receive(self, from: &mut Extraction<'_>, field: &'static str) -> Self
    where
        Self: Sized,
    {
        // The struct's own stream waits for pending work on the import. An empty field leaves that to the storage.
        if let Some(stream) = self.as_stream_on(from.device()) {
            from.order_before_field(stream, field);
        }
        self
    }
}

/// The type of a `stream` field that an import can fill.
///
/// Implement it together with [`AsStream`] for your own stream type:
///
/// ```
/// use interop_core::launch::{AsStream, FromStream};
/// use interop_core::{CudaArray, Device, StreamHandle};
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
/// assert_eq!(samples.info()?.stream(), Some(StreamHandle::NothingPending));
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold the stream of an import",
    label = "an import cannot fill this field",
    note = "write `interop_core::StreamHandle`; or give the value for imports, `#[cuda_array(stream, default = ...)]`; or write `#[cuda_array(export)]` on the struct"
)]
pub trait FromStream: Sized {
    /// Converts a stream, which is not owned, for memory of this device.
    ///
    /// # Errors
    ///
    /// If the type cannot represent the stream, for example one of another context.
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self>;

    /// Called by expanded code for imports.
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
    /// For an empty field, the default stream. A struct with an empty field uses the stream of its storage instead.
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        self.as_ref().map_or(StreamHandle::LegacyDefault, AsStream::as_stream)
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
