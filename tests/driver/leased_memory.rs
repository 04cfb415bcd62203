//! Structs without a stream field that use imported memory in place: the storage remembers where work is pending.
#![expect(unsafe_code, reason = "one struct promises that a pointer is valid")]

use interop_core::launch::{AsStream, FromStream};
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::storage::{FromImport, Owner};
use interop_core::{
    CudaArray, Device, Error, ErrorKind, FromArray, Import, Lease, LeaseMut, Refused, Result, SharedBuffer,
    StreamHandle,
};

use crate::counted_imports::ReadyOn;
use crate::cuda_program::{Bytes, Place, Stream, set_current};
use crate::exclusive_driver::{Turn, first_gpu, turn};
use crate::support::arrays::Matrix;
use crate::support::foreign_tensors::{Claims, Ledger};

/// Imports a row of bytes as `int16`, ready on `stream`.
fn arrives(data: &Bytes, device: Device, stream: Stream) -> (Ledger, Import) {
    let claims = Claims { device, ..Claims::at(data.at(), &[1, 4]) };
    let (ledger, tensor): (Ledger, ManagedTensor<Versioned>) = claims.send();
    (ledger, Import::from_dlpack(tensor).unwrap().ready_on(stream.handle()))
}

/// The same in a struct that has no stream field.
fn row<S: FromImport>(data: &Bytes, device: Device, stream: Stream) -> (Ledger, Matrix<S>) {
    let (ledger, import) = arrives(data, device, stream);
    (ledger, Matrix::from_import(import).unwrap())
}

fn streams(place: Place) -> [Stream; 4] {
    [place.legacy(), place.per_thread(), place.blocking(), place.non_blocking()]
}

#[test]
fn the_host_waits_for_what_was_pending() {
    fn check<S: FromImport>(turn: &Turn, stream: Stream) {
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
        check::<SharedBuffer>(&turn, stream);
    }
}

#[test]
fn what_goes_on_is_ordered_after_what_was_pending() {
    fn check<S: FromImport + Send + Sync + 'static>(turn: &Turn, ordinal: i32, stream: Stream) {
        let place = Place::primary(ordinal);
        let (data, consumer) = (place.bytes(0, 8), place.non_blocking());
        stream.spin();
        stream.fill(&data, 7);
        let (_, row) = row::<S>(&data, Device::cuda(ordinal), stream);
        turn.reset_calls();
        let again = row.into_dlpack_as::<Versioned>(consumer.handle()).unwrap();
        turn.assert_no_host_wait();
        assert_eq!(consumer.reads(&data), 7, "{stream:?} {consumer:?}");
        drop(again);
        while interop_core::cuda::finish_releases() > 0 {}
    }
    let turn = turn();
    for ordinal in [0, 1] {
        for stream in streams(Place::primary(ordinal)) {
            check::<Lease<i16>>(&turn, ordinal, stream);
            check::<LeaseMut<i16>>(&turn, ordinal, stream);
            check::<SharedBuffer>(&turn, ordinal, stream);
        }
    }
}

/// The stream may be destroyed before the next use, and the driver crashes on the handle of a destroyed stream.
#[test]
fn the_stream_itself_is_not_kept() {
    let (_turn, place) = first_gpu();
    for (data, device, kept) in [
        (place.bytes(0, 8), Device::cuda(0), StreamHandle::LegacyDefault),
        (place.pinned(0, 8), Device::CUDA_HOST, StreamHandle::NothingPending),
    ] {
        let (stream, consumer) = (place.non_blocking(), place.non_blocking());
        stream.fill(&data, 7);
        let (_, row) = row::<Lease<i16>>(&data, device, stream);
        assert_eq!(row.info().unwrap().stream(), Some(kept));
        stream.destroy();
        let again = row.into_dlpack_as::<Versioned>(consumer.handle()).unwrap();
        assert_eq!(consumer.reads(&data), 7, "{device}");
        drop(again);
        while interop_core::cuda::finish_releases() > 0 {}
    }
}

/// A graph synchronizes its own work, and no stream outside may be made to wait for it.
#[test]
fn a_capture_is_left_alone() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    set_current(Some(place));
    for captures in [place.per_thread(), place.blocking(), place.non_blocking()] {
        captures.begin();
        turn.reset_calls();
        let (ledger, row) = row::<LeaseMut<i16>>(&data, Device::cuda(0), captures);
        captures.fill(&data, 9);
        assert_eq!(row.info().unwrap().stream(), Some(captures.handle()));
        drop(row);
        let (other, import) = arrives(&data, Device::cuda(0), captures);
        drop(Bare::from_import(import).unwrap());
        let (last, import) = arrives(&data, Device::cuda(0), captures);
        drop(Told::<Lease<i16>>::from_import(import).unwrap());
        assert_eq!([ledger, other, last].map(|ledger| ledger.released()), [1; 3], "{captures:?}");
        turn.assert_no_host_wait();
        assert!(captures.end());
    }
    set_current(None);
}

/// A pointer states no stream, and neither does this struct.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Bare {
    // SAFETY: only imports fill it, together with the owner of the memory.
    #[cuda_array(data(unsafe_raw))]
    data: *mut i16,
    rows: usize,
    columns: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

// SAFETY: the memory may be used and released on any thread.
unsafe impl Send for Bare {}

#[test]
fn a_struct_that_cannot_say_what_is_pending_waits() {
    let (turn, place) = first_gpu();
    for stream in streams(place) {
        for (data, device) in [
            (place.pinned(0, 8), Device::CUDA_HOST),
            (place.managed(0, 8), Device::CUDA_MANAGED),
            (place.bytes(0, 8), Device::cuda(0)),
        ] {
            stream.spin();
            stream.fill(&data, 7);
            let import = arrives(&data, device, stream).1;
            let bare = Bare::from_import(import).unwrap();
            if device == Device::cuda(0) {
                let again = bare.into_dlpack_as::<Versioned>(place.non_blocking().handle()).unwrap();
                assert_eq!(place.non_blocking().reads(&data), 7, "{stream:?}");
                drop(again);
            } else {
                assert_eq!(bare.to_vec::<i16>().unwrap(), [0x707; 4], "{stream:?} {device}");
                turn.host_reads(data.address, 8);
                drop(bare);
            }
            while interop_core::cuda::finish_releases() > 0 {}
        }
    }
}

/// An import that would have to wait while another stream captures is refused, and the capture stays valid.
#[test]
fn a_capture_of_somebody_else_is_not_spoiled() {
    let (_turn, place) = first_gpu();
    let (data, captures) = (place.managed(3, 8), place.blocking());
    for (stream, waits) in [(place.legacy(), false), (place.non_blocking(), true)] {
        captures.begin();
        let (ledger, import) = arrives(&data, Device::CUDA_MANAGED, stream);
        let answer = Bare::from_import(import);
        assert_eq!(answer.as_ref().is_ok(), waits, "{stream:?}");
        match answer {
            Ok(bare) => drop(bare),
            Err(refused) => {
                assert_eq!(refused.error.kind(), ErrorKind::StreamCapture, "{}", refused.error);
                assert_eq!((ledger.released(), refused.value.info().shape()), (0, &[1, 4][..]));
            }
        }
        assert!(captures.end(), "{stream:?}");
        while interop_core::cuda::finish_releases() > 0 {}
        assert_eq!(ledger.released(), 1);
    }
}

/// Pinned memory belongs to no device: its legacy default stream depends on the current context.
#[test]
fn the_host_waits_whatever_context_is_current() {
    let turn = turn();
    let [first, second] = [Place::primary(0), Place::primary(1)];
    for (arriving, asking) in [(None, Some(second)), (Some(second), None), (Some(second), Some(first))] {
        for stream in [first.non_blocking(), arriving.unwrap_or(first).legacy()] {
            let data = first.pinned(0, 8);
            stream.spin();
            stream.fill(&data, 7);
            set_current(arriving);
            let (_, row) = row::<Lease<i16>>(&data, Device::CUDA_HOST, stream);
            set_current(asking);
            assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 4], "{stream:?}: {arriving:?} {asking:?}");
            turn.host_reads(data.address, 8);
            set_current(None);
            drop(row);
            while interop_core::cuda::finish_releases() > 0 {}
        }
    }
}

/// The storage remembers a default stream. Its handle refers to another stream if another context is current.
#[test]
fn what_was_pending_is_found_whatever_context_is_current() {
    fn check<S: FromImport + Send + 'static>(places: [Place; 3]) {
        for (home, asking) in [(0, 2), (2, 0), (2, 1), (0, 1)] {
            let (place, mut names) = (places[home], vec![Some(places[home])]);
            if home == 0 {
                names.push(None);
            }
            for arriving in names {
                for stream in [place.legacy(), place.per_thread(), place.non_blocking()] {
                    let data = place.bytes(0, 8);
                    stream.spin();
                    stream.fill(&data, 7);
                    set_current(arriving);
                    let (_, row) = row::<S>(&data, Device::cuda(0), stream);
                    for asking in [None, Some(places[asking])] {
                        set_current(asking);
                        let consumer = place.non_blocking();
                        row.make_stream_wait(consumer.handle()).unwrap();
                        assert_eq!(consumer.reads(&data), 7, "{stream:?}: {arriving:?} {asking:?}");
                    }
                    set_current(None);
                    drop(row);
                    while interop_core::cuda::finish_releases() > 0 {}
                }
            }
        }
    }
    let _turn = turn();
    let places = [Place::primary(0), Place::primary(1), Place::foreign(0)];
    check::<Lease<i16>>(places);
    check::<LeaseMut<i16>>(places);
    check::<SharedBuffer>(places);
    places[2].destroy();
}

/// The default stream is that of the context that is current at the import, not that of the memory's context.
#[test]
fn what_was_pending_is_where_the_memory_is_used() {
    let _turn = turn();
    let (own, primary) = (Place::foreign(0), Place::primary(0));
    {
        let data = own.bytes(0, 8);
        primary.legacy().spin();
        primary.legacy().fill(&data, 7);
        set_current(Some(primary));
        let (_, row) = row::<Lease<i16>>(&data, Device::cuda(0), primary.legacy());
        set_current(Some(own));
        let consumer = own.non_blocking();
        row.make_stream_wait(consumer.handle()).unwrap();
        assert_eq!(consumer.reads(&data), 7);
        set_current(None);
        drop(row);
        while interop_core::cuda::finish_releases() > 0 {}
    }
    own.destroy();
}

/// Its pending work ends with that context.
#[test]
fn nothing_is_pending_in_a_context_that_is_gone() {
    let turn = turn();
    let (own, primary) = (Place::foreign(0), Place::primary(0));
    let data = primary.bytes(0, 8);
    set_current(Some(own));
    own.legacy().fill(&data, 7);
    let (_, row) = row::<Lease<i16>>(&data, Device::cuda(0), own.legacy());
    assert_eq!(row.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    set_current(None);
    own.destroy();
    assert_eq!(row.info().unwrap().stream(), Some(StreamHandle::NothingPending));
    turn.reset_calls();
    row.make_stream_wait(primary.non_blocking().handle()).unwrap();
    assert_eq!(turn.calls_of(["cuEventRecord", "cuStreamWaitEvent"]), [0, 0]);
    drop(row);
    while interop_core::cuda::finish_releases() > 0 {}
}

/// If an import leaves the stream field empty, the storage has the stream.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Told<S> {
    #[cuda_array(data)]
    data: S,
    rows: usize,
    columns: usize,
    #[cuda_array(stream, default = None)]
    stream: Option<StreamHandle>,
}

#[test]
fn an_empty_stream_field_leaves_the_stream_to_the_storage() {
    fn check<S: FromImport + Send + 'static>(turn: &Turn, stream: Stream) {
        let place = Place::primary(0);
        for (data, device) in [
            (place.pinned(0, 8), Device::CUDA_HOST),
            (place.managed(0, 8), Device::CUDA_MANAGED),
            (place.bytes(0, 8), Device::cuda(0)),
        ] {
            stream.spin();
            stream.fill(&data, 7);
            let told = Told::<S>::from_import(arrives(&data, device, stream).1).unwrap();
            let known = if device == Device::cuda(0) && S::COPIES { None } else { Some(()) };
            assert_eq!(told.info().unwrap().stream().map(drop), known, "{device}");
            assert_eq!(told.to_vec::<i16>().unwrap(), [0x707; 4], "{stream:?} {device}");
            if device != Device::cuda(0) {
                turn.host_reads(data.address, 8);
            }
            let consumer = place.non_blocking();
            let again = told.into_dlpack_as::<Versioned>(consumer.handle()).unwrap();
            assert_eq!(consumer.reads(&data), 7, "{stream:?} {device}");
            drop(again);
            while interop_core::cuda::finish_releases() > 0 {}
        }
    }
    let turn = turn();
    for stream in streams(Place::primary(0)) {
        check::<Lease<i16>>(&turn, stream);
        check::<LeaseMut<i16>>(&turn, stream);
        check::<SharedBuffer>(&turn, stream);
    }
}

/// A stream type that no import can be made on.
#[derive(Debug)]
struct Never;

impl FromStream for Never {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        Err(Error::new(ErrorKind::Stream, "stream", format!("{stream:?} of {device}"), "no stream"))
    }
}

impl AsStream for Never {
    fn as_stream(&self) -> StreamHandle {
        StreamHandle::NothingPending
    }
}

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Particular {
    #[cuda_array(data)]
    data: Lease<i16>,
    rows: usize,
    columns: usize,
    #[cuda_array(stream)]
    stream: Never,
}

/// The pending work was passed to the struct that refused. The struct that is made afterwards must know it too.
#[test]
fn what_was_pending_is_known_after_a_struct_with_a_stream_has_refused() {
    let (turn, place) = first_gpu();
    for (data, device) in [(place.bytes(0, 8), Device::cuda(0)), (place.managed(0, 8), Device::CUDA_MANAGED)]
    {
        let (stream, consumer) = (place.non_blocking(), place.non_blocking());
        stream.spin();
        stream.fill(&data, 7);
        let (_, import) = arrives(&data, device, stream);
        let Refused { value: import, error } = Particular::from_import(import).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stream);
        let row = Matrix::<Lease<i16>>::from_import(*import).unwrap();
        if device == Device::CUDA_MANAGED {
            assert_eq!(row.to_vec::<i16>().unwrap(), [0x707; 4]);
            turn.host_reads(data.address, 8);
            drop(row);
        } else {
            let again = row.into_dlpack_as::<Versioned>(consumer.handle()).unwrap();
            assert_eq!(consumer.reads(&data), 7);
            drop(again);
        }
        while interop_core::cuda::finish_releases() > 0 {}
    }
}
