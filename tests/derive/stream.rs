//! `stream`: where the data was last written, and on which stream an import is ready.

use interop_core::launch::AsStream;
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Lease, StreamHandle};

use crate::support::{Foreign, count, handle};

#[derive(CudaArray)]
struct Samples<S, H> {
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(stream)]
    stream: H,
}

/// A stream that owns its handle, as `cust::Stream` does. It cannot be made from another library's handle.
#[derive(Debug, PartialEq)]
struct Own(StreamHandle);

impl AsStream for Own {
    fn as_stream(&self) -> StreamHandle {
        self.0
    }
}

#[derive(CudaArray)]
struct OnItsOwn {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(stream, default = Own(handle(0x300)))]
    stream: Own,
}

fn on(stream: StreamHandle) -> Foreign<f32> {
    Foreign { device: Device::cuda(0), stream, ..Foreign::new(&count(4), &[4]) }
}

#[test]
fn an_export_names_the_stream() {
    for stream in [StreamHandle::NothingPending, StreamHandle::LegacyDefault, handle(2), handle(0x100)] {
        let samples = Samples { values: count(4), shape: [4], stream };
        assert_eq!(samples.info().unwrap().stream(), Some(stream));
    }
}

#[test]
fn an_empty_field_is_the_stream_of_the_storage() {
    let samples = Samples { values: count(4), shape: [4], stream: None::<StreamHandle> };
    // Nothing is ever pending on the memory of a vector.
    assert_eq!(samples.info().unwrap().stream(), Some(StreamHandle::NothingPending));
    let samples = Samples { values: count(4), shape: [4], stream: Some(Own(handle(0x100))) };
    assert_eq!(samples.info().unwrap().stream(), Some(handle(0x100)));
}

#[test]
fn an_import_fills_the_stream() {
    let (import, receipt) = on(handle(0x200)).send();
    let samples = Samples::<Lease<f32>, StreamHandle>::from_import(import).unwrap();
    assert_eq!(samples.stream, handle(0x200));
    assert_eq!(samples.info().unwrap().stream(), Some(handle(0x200)));
    assert_eq!(samples.info().unwrap().device(), Device::cuda(0));
    assert_eq!(samples.info().unwrap().address(), receipt.address);
    assert_eq!((samples.shape, receipt.releases()), ([4], 0));
    drop(samples.values);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn an_import_with_nothing_pending_fills_an_option_with_none() {
    let (import, _) = on(StreamHandle::NothingPending).send();
    let samples = Samples::<Lease<f32>, Option<StreamHandle>>::from_import(import).unwrap();
    assert_eq!(samples.stream, None);
    drop((samples.values, samples.shape));
}

#[test]
fn a_stream_of_the_struct_itself_is_kept() {
    let (import, _) = on(StreamHandle::NothingPending).send();
    let samples = OnItsOwn::from_import(import).unwrap();
    assert_eq!(samples.stream, Own(handle(0x300)));
    assert_eq!(samples.info().unwrap().stream(), Some(handle(0x300)));
    drop((samples.values, samples.shape));
}

#[test]
fn work_on_another_stream_is_never_forgotten() {
    // The struct's own stream would have to wait for the other one. Without a driver that is impossible, so the
    // import is refused and returned.
    let (import, receipt) = on(handle(0x200)).send();
    let refused = OnItsOwn::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Driver);
    assert_eq!(receipt.releases(), 0);
    assert_eq!(refused.value.info().stream(), Some(handle(0x200)));
}
