//! R10, R46: work on several streams is joined on the stream that an export states, and a producer can wait for its
//! consumer.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]

use interop_core::cuda::finish_releases;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Device, ErrorKind, FromArray, HostVec, Import, LeaseMut, StreamHandle};
use simulated_cuda::Mistake;

use crate::counted_imports::{ReadyOn, arrive};
use crate::cuda_program::{Bytes, Place, Stream};
use crate::exclusive_driver::{Turn, first_gpu, turn};
use crate::support::arrays::Array;
use crate::support::assert_told;

const GPU: Device = Device::cuda(0);

type Leased = Array<LeaseMut<i16>>;

/// All of `data` as an array that is ready on `stream`.
fn array(data: &Bytes, stream: Stream) -> Leased {
    let (_, import) = arrive(data, GPU);
    Array::from_import(import.ready_on(stream.handle())).unwrap()
}

/// Imports the array for a consumer on `stream`, through the interface dict.
fn by_dict(interface: &CudaArrayInterface, stream: Stream) -> Leased {
    // SAFETY: the memory outlives the import, and the stream is live.
    let import = unsafe { Import::from_cai_for_stream(interface, stream.handle(), ()) };
    Array::from_import(import.unwrap()).unwrap()
}

/// Imports the array through a DLPack tensor made for the consumer.
fn by_tensor(array: Leased, stream: Stream) -> Leased {
    let tensor = array.into_dlpack_as::<Versioned>(stream.handle()).unwrap();
    Array::from_import(Import::from_dlpack(tensor).unwrap().ready_on(stream.handle())).unwrap()
}

/// Writes the halves of an array on two streams and joins those that `joined` selects. A consumer then waits for the
/// one stream that the export states and reads the whole array.
fn written_on_two(turn: &Turn, joined: [bool; 2], export: fn(Leased, Stream) -> Leased) {
    let place = Place::primary(0);
    let [own, consumer] = [(); 2].map(|()| place.non_blocking());
    let data = place.bytes(0, 16);
    let array = array(&data, own);
    for (half, joined) in joined.into_iter().enumerate() {
        let other = place.non_blocking();
        array.make_stream_wait(other.handle()).unwrap();
        other.spin();
        other.fill(&other.bytes_at(data.at() + 8 * half, 8), 7);
        if joined {
            array.wait_for_stream(other.handle()).unwrap();
        }
    }
    let taken = export(array, consumer);
    let seen = consumer.scratch(16);
    consumer.copy(&seen, &data);
    consumer.finish();
    if joined == [true; 2] {
        assert_eq!(seen.value(), 7);
    } else {
        turn.run_all();
        turn.expect(Mistake::Race);
    }
    drop((taken, seen));
    while finish_releases() > 0 {}
}

#[test]
fn the_exported_stream_stands_for_all_that_were_joined_on_it() {
    let turn = turn();
    let dict = |array: Leased, consumer| by_dict(&array.to_cai().unwrap(), consumer);
    for export in [by_tensor, dict] {
        written_on_two(&turn, [true, true], export);
        // The simulated driver reports a race if a join is missing.
        written_on_two(&turn, [true, false], export);
        written_on_two(&turn, [false, true], export);
    }
}

#[test]
fn to_join_a_stream_is_an_edge_into_the_arrays_own() {
    let (turn, place) = first_gpu();
    let (data, own, other) = (place.bytes(0, 8), place.non_blocking(), place.non_blocking());
    let mut array = array(&data, own);
    let calls_for = |array: &Leased, stream| {
        turn.reset_calls();
        array.wait_for_stream(stream).unwrap();
        turn.assert_no_host_wait();
        turn.calls_of(["cuEventRecord", "cuStreamWaitEvent"])
    };
    assert_eq!(calls_for(&array, other.handle()), [1, 1]);
    assert_eq!(calls_for(&array, StreamHandle::LegacyDefault), [1, 1]);
    assert_eq!(calls_for(&array, own.handle()), [0, 0]);
    assert_eq!(calls_for(&array, StreamHandle::NothingPending), [0, 0]);
    // The array would be exported as ready, whatever runs on the other stream.
    array.stream = StreamHandle::NothingPending;
    let found = format!("nothing pending, and pending work on the {}", other.handle());
    let allowed = "a struct whose `stream` field holds a stream";
    assert_told(
        &array.wait_for_stream(other.handle()).unwrap_err(),
        (ErrorKind::Stream, "stream", found.as_str(), allowed),
    );
    let host = Array::new(HostVec::from([1_i16, 2]), &[2]);
    host.wait_for_stream(other.handle()).unwrap();
    drop(array);
    assert_eq!(finish_releases(), 0);
}

/// A consumer reads slowly while the producer writes again. Returns what the consumer reads and what was reported.
fn read_and_overwritten(turn: &Turn, export: fn(Leased, Stream) -> Leased, ordered: bool) {
    let place = Place::primary(0);
    let (producer, consumer, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 8));
    producer.fill(&data, 7);
    let taken = export(array(&data, producer), consumer);
    consumer.spin();
    let seen = consumer.scratch(8);
    consumer.copy(&seen, &data);
    if ordered {
        taken.make_stream_wait(producer.handle()).unwrap();
    }
    producer.fill(&data, 9);
    producer.finish();
    turn.run_all();
    if ordered {
        assert_eq!((seen.value(), data.value()), (7, 9));
    } else {
        turn.expect(Mistake::Race);
    }
    // The import lived until here.
    drop((taken, seen));
    while finish_releases() > 0 {}
}

#[test]
fn a_producer_that_goes_on_comes_after_its_consumer() {
    let turn = turn();
    let dict = |array: Leased, consumer| by_dict(&array.to_cai().unwrap(), consumer);
    for export in [by_tensor, dict] {
        read_and_overwritten(&turn, export, true);
        // The simulated driver reports a race if the wait of the producer is missing.
        read_and_overwritten(&turn, export, false);
    }
}
