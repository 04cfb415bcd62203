//! How long and how often an array can be opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interop_core::{CudaArray, ErrorKind};
use interop_ipc::{ShareParcel, leases, open};

use crate::arrays::{Count, LONG, wait_for};
use crate::other;

#[test]
fn each_opening_is_counted() {
    let (count, mut other) = (Count::default(), other::start());
    let parcel = Arc::new(count.image()).share_parcel(2, LONG).expect("shared memory");
    assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    let second = open(parcel.bytes()).expect("the second of two");
    for _ in 0..3 {
        let refused = other.open("open", parcel.bytes());
        assert!(
            refused.starts_with("Gone: ") && refused.contains("as often as it may be"),
            "replayed: {refused}"
        );
        assert_eq!(open(parcel.bytes()).unwrap_err().kind(), ErrorKind::Gone);
    }
    drop((second, parcel));
    assert!(!count.is_zero(), "one of two is open");
    other.tell("drop");
    count.expect_dropped();
}

#[test]
fn an_offer_ends_after_its_time() {
    let count = Count::default();
    // A long one first: the thread must not sleep until that.
    let long = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let short = count.image().into_parcel(Duration::from_millis(30)).expect("shared memory");
    std::thread::sleep(Duration::from_millis(31));
    assert_eq!(open(short.bytes()).unwrap_err().kind(), ErrorKind::Gone);
    long.withdraw();
    drop((long, short));
    count.expect_dropped();
}

#[test]
fn what_is_open_outlives_the_offer() {
    let count = Count::default();
    let parcel = count.image().into_parcel(Duration::from_millis(200)).expect("shared memory");
    let opened = open(parcel.bytes()).expect("in time");
    std::thread::sleep(Duration::from_millis(250));
    drop(parcel);
    assert!(!count.is_zero(), "it is open");
    drop(opened);
    count.expect_dropped();
}

#[test]
fn a_producer_that_takes_an_array_back_can_write_again() {
    let (count, mut other) = (Count::default(), other::start());
    let parcel = Arc::new(count.image()).share_parcel(5, LONG).expect("shared memory");
    assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    let Err(refused) = parcel.take_back(Duration::from_millis(20)) else { panic!("it is open") };
    assert_eq!(refused.error.kind(), ErrorKind::AlreadyBorrowed, "{refused}");
    let parcel = *refused.value;
    let refused = other.open("open", parcel.bytes());
    assert!(refused.starts_with("Gone: "), "it is not offered any more: {refused}");
    let number = i32::try_from(other.number()).expect("a process");
    let is_there = || leases().expect("an office").iter().any(|lease| lease.process == number);
    assert!(is_there(), "the other process is listed");
    other.tell("drop");
    let mut image = parcel.take_back(LONG).expect("nobody has it open");
    let image = Arc::get_mut(&mut image).expect("the only handle");
    image.map_inplace(|value: f32| value + 1.0).expect("writable");
    wait_for("the lease is forgotten", || !is_there());
}

#[test]
fn an_image_that_was_given_away_comes_back_as_it_was_left() {
    let (count, mut other) = (Count::default(), other::start());
    let parcel = count.image().into_parcel(LONG).expect("shared memory");
    assert_eq!(other.open("write", parcel.bytes()), "30 elements, [0.5, 1.5, 2.5]");
    other.tell("drop");
    let image = parcel.take_back(LONG).expect("nobody has it open");
    assert_eq!(image.to_vec::<f32>().expect("shared memory")[..3], [0.5, 1.5, 2.5]);
    assert!(!count.is_zero(), "it was not dropped meanwhile");
}

#[test]
fn a_parcel_keeps_the_array_and_its_drop_ends_that() {
    let count = Count::default();
    let parcel = count.image().into_parcel(LONG).expect("shared memory");
    drop(open(parcel.bytes()).expect("offered"));
    assert!(!count.is_zero(), "the parcel could take it back");
    drop(parcel);
    count.expect_dropped();
}

#[test]
fn no_openings_are_refused() {
    let error = Arc::new(Count::default().image()).share_parcel(0, LONG).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "`opens`: found 0, allowed: 1 or more");
}

#[test]
fn an_owner_that_panics_leaves_the_office_at_work() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::SeqCst);
            panic!("the drop of an owner, which the test expects");
        }
    }
    #[derive(CudaArray)]
    #[cuda_array(shape = [len], export)]
    struct Row {
        #[cuda_array(data)]
        values: interop_ipc::SharedVec<u8>,
        len: usize,
        _panics: Panics,
    }
    let row = Row { values: interop_ipc::SharedVec::zeroed(1).expect("memory"), len: 1, _panics: Panics };
    // The thread of the office drops the row, because the parcel is dropped before it.
    drop(row.into_parcel(Duration::from_millis(10)).expect("shared memory"));
    wait_for("the row is dropped", || DROPPED.load(Ordering::SeqCst));
    let count = Count::default();
    drop(open(count.image().into_parcel(LONG).expect("shared memory").bytes()).expect("the office answers"));
    count.expect_dropped();
}
