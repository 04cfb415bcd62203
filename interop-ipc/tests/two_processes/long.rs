//! What takes a minute: `cargo xtask test processes`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use interop_core::ErrorKind;
use interop_ipc::{ShareParcel, open};

use crate::arrays::{Count, LONG};
use crate::ends;
use crate::hostile_office::open_changed_messages;
use crate::hostile_visitor::{below, numbers};
use crate::other;

#[test]
#[ignore = "takes a minute"]
fn three_million_changed_messages() {
    open_changed_messages(3_000_000);
}

#[test]
#[ignore = "takes a minute"]
fn a_thousand_processes_killed_at_each_step() {
    for _ in 0..125 {
        ends::a_consumer_is_killed_at_each_step();
        ends::a_producer_is_killed_and_what_is_open_stays();
        ends::a_producer_with_a_child_is_killed();
        ends::a_producer_that_ends_well_leaves_its_arrays_open();
    }
}

/// Some time of a few milliseconds, in which hundreds of requests are made.
fn sometime(next: &mut impl FnMut() -> u64) -> Duration {
    Duration::from_micros(below(next, 5000) as u64)
}

#[test]
#[ignore = "takes a minute"]
fn consumers_killed_at_random() {
    let (count, mut next) = (Count::default(), numbers());
    let parcel = Arc::new(count.image()).share_parcel(u32::MAX, LONG * 60).expect("shared memory");
    for _ in 0..500 {
        let mut other = other::start();
        other.open("spin", parcel.bytes());
        thread::sleep(sometime(&mut next));
        other.kill();
        ends::expect_no_lease(other.number());
    }
    drop(parcel.take_back(LONG).expect("all have ended"));
    count.expect_dropped();
}

#[test]
#[ignore = "takes a minute"]
fn producers_killed_at_random() {
    let mut next = numbers();
    for _ in 0..500 {
        let mut other = other::start();
        let (bytes, time) = (other.share_often(), sometime(&mut next));
        let killer = thread::spawn(move || {
            thread::sleep(time);
            other.kill();
        });
        let error = loop {
            match open(&bytes) {
                Ok(import) => drop(import),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
        killer.join().expect("it was killed");
    }
}
