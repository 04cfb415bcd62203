//! Memory that is used in place by structs without a field for a stream: the storage knows what was pending.

use interop_core::dlpack::{ManagedTensor, Versioned};
use interop_core::{CudaArray, Device, FromArray, FromImport, Import, Lease, LeaseMut, Shared, StreamHandle};

use crate::gpu::{Bytes, Place, Stream};
use crate::support::arrays::Matrix;
use crate::support::foreign::{Claims, Ledger};
use crate::turn::turn;

/// A row of bytes, as `int16`, that arrives for work on `stream`.
fn row<S: FromImport>(data: &Bytes, device: Device, stream: Stream) -> (Ledger, Matrix<S>) {
    let claims = Claims { device, ..Claims::at(data.at(), &[1, 4]) };
    let (ledger, tensor): (Ledger, ManagedTensor<Versioned>) = claims.send();
    let import = Import::from_dlpack(tensor).unwrap().on_stream(stream.handle());
    (ledger, Matrix::from_import(import).unwrap())
}

fn streams(place: Place) -> [Stream; 4] {
    [place.legacy(), place.per_thread(), place.blocking(), place.non_blocking()]
}

#[test]
fn the_host_waits_for_what_was_pending() {
    fn check<S: FromImport>(turn: &crate::turn::Turn, stream: Stream) {
        let place = Place::primary(0);
        for (data, device) in
            [(place.pinned(0, 8), Device::CUDA_HOST), (place.managed(0, 8), Device::CUDA_MANAGED)]
        {
            stream.spin();
            stream.fill(&data, 7);
            let (_, row) = row::<S>(&data, device, stream);
            assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 4], "{stream:?} {device}");
            turn.host_reads(data.address, 8);
            drop(row);
            while interop_core::cuda::finish_releases() > 0 {}
        }
    }
    let turn = turn();
    for stream in streams(Place::primary(0)) {
        check::<Lease<i16>>(&turn, stream);
        check::<LeaseMut<i16>>(&turn, stream);
        check::<Shared>(&turn, stream);
    }
}

#[test]
fn what_goes_on_is_ordered_after_what_was_pending() {
    fn check<S: FromImport + Send + Sync + 'static>(stream: Stream, consumer: Stream) {
        let data = Place::primary(0).bytes(0, 8);
        stream.spin();
        stream.fill(&data, 7);
        let (_, row) = row::<S>(&data, Device::cuda(0), stream);
        let again = row.into_dlpack_for::<Versioned>(consumer.handle()).unwrap();
        assert_eq!(consumer.reads(&data), 7, "{stream:?} {consumer:?}");
        drop(again);
        while interop_core::cuda::finish_releases() > 0 {}
    }
    let _turn = turn();
    let place = Place::primary(0);
    for stream in streams(place) {
        check::<Lease<i16>>(stream, place.non_blocking());
        check::<LeaseMut<i16>>(stream, place.non_blocking());
        check::<Shared>(stream, place.non_blocking());
    }
}

/// It may be gone by the time somebody asks, and the driver dies over a handle of a destroyed stream.
#[test]
fn the_stream_itself_is_not_kept() {
    let _turn = turn();
    let place = Place::primary(0);
    let (data, stream) = (place.pinned(0, 8), place.non_blocking());
    stream.fill(&data, 7);
    let (_, row) = row::<Lease<i16>>(&data, Device::CUDA_HOST, stream);
    assert_eq!(row.facts().unwrap().stream(), StreamHandle::LegacyDefault);
    stream.destroy();
    assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 4]);
    drop(row);
    while interop_core::cuda::finish_releases() > 0 {}
}

/// A graph orders its own work, and nothing outside may be told to wait for it.
#[test]
fn a_capture_is_left_alone() {
    let turn = turn();
    let place = Place::primary(0);
    let (data, captures) = (place.bytes(0, 8), place.non_blocking());
    captures.begin();
    turn.reset_calls();
    let (ledger, row) = row::<LeaseMut<i16>>(&data, Device::cuda(0), captures);
    captures.fill(&data, 9);
    assert_eq!(row.facts().unwrap().stream(), StreamHandle::NothingPending);
    drop(row);
    assert_eq!(ledger.released(), 1);
    turn.assert_no_host_wait();
    assert!(captures.end());
}
