//! A driver that only returns errors: at the end of the program, before it is initialized, after a fatal error, and
//! for an unknown reason.

use interop_core::cuda::{
    CudaBuffer, HoldReleases, MemoryKind, device_address, finish_releases, pending_releases,
    pointer_attributes, poll_releases, stream_synchronize, stream_wait,
};
use interop_core::{
    CudaArray, DType, Device, Error, ErrorKind, FromArray, HostVec, Import, LeaseMut, StreamHandle,
    live_allocations, live_exports,
};

use crate::counted_imports::{arrive, tell};
use crate::cuda_program::Place;
use crate::exclusive_driver::started;
use crate::order_settings::Releases;
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::Ledger;
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);
/// `CUDA_ERROR_UNKNOWN`, which does not say whether work is still running.
const UNKNOWN: i32 = 999;

/// Operations that must call the driver and therefore fail.
fn asking(stream: StreamHandle, address: usize) -> [(&'static str, Option<Error>); 6] {
    let buffer = || CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 8);
    [
        ("order", stream_wait(StreamHandle::LegacyDefault, stream, GPU).err()),
        (
            "order of default streams",
            stream_wait(StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault, GPU).err(),
        ),
        ("wait", stream_synchronize(stream, Device::CUDA_HOST).err()),
        ("pointer_facts", pointer_attributes(address).err()),
        ("device_address", device_address(address).err()),
        ("CudaBuffer", buffer().err()),
    ]
}

/// Runs with arrays in each state when the driver fails: deferred releases with and without a recorded event,
/// imports, exports, and memory of each kind.
fn ends_with(code: i32) {
    let sim = started();
    let place = Place::primary(0);
    let (device, pinned) = (place.bytes(0, 64), place.pinned(0, 64));
    let arriving = || [arrive(&device, GPU), arrive(&pinned, Device::CUDA_HOST)];
    let stream = place.non_blocking();
    stream_wait(StreamHandle::LegacyDefault, stream.handle(), GPU).unwrap();
    let mut ledgers: Vec<Ledger> = Vec::new();
    let mut split = |all: [(Ledger, Import); 2]| {
        all.map(|(ledger, import)| {
            ledgers.push(ledger);
            import
        })
    };
    let (parked, undecided, kept, moved) =
        (split(arriving()), split(arriving()), split(arriving()), split(arriving()));
    let [exported, pinned_too] = split(arriving());
    let exported = Array::<LeaseMut<i16>>::from_import(exported).unwrap().into_dlpack().unwrap();
    let buffers = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed]
        .map(|kind| CudaBuffer::zeroed(kind, 0, DType::U8, 8).unwrap());
    let spin = stream.spin();
    drop(parked);
    let held = HoldReleases::new();
    drop(undecided);
    drop(held);
    assert!(sim.is_pending(spin) && pending_releases() == 4);

    sim.fail_all(code);
    for (name, error) in asking(stream.handle(), device.at()) {
        let error = error.unwrap_or_else(|| panic!("{name} goes well"));
        assert_eq!(error.kind(), ErrorKind::Driver, "{name}: {error}");
        assert!(error.found().contains(&format!("({code})")), "{name}: {error}");
    }
    let (refused, tensor) = tell(&device, GPU);
    let error = Import::from_dlpack(tensor).unwrap_err().error;
    assert_eq!((error.kind(), refused.released()), (ErrorKind::Driver, 1), "{error}");
    let host = Array::new(HostVec::<i16>::zeroed(4), &[4]).into_dlpack().unwrap();
    drop(Import::from_dlpack(host).unwrap());
    drop((kept, exported, buffers));
    elsewhere(move || drop(moved));
    drop(pinned_too);
    poll_releases();
    let left = finish_releases();
    if code == UNKNOWN {
        assert!(left > 0 && ledgers.iter().all(|ledger| ledger.released() == 0), "{left}");
        sim.fail_all(0);
        sim.run_all();
        while finish_releases() != 0 {}
    } else {
        assert_eq!(left, 0);
    }
    for (at, ledger) in ledgers.iter().enumerate() {
        assert_eq!(ledger.released(), 1, "array {at} after {code}");
    }
    assert_eq!((pending_releases(), live_exports(), live_allocations()), (0, 0, 0));
    sim.fail_all(0);
    sim.run_all();
    sim.assert_no_reports();
}

#[test]
fn at_the_end_of_the_program_everything_is_released_once() {
    run_alone("dead_driver::at_the_end_of_the_program_everything_is_released_once", || ends_with(4));
}

#[test]
fn where_the_driver_is_not_initialized_everything_is_released_once() {
    run_alone("dead_driver::where_the_driver_is_not_initialized_everything_is_released_once", || {
        ends_with(3);
    });
}

#[test]
fn after_an_error_that_ends_all_everything_is_released_once() {
    run_alone("dead_driver::after_an_error_that_ends_all_everything_is_released_once", || ends_with(226));
}

/// Where the program orders releases itself, nothing waits. All other releases wait until the driver answers again.
#[test]
fn an_error_that_says_nothing_releases_nothing() {
    run_alone("dead_driver::an_error_that_says_nothing_releases_nothing", || ends_with(UNKNOWN));
}

#[test]
fn without_order_everything_is_released_whatever_the_driver_answers() {
    run_alone("dead_driver::without_order_everything_is_released_whatever_the_driver_answers", || {
        let sim = started();
        let data = Place::primary(0).bytes(0, 64);
        Releases::Unordered.set();
        for code in [3, 4, 226, UNKNOWN] {
            let (ledger, import) = arrive(&data, GPU);
            sim.fail_all(code);
            drop(import);
            assert_eq!((ledger.released(), pending_releases()), (1, 0), "{code}");
            sim.fail_all(0);
        }
    });
}
