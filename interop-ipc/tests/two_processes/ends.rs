//! Either process ends at each step, and nothing is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interop_core::{CudaArray, ErrorKind, Lease};
use interop_ipc::{FromParcel, ShareParcel, leases, open};

use crate::arrays::{Count, Image, LONG, wait_for};
use crate::other;

/// Nobody has an array of this process open through another process with this number.
pub(crate) fn expect_no_lease(process: u32) {
    let process = i32::try_from(process).expect("a process");
    wait_for("no lease is left", || {
        leases().expect("an office").iter().all(|lease| lease.process != process)
    });
}

#[test]
pub(crate) fn a_consumer_is_killed_at_each_step() {
    for step in ["started", "opened", "opened, with a child", "written", "given back"] {
        let (count, mut other) = (Count::default(), other::start());
        // The bytes alone: without a parcel, the image is dropped as soon as nobody has it open.
        let bytes = match step {
            "written" => count.image().into_parcel(LONG).expect("shared memory").bytes().to_vec(),
            _ => Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory").bytes().to_vec(),
        };
        match step {
            "started" => {}
            "written" => assert_eq!(other.open("write", &bytes), "30 elements, [0.5, 1.5, 2.5]"),
            _ => assert_eq!(other.open("open", &bytes), "30 elements, [0.0, 1.0, 2.0]"),
        }
        match step {
            // The child keeps the socket open.
            "opened, with a child" => other.tell("fork"),
            "given back" => other.tell("drop"),
            _ => {}
        }
        other.kill();
        expect_no_lease(other.number());
        if step == "started" {
            let opened = open(&bytes).expect("the offer stays for others");
            drop(opened);
        }
        count.expect_dropped();
    }
}

#[test]
pub(crate) fn a_producer_is_killed_and_what_is_open_stays() {
    let mut other = other::start();
    let [first, second] = [other.share(), other.share()];
    let image = Image::<Lease<f32>>::from_parcel(&first).expect("offered");
    other.kill();
    assert_eq!(image.to_vec::<f32>().expect("mapped")[..3], [0.0, 1.0, 2.0]);
    for bytes in [&second, &first] {
        let error = open(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    }
    drop(image);
}

#[test]
pub(crate) fn a_producer_with_a_child_is_killed() {
    let mut other = other::start();
    let [first, second] = [other.share(), other.share()];
    // The child has the socket at which the office listened, and never answers.
    other.tell("fork");
    let image = Image::<Lease<f32>>::from_parcel(&first).expect("offered");
    other.kill();
    let error = open(&second).unwrap_err();
    assert!(error.kind() == ErrorKind::Gone && error.to_string().contains("has ended"), "{error}");
    drop(image);
    let error = open(&second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "nor without a connection: {error}");
}

#[test]
pub(crate) fn a_producer_that_ends_well_leaves_its_arrays_open() {
    let mut other = other::start();
    let image = Image::<Lease<f32>>::from_parcel(&other.share()).expect("offered");
    drop(other);
    assert_eq!(image.to_vec::<f32>().expect("mapped")[..3], [0.0, 1.0, 2.0]);
}

/// The descriptors and mappings of this process that are of this crate.
pub(crate) fn of_this_crate() -> (usize, usize) {
    let links = std::fs::read_dir("/proc/self/fd").expect("the descriptors").flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let files = links.filter(|link| link.to_string_lossy().contains("memfd:interop-ipc")).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    (files, maps.lines().filter(|line| line.contains("memfd:interop-ipc")).count())
}

#[test]
fn a_thousand_arrays_leave_nothing() {
    // Alone in a process: other tests make blocks, too. It compares its descriptors and mappings.
    let mut other = other::start();
    other.tell("loop 1000");
}

/// Opens and closes arrays of an own office. Returns whether all was given back.
pub(crate) fn open_many(times: usize) -> bool {
    let round = || {
        let count = Count::default();
        let parcel = Arc::new(count.image()).share_parcel(2, LONG).expect("shared memory");
        let opened = open(parcel.bytes()).expect("offered");
        drop((opened, open(parcel.bytes()).expect("offered")));
        parcel.take_back(LONG).expect("given back");
        count.expect_dropped();
    };
    round();
    // Blocks stay mapped for a while.
    std::thread::sleep(Duration::from_millis(300));
    let before = of_this_crate();
    (0..times).for_each(|_| round());
    let start = Instant::now();
    while of_this_crate() > before && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
    of_this_crate() <= before
}
