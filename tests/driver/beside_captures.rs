//! What this crate does on a thread while another stream of the thread captures a graph: the capture goes on, in each mode. Calls
//! that would end it are made in the relaxed mode, or refused before they are made.

use std::cell::RefCell;
use std::sync::Arc;

use interop_core::cuda::{self, CudaBuffer, HoldReleases, MemoryKind, finish_releases};
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Import, LaunchScope, LeaseMut, StreamHandle,
};

use crate::counted_imports::{Row, arrive_on};
use crate::cuda_program::{Place, Stream};
use crate::exclusive_driver::turn;
use crate::support::arrays::Matrix;

/// Calls `act` with what `make` made on a stream, while another stream captures.
#[track_caller]
fn beside_a_capture<T>(make: impl Fn(Stream) -> T, act: impl Fn(&T, StreamHandle)) {
    let turn = turn();
    // Global, of this thread, and relaxed.
    for mode in [0, 1, 2] {
        let place = Place::primary(0);
        let (captured, other) = (place.non_blocking(), place.non_blocking());
        let value = make(other);
        let hold = HoldReleases::new();
        captured.begin_in(mode);
        act(&value, other.handle());
        assert!(captured.end(), "mode {mode}: {:#?}", turn.take_reports());
        drop((hold, value));
        turn.run_all();
        finish_releases();
        turn.assert_no_reports();
    }
}

const LEN: usize = 32;

fn block(on: Stream) -> Row<CudaBuffer> {
    Row { data: CudaBuffer::zeroed_on(on.handle(), 0, DType::I16, LEN).unwrap(), len: LEN }
}

fn exported(on: Stream) -> ManagedTensor<Versioned> {
    block(on).into_dlpack_as::<Versioned>(on.handle()).unwrap()
}

fn import(on: Stream) -> Row<LeaseMut<i16>> {
    Row::from_import(Import::from_dlpack(exported(on)).unwrap().with_stream(on.handle()).unwrap()).unwrap()
}

#[test]
fn the_host_reads() {
    beside_a_capture(block, |row, _| assert_eq!(row.to_vec::<i16>().unwrap(), [0; LEN]));
    beside_a_capture(import, |row, _| assert_eq!(row.to_vec::<i16>().unwrap(), [0; LEN]));
    let pinned = |_| {
        let data = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::I16, LEN).unwrap();
        Row { data, len: LEN }
    };
    // All work of the context would be waited for.
    let refused = |row: &Row<CudaBuffer>, _| {
        assert_eq!(row.to_vec::<i16>().unwrap_err().kind(), ErrorKind::StreamCapture);
    };
    beside_a_capture(pinned, refused);
}

#[test]
fn a_stream_waits() {
    for to in [StreamHandle::NothingPending, StreamHandle::LegacyDefault] {
        beside_a_capture(block, |row, _| row.make_stream_wait(to).unwrap());
    }
    beside_a_capture(block, |row, other| row.make_stream_wait(other).unwrap());
}

/// A context that is destroyed.
struct Temporary(Place);

impl Drop for Temporary {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

/// The dict of an array whose last stream is unknown names a stream of this crate, which is made when it is first needed.
#[test]
fn an_interface_dict() {
    let kept = |on: Stream| {
        let context = Temporary(Place::foreign(0));
        let data = context.0.bytes(1, 64);
        let (_ledger, mut import) = arrive_on(&data, Device::cuda(0), on);
        import.settle().unwrap();
        (Row::<LeaseMut<i16>>::from_import(import).unwrap(), data, context)
    };
    beside_a_capture(kept, |(row, ..), _| {
        assert_eq!(row.to_cai().unwrap_err().kind(), ErrorKind::StreamCapture);
    });
}

#[test]
fn new_memory() {
    beside_a_capture(
        |_| (),
        |(), other| {
            for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed] {
                drop(CudaBuffer::zeroed(kind, 0, DType::I16, LEN).unwrap());
            }
            drop(CudaBuffer::zeroed_on(other, 0, DType::I16, LEN).unwrap());
        },
    );
}

#[test]
fn copies() {
    let shared = |on| Arc::new(block(on));
    beside_a_capture(shared, |row: &Arc<Row<CudaBuffer>>, other| {
        let tensor = row.clone().share_dlpack_as::<Versioned>(other).unwrap();
        Row::<CudaBuffer>::from_dlpack(tensor).unwrap();
    });
    // By way of pinned memory, in pieces.
    let (rows, columns) = (2048, 2048);
    beside_a_capture(
        |_| (),
        |(), _| {
            let host = Matrix { data: vec![1.0_f32; rows * columns], rows, columns };
            Matrix::<CudaBuffer>::from_dlpack(host.into_dlpack().unwrap()).unwrap();
        },
    );
}

#[test]
fn scopes_and_drops() {
    let both = |on| RefCell::new(Some((import(on), block(on))));
    beside_a_capture(both, |both, other| {
        let (mut a, b) = both.take().unwrap();
        let scope = LaunchScope::on(&other);
        scope.write_any(&mut a).unwrap();
        scope.read_any(&b).unwrap();
        scope.finish().unwrap();
        drop((a, b));
        cuda::poll_releases();
    });
}

/// The host waits for managed memory at the end of a scope.
#[test]
fn the_host_waits_for_a_scope() {
    let managed = |_| {
        let data = CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::I16, LEN).unwrap();
        RefCell::new(Some(Row { data, len: LEN }.into_dlpack().unwrap()))
    };
    beside_a_capture(managed, |tensor, other| {
        let mut row: Row<LeaseMut<i16>> = Row::from_dlpack(tensor.take().unwrap()).unwrap();
        let scope = LaunchScope::on(&other);
        let _ = scope.write_any(&mut row);
        let _ = scope.finish();
    });
}
