//! Devices, versions, error texts and symbol lookup.

use std::ffi::CStr;
use std::ptr;

use crate::driver::*;
use crate::fixture::{Room, alone};

#[test]
fn there_are_two_devices() {
    let _room = Room::new();
    assert_eq!(get(cuDeviceGetCount), 2);
    assert_eq!(get(|out| cuDeviceGet(out, 1)), 1);
    for wrong in [-1, 2] {
        assert_eq!(cuDeviceGet(&mut 0, wrong), code::INVALID_DEVICE);
    }
    let uuids = [0, 1].map(|device| get(|out: &mut [u8; 16]| cuDeviceGetUuid(out, device)));
    assert_ne!(uuids[0], uuids[1]);
}

#[test]
fn a_variable_sets_the_number_of_devices() {
    let inside = || {
        ok(cuInit(0));
        assert_eq!(get(cuDeviceGetCount), 5);
    };
    let name = "devices::a_variable_sets_the_number_of_devices";
    let Some(output) = alone(name, &[("SIMULATED_CUDA_DEVICES", "5")], inside) else { return };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_variable_takes_the_numbers_of_streams_away() {
    let inside = || {
        let room = Room::new();
        let (stream, number) = (room.stream(), room.pinned(8).0);
        assert_eq!(get(|out| cuDeviceGetAttribute(out, 122, 0)), 0);
        assert_eq!(cuStreamWaitValue64_v2(stream, number, 0, 0), code::NOT_SUPPORTED);
        assert_eq!(cuStreamWriteValue64_v2(stream, number, 1, 0), code::NOT_SUPPORTED);
    };
    let name = "devices::a_variable_takes_the_numbers_of_streams_away";
    let Some(output) = alone(name, &[("SIMULATED_CUDA_NUMBERS", "0")], inside) else { return };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn nothing_works_before_the_start() {
    let inside = || {
        assert_eq!(cuDeviceGetCount(&mut 0), code::NOT_INITIALIZED);
        assert_eq!(get(cuDriverGetVersion), 12020);
        ok(cuInit(0));
        ok(cuDeviceGetCount(&mut 0));
    };
    let Some(output) = alone("devices::nothing_works_before_the_start", &[], inside) else { return };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_name_is_cut_to_the_room_and_ends_with_a_zero() {
    let _room = Room::new();
    let mut name = [0xff_u8; 16];
    ok(cuDeviceGetName(name.as_mut_ptr(), 10, 0));
    assert_eq!(&name[..11], b"Simulated\0\xff");
}

#[test]
fn attributes_are_those_of_a_device_that_can_all_that_is_simulated() {
    let _room = Room::new();
    // Threads per block, unified addressing, managed memory, pools, and an attribute that is not simulated.
    for (attribute, value) in [(1, 1024), (41, 1), (83, 1), (115, 1), (122, 1), (88, 0)] {
        assert_eq!(get(|out| cuDeviceGetAttribute(out, attribute, 0)), value, "{attribute}");
    }
    assert_eq!(cuDeviceGetAttribute(&mut 0, 9999, 0), code::INVALID_VALUE);
}

#[test]
fn codes_have_the_names_of_the_driver() {
    let mut name = ptr::null();
    ok(cuGetErrorName(code::DESTROYED, &mut name));
    // SAFETY: the driver's names are texts that live as long as the process.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_CONTEXT_IS_DESTROYED");
    assert_eq!(cuGetErrorName(-5, &mut name), code::INVALID_VALUE);
}

#[test]
fn functions_are_found_by_their_documented_names() {
    let _room = Room::new();
    let find = |name: &CStr| {
        let (mut found, mut status) = (ptr::null_mut(), 7);
        let answer = cuGetProcAddress_v2(name.as_ptr(), &mut found, 12000, 0, &mut status);
        (answer, found, status)
    };
    // SAFETY: only the address is used.
    let expected: extern "C" fn() = unsafe { simulated_cuda::sim().function("cuMemAlloc_v2") };
    assert_eq!(find(c"cuMemAlloc"), (code::OK, expected as *mut _, 0));
    assert_eq!(find(c"cuNoSuchFunction"), (code::NOT_FOUND, ptr::null_mut(), 1));
}

#[test]
fn what_is_not_simulated_says_so() {
    let _room = Room::new();
    assert_eq!(cuArrayDestroy(0), code::NOT_SUPPORTED);
}
