//! Forked children of either process.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::{CudaArray, ErrorKind, Lease};
use interop_ipc::{FromParcel, ShareParcel, open};

use crate::arrays::{Count, Image, LONG};
use crate::other;

mod c {
    use core::ffi::{c_int, c_uint};

    unsafe extern "C" {
        pub(super) fn fork() -> c_int;
        pub(super) fn alarm(seconds: c_uint) -> c_uint;
        pub(super) fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
        pub(super) fn _exit(status: c_int) -> !;
    }
}

/// Starts a child that runs a function, and returns its number.
fn start(run: impl FnOnce()) -> c_int {
    // SAFETY: the child runs only the function, and exits.
    let child = unsafe { c::fork() };
    assert!(child >= 0, "a child");
    if child == 0 {
        // SAFETY: the function has no preconditions. The alarm ends a child that would wait for ever.
        unsafe { c::alarm(30) };
        let done = catch_unwind(AssertUnwindSafe(run));
        // SAFETY: the function has no preconditions.
        unsafe { c::_exit(c_int::from(done.is_err())) };
    }
    child
}

/// Starts a child that is not waited for.
pub(crate) fn fork(run: impl FnOnce()) {
    start(run);
}

/// Runs a function in a child. Returns whether it ended without a panic.
fn in_a_child(run: impl FnOnce()) -> bool {
    let child = start(run);
    let mut status = -1;
    // SAFETY: `status` is valid for a write.
    let ended = unsafe { c::waitpid(child, &raw mut status, 0) };
    ended == child && status == 0
}

#[test]
fn a_child_gives_nothing_back_and_opens_its_own() {
    let mut other = other::start();
    let [first, second, third] = [other.share(), other.share(), other.share()];
    let image = Image::<Lease<f32>>::from_parcel(&first).expect("offered");
    let in_the_child = |image: Image<Lease<f32>>| {
        assert_eq!(image.to_vec::<f32>().expect("mapped")[..3], [0.0, 1.0, 2.0]);
        drop(image);
        let own = Image::<Lease<f32>>::from_parcel(&second).expect("a connection of its own");
        assert_eq!(own.to_vec::<f32>().expect("mapped")[..3], [0.0, 1.0, 2.0]);
    };
    // SAFETY: the child drops its copy of the struct, which is another process's; this one keeps its own.
    let copy = unsafe { std::ptr::read(&raw const image) };
    let mut copy = Some(std::mem::ManuallyDrop::new(copy));
    assert!(in_a_child(|| in_the_child(std::mem::ManuallyDrop::into_inner(copy.take().expect("one copy")))));
    // The office would have ended the connection of a visitor that gives back what it has not.
    assert_eq!(image.to_vec::<f32>().expect("still open")[..3], [0.0, 1.0, 2.0]);
    drop(image);
    drop(open(&third).expect("the connection of the parent works"));
}

#[test]
fn a_child_has_an_office_of_its_own() {
    let count = Count::default();
    let image = std::sync::Arc::new(count.image());
    let parcel = image.share_parcel(1, LONG).expect("shared memory");
    let (bytes, mut parcel) = (parcel.bytes().to_vec(), Some(parcel));
    let in_the_child = || {
        // The memory is shared with the parent, and so can be offered by both.
        let own = image.share_parcel(1, LONG).expect("a block of the parent");
        drop(open(own.bytes()).expect("the office of the child answers"));
        own.take_back(LONG).expect("given back");
        let Err(refused) = parcel.take().expect("one copy").take_back(LONG) else { panic!("another's") };
        assert_eq!(refused.error.kind(), ErrorKind::Gone, "the offer of the parent is not the child's");
    };
    assert!(in_a_child(in_the_child));
    drop(open(&bytes).expect("the offer of the parent stays"));
}
