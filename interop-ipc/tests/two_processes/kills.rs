//! Processes that are killed at random moments.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use interop_core::{CudaArray, ErrorKind, Lease};
use interop_ipc::{FromParcel, Parcel, ShareParcel, open};

use crate::arrays::{Count, Image, LONG, wait_for};
use crate::ends::{expect_no_lease, of_this_crate};
use crate::hostile_visitor::{below, numbers};
use crate::other;
use crate::other_process::hex;

/// Some time of a few milliseconds, in which hundreds of requests are made.
fn sometime(next: &mut impl FnMut() -> u64) -> Duration {
    Duration::from_micros(below(next, 5000) as u64)
}

/// Kills a consumer that has some images open, while it does something with others.
fn kill_consumer(next: &mut impl FnMut() -> u64) {
    let (mut other, count) = (other::start(), Count::default());
    let share = |opens| Arc::new(count.image()).share_parcel(opens, LONG * 60).expect("shared memory");
    let mut parcels: Vec<Parcel<Arc<Image>>> = Vec::new();
    for _ in 0..below(next, 4) {
        let parcel = share(1);
        assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
        parcels.push(parcel);
    }
    // Most children end with the test only.
    if below(next, 50) == 0 {
        other.tell("fork");
    }
    let given = count.image().into_parcel(LONG * 60).expect("shared memory");
    match below(next, 4) {
        0 => other.begin(&format!("write {}", hex(given.bytes()))),
        1 => other.begin("drop"),
        how => {
            parcels.push(share(u32::MAX));
            let bytes = hex(parcels.last().expect("an offer").bytes());
            other.begin(&format!("{} {bytes}", ["open", "spin"][how - 2]));
        }
    }
    thread::sleep(sometime(next));
    other.kill();
    expect_no_lease(other.number());
    drop(given.take_back(LONG).expect("the consumer has ended"));
    for parcel in parcels {
        drop(parcel.take_back(LONG).expect("the consumer has ended"));
    }
    count.expect_dropped();
}

/// Kills a producer while this process opens its images.
fn kill_producer(next: &mut impl FnMut() -> u64) {
    let mut other = other::start();
    let opened: Vec<_> = (0..below(next, 4))
        .map(|_| Image::<Lease<f32>>::from_parcel(&other.share()).expect("offered"))
        .collect();
    let (bytes, time) = (other.share_often(), sometime(next));
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
    for image in opened {
        assert_eq!(image.to_vec::<f32>().expect("mapped")[..3], [0.0, 1.0, 2.0]);
    }
}

/// Kills processes for a time, and returns how many consumers and producers, and the descriptors and mappings of this crate before and
/// after that.
pub(crate) fn kill_at_random(time: Duration) -> String {
    let (mut next, mut kills) = (numbers(), [0, 0]);
    let mut one = || {
        let which = usize::from(below(&mut next, 3) == 0);
        if which == 0 {
            kill_consumer(&mut next);
        } else {
            kill_producer(&mut next);
        }
        kills[which] += 1;
    };
    one();
    // Blocks stay mapped for a while.
    thread::sleep(Duration::from_millis(300));
    let (before, start) = (of_this_crate(), Instant::now());
    while start.elapsed() < time {
        one();
    }
    wait_for("nothing is left", || of_this_crate() <= before);
    format!("{} consumers and {} producers, {before:?} to {:?}", kills[0], kills[1], of_this_crate())
}

/// Alone in a process, because other tests make blocks, too.
pub(crate) fn kill_in_a_process(seconds: u64) -> String {
    let answer = other::start().ask(&format!("kills {seconds}"));
    assert!(answer.contains(" consumers and "), "{answer}");
    answer
}

#[test]
fn processes_killed_at_random_leave_nothing() {
    kill_in_a_process(2);
}
