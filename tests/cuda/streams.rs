//! R12: the stream that an export states lives as long as the exported array.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use cust::memory::DeviceBuffer;
use cust::stream::{Stream, StreamFlags};
use interop_core::cuda::{finish_releases, stream_wait};
use interop_core::{CudaArray, Device, Import, StreamHandle};
use simulated_cuda::{Live, find};

use crate::support::{Matrix, Streamed, numbers, turn};

/// Returns the number of live streams, if the driver can report it.
fn live() -> Option<u64> {
    find().ok().map(|sim| sim.live(Live::Streams))
}

/// Uses a stream. If it was destroyed, the simulated driver reports that, and a real driver ends the process.
fn is_live(stream: StreamHandle) {
    assert!(matches!(stream, StreamHandle::Raw(_)), "a default stream is always there: {stream}");
    stream_wait(StreamHandle::LegacyDefault, stream, Device::cuda(0)).unwrap();
}

/// Checks that the stream of an array lives as long as the array or an export of it. `make` keeps no handle to the
/// stream.
fn keeps_its_stream<A: CudaArray + Send + Sync + 'static>(make: impl Fn() -> A) {
    let before = live();
    let array = make();
    is_live(array.info().unwrap().stream().unwrap());
    let interface = array.to_cai().unwrap();
    let (legacy, stream) = (StreamHandle::LegacyDefault, array.info().unwrap().stream().unwrap());
    // SAFETY: the array keeps the memory and the stated stream alive.
    let import = unsafe { Import::from_cai_for_stream(&interface, legacy, array) }.unwrap();
    is_live(stream);
    drop(import);
    assert_eq!((finish_releases(), live()), (0, before), "the stream is lost");

    let array = Arc::new(make());
    let stream = array.info().unwrap().stream().unwrap();
    let tensor = array.share_dlpack().unwrap();
    drop(array);
    is_live(stream);
    drop(tensor);
    assert_eq!((finish_releases(), live()), (0, before), "the stream is lost");
}

fn by_cust<H>(wrap: impl Fn(Stream) -> H) -> impl Fn() -> Streamed<DeviceBuffer<f32>, H> {
    move || {
        let stream = wrap(Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
        Streamed { data: DeviceBuffer::from_slice(&numbers(6)).unwrap(), rows: 2, columns: 3, stream }
    }
}

#[test]
fn a_stream_of_cust_belongs_to_the_struct() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    keeps_its_stream(by_cust(|stream| stream));
    keeps_its_stream(by_cust(Arc::new));
    keeps_its_stream(by_cust(Some));
}

#[test]
fn a_stream_of_cudarc_is_shared_by_the_struct_and_by_its_slice() {
    let _turn = turn();
    let context = CudaContext::new(0).unwrap();
    let slice = |stream: &Arc<CudaStream>| stream.clone_htod(&numbers(6)).unwrap();
    // Only the slice: it states its stream if the struct has no field for one.
    keeps_its_stream(|| -> Matrix<CudaSlice<f32>> {
        Matrix { data: slice(&context.new_stream().unwrap()), rows: 2, columns: 3 }
    });
    // A stream field that states nothing.
    keeps_its_stream(|| {
        let data = slice(&context.new_stream().unwrap());
        Streamed { data, rows: 2, columns: 3, stream: None::<Arc<CudaStream>> }
    });
    // A stream other than that of the slice.
    keeps_its_stream(|| {
        let data = slice(&context.default_stream());
        Streamed { data, rows: 2, columns: 3, stream: context.new_stream().unwrap() }
    });
}
