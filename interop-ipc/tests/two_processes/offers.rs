//! How long and how often an array can be opened.

use std::sync::Arc;
use std::time::Duration;

use interop_core::{CudaArray, ErrorKind};
use interop_ipc::{ShareParcel, leases, open};

use crate::arrays::{Count, LONG, wait_for};
use crate::other::Other;

#[test]
fn each_opening_is_counted() {
    let (count, mut other) = (Count::default(), Other::start());
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
    drop(second);
    assert!(!count.is_zero(), "one of two is open");
    other.ask("drop");
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
    count.expect_dropped();
}

#[test]
fn what_is_open_outlives_the_offer() {
    let count = Count::default();
    let parcel = count.image().into_parcel(Duration::from_millis(200)).expect("shared memory");
    let opened = open(parcel.bytes()).expect("in time");
    std::thread::sleep(Duration::from_millis(250));
    assert!(!count.is_zero(), "it is open");
    drop(opened);
    count.expect_dropped();
}

#[test]
fn a_producer_that_takes_an_array_back_can_write_again() {
    let (count, mut other) = (Count::default(), Other::start());
    let mut image = Arc::new(count.image());
    let parcel = image.share_parcel(5, LONG).expect("shared memory");
    assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    let error = parcel.take_back(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyBorrowed, "{error}");
    assert!(Arc::get_mut(&mut image).is_none(), "it is open");
    let refused = other.open("open", parcel.bytes());
    assert!(refused.starts_with("Gone: "), "it is not offered any more: {refused}");
    let number = i32::try_from(other.number()).expect("a process");
    let is_there = || leases().expect("an office").iter().any(|lease| lease.process == number);
    assert!(is_there(), "the other process is listed");
    other.ask("drop");
    parcel.take_back(LONG).expect("nobody has it open");
    let image = Arc::get_mut(&mut image).expect("the only handle");
    image.map_inplace(|value: f32| value + 1.0).expect("writable");
    wait_for("the lease is forgotten", || !is_there());
}

#[test]
fn no_openings_are_refused() {
    let error = Arc::new(Count::default().image()).share_parcel(0, LONG).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "`opens`: found 0, allowed: 1 or more");
}

#[test]
fn an_owner_that_panics_leaves_the_office_at_work() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
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
    let parcel = row.into_parcel(Duration::from_millis(10)).expect("shared memory");
    parcel.take_back(LONG).expect("nobody has it open");
    let count = Count::default();
    drop(open(count.image().into_parcel(LONG).expect("shared memory").bytes()).expect("the office answers"));
    count.expect_dropped();
}
