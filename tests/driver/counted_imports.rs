//! Arrays from a producer that counts its releases.
#![expect(unsafe_code, reason = "states on which stream a caller works")]

use std::thread;
use std::time::{Duration, Instant};

use interop_core::cuda::{pending_releases, poll_releases};
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::storage::FromImport;
use interop_core::{CudaArray, Device, FromArray, Import, StreamHandle};

use crate::cuda_program::{Bytes, Stream};
use crate::support::arrays::{Array, Claimed};
use crate::support::foreign_tensors::{Claims, Ledger};
use crate::support::signed;

/// All of `data` as a tensor of `int16` on `device`, which may be wrong.
pub(crate) fn tell(data: &Bytes, device: Device) -> (Ledger, ManagedTensor<Versioned>) {
    claim(data.at(), data.count / 2, device).send()
}

/// The description of `count` elements at an address.
pub(crate) fn claim(address: usize, count: usize, device: Device) -> Claims {
    Claims { device, ..Claims::at(address, &[signed(count)]) }
}

/// Imports the tensor that [`tell`] makes.
#[track_caller]
pub(crate) fn arrive(data: &Bytes, device: Device) -> (Ledger, Import) {
    let (ledger, tensor) = tell(data, device);
    (ledger, Import::from_dlpack(tensor).expect("the claims are true"))
}

/// As [`arrive`], from a library that works on this stream.
#[track_caller]
pub(crate) fn arrive_on(data: &Bytes, device: Device, stream: Stream) -> (Ledger, Import) {
    let (ledger, import) = arrive(data, device);
    // SAFETY: the stream is live, and nothing uses the memory after the release but the tests, on the same stream.
    (ledger, unsafe { import.with_callers_stream(stream.handle()) })
}

/// Imports on a stream that the test orders itself.
pub(crate) trait ReadyOn {
    fn ready_on(self, stream: StreamHandle) -> Self;
}

impl ReadyOn for Import {
    fn ready_on(self, stream: StreamHandle) -> Self {
        // SAFETY: the tests have queued all work on this stream, or show what happens otherwise.
        unsafe { self.assume_ready_on(stream) }
    }
}

/// A struct without a `stream` field.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [len])]
pub(crate) struct Row<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) len: usize,
}

/// Imports memory that its library uses on this stream.
#[track_caller]
pub(crate) fn row<S: FromImport>(data: &Bytes, stream: Stream) -> (Ledger, Row<S>) {
    let (ledger, import) = arrive_on(data, Device::cuda(0), stream);
    (ledger, Row::from_import(import).expect("a row"))
}

/// Does what polls the deferred releases in passing: hands over an array, to a stream that needs not wait.
pub(crate) fn poll_in_passing() {
    let array = Array::new(Claimed::gpu::<u8>(1, 0), &[1]);
    array.make_stream_wait(StreamHandle::NothingPending).expect("nothing is pending");
}

/// Waits until another thread has released the array and no release is pending.
#[track_caller]
pub(crate) fn await_release(ledger: &Ledger) {
    let end = Instant::now() + Duration::from_secs(30);
    // A release is pending until its drop is over; the ledger counts it earlier.
    while ledger.released() == 0 || pending_releases() != 0 {
        assert!(Instant::now() < end, "nobody releases");
        thread::sleep(Duration::from_millis(1));
    }
    assert_ne!(ledger.thread(), Some(thread::current().id()));
}

/// Polls until idle streams are reported as idle, but ends no spin. Returns the number of releases that still wait.
pub(crate) fn drained() -> usize {
    let (mut left, mut in_vain) = (poll_releases(), 0);
    // A poll queries one event of a context, and a few queries suffice for each.
    while left != 0 && in_vain < 512 {
        let before = std::mem::replace(&mut left, poll_releases());
        in_vain = if left < before { 0 } else { in_vain + 1 };
    }
    left
}
