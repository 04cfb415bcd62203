//! Arrays that arrive from a producer that counts its releases.

use std::thread;
use std::time::{Duration, Instant};

use interop_core::cuda::{pending_releases, poll_releases};
use interop_core::dlpack::{ManagedTensor, Versioned};
use interop_core::{Device, Import};

use crate::cuda_program::Bytes;
use crate::support::foreign_tensors::{Claims, Ledger};
use crate::support::signed;

/// All of `data` as a tensor of `int16` on `device`, which may be a lie.
pub(crate) fn tell(data: &Bytes, device: Device) -> (Ledger, ManagedTensor<Versioned>) {
    claim(data.at(), data.count / 2, device).send()
}

/// As many elements at an address.
pub(crate) fn claim(address: usize, count: usize, device: Device) -> Claims {
    Claims { device, ..Claims::at(address, &[signed(count)]) }
}

/// The same, imported.
#[track_caller]
pub(crate) fn arrive(data: &Bytes, device: Device) -> (Ledger, Import) {
    let (ledger, tensor) = tell(data, device);
    (ledger, Import::from_dlpack(tensor).expect("the claims are true"))
}

/// Waits until another thread has released the array, and nothing is pending any more.
#[track_caller]
pub(crate) fn await_release(ledger: &Ledger) {
    let end = Instant::now() + Duration::from_secs(30);
    // It counts until its drop is over, which the ledger is told of before.
    while ledger.released() == 0 || pending_releases() != 0 {
        assert!(Instant::now() < end, "nobody releases");
        thread::sleep(Duration::from_millis(1));
    }
    assert_ne!(ledger.thread(), Some(thread::current().id()));
}

/// Looks often enough for the driver to say that idle streams are idle, and ends no spin. How many releases still wait.
pub(crate) fn drained() -> usize {
    let (mut left, mut in_vain) = (poll_releases(), 0);
    // A look asks about one event of a context, which is done after a few questions.
    while left != 0 && in_vain < 512 {
        let before = std::mem::replace(&mut left, poll_releases());
        in_vain = if left < before { 0 } else { in_vain + 1 };
    }
    left
}
