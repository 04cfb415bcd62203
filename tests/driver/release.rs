//! R150: memory is returned to its producer after the work that may use it has finished, and never before.

use std::any::Any;
use std::sync::Arc;

use interop_core::cuda::{
    CudaBuffer, HoldReleases, MemoryKind, finish_releases, pending_releases, poll_releases, stream_wait,
};
use interop_core::protocols::RawDescriptor;
use interop_core::protocols::dlpack::{Ownership, Versioned, export};
use interop_core::storage::Owner;
use interop_core::{CudaArray, DType, Device, FromArray, Import, Lease, LeaseMut, SharedBuffer};

use crate::counted_imports::{arrive, drained, poll_in_passing};
use crate::cuda_program::{LARGE, Place, current};
use crate::exclusive_driver::{Turn, first_gpu, turn};
use crate::order_settings::Releases;
use crate::support::allocator::{Tally, watch};
use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted, Panicking, elsewhere};
use crate::support::foreign_tensors::Ledger;

const GPU: Device = Device::cuda(0);

/// A use of an import.
type Way<R> = fn(Import) -> R;

/// Checks that a release waits for `spin` and then happens once.
#[track_caller]
fn assert_waits(turn: &Turn, ledger: &Ledger, place: Place, release: impl FnOnce()) {
    let spin = place.non_blocking().spin();
    let path = turn.no_waits();
    release();
    drop(path);
    assert_eq!((ledger.released(), pending_releases()), (0, 1), "released while the work is pending");
    assert_eq!((drained(), ledger.released()), (1, 0), "to look again changes nothing");
    assert!(turn.is_pending(spin));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

#[test]
fn an_import_waits_for_every_stream_of_its_context() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    assert_waits(&turn, &ledger, place, || drop(import));
}

/// A failed allocation would end the program inside a foreign library.
#[test]
#[expect(unsafe_code, reason = "memory that is described by hand")]
fn a_deleter_that_defers_its_release_allocates_nothing() {
    let (turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let deferred = || {
        let (info, count) = (RawDescriptor::new(data.at(), GPU, &[4]).validate().unwrap(), Count::default());
        let owner = Counted(count.clone(), [1_u64; 100]);
        // SAFETY: the test frees the memory later.
        let tensor = unsafe { export::<Versioned, _>(&info, owner, Ownership::Owned) }.unwrap();
        let spin = stream.spin();
        let ((), tally) = watch(|| drop(tensor));
        assert_eq!((count.get(), pending_releases()), (0, 1));
        turn.release(spin);
        assert_eq!((drained(), count.get()), (0, 1));
        tally
    };
    // The first one makes the lists of the queue.
    let first = deferred();
    assert_eq!(deferred(), Tally::default(), "after {first:?}");
}

#[test]
fn every_way_that_an_import_goes_waits() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let ways: [(&str, Way<()>); 6] = [
        ("taken apart", |import| drop(import.into_parts())),
        ("leased and looked at", |import| drop(Array::<Lease<i16>>::from_import(import).unwrap().info())),
        ("owner kept", |import| drop(Owner::from(Array::<LeaseMut<i16>>::from_import(import).unwrap().data))),
        ("shared and exported", |import| {
            let array = Arc::new(Array::<SharedBuffer>::from_import(import).unwrap());
            drop((array.share_dlpack().unwrap(), array));
        }),
        ("exported again", |import| {
            let array = Array::<LeaseMut<i16>>::from_import(import).unwrap();
            drop(array.into_dlpack().unwrap());
        }),
        ("refused", |import| drop(Array::<Lease<f64>>::from_import(import).unwrap_err())),
    ];
    for (name, way) in ways {
        let (ledger, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        way(import);
        assert_eq!((drained() > 0, ledger.released()), (true, 0), "{name}");
        turn.release(spin);
        // An export of an import waits for both.
        assert_eq!((drained(), ledger.released()), (0, 1), "{name}");
    }
}

#[test]
fn what_comes_next_releases_what_is_due() {
    let (turn, place) = first_gpu();
    let (data, large) = (place.bytes(0, 64), place.bytes(0, 2 * LARGE));
    let (one, two) = (place.non_blocking().handle(), place.non_blocking().handle());
    let exported = Arc::new(Array::new(interop_core::HostVec::<u8>::zeroed(1), &[1]));
    let next: [(&str, &dyn Fn()); 4] = [
        ("another hand-over", &poll_in_passing),
        ("an array that is handed over", &|| {
            let array = Array::<LeaseMut<i16>>::from_import(arrive(&data, GPU).1).unwrap();
            array.make_stream_wait(one).unwrap();
        }),
        ("another release", &|| drop(arrive(&large, GPU))),
        ("poll_releases", &|| {
            poll_releases();
        }),
    ];
    for (name, next) in next {
        let (ledger, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        drop(import);
        next();
        assert_eq!(ledger.released(), 0, "{name}");
        turn.release(spin);
        for _ in 0..64 {
            next();
        }
        assert_eq!(ledger.released(), 1, "{name}");
        drop(exported.share_dlpack());
        stream_wait(two, one, GPU).unwrap();
        assert_eq!(drained(), 0, "{name}");
    }
}

#[test]
fn to_finish_is_to_wait() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let all = [(); 5].map(|()| arrive(&data, GPU));
    let spin = place.non_blocking().spin();
    let ledgers = all.map(|(ledger, import)| {
        drop(import);
        ledger
    });
    assert_eq!((pending_releases(), drained()), (5, 5));
    assert_eq!(finish_releases(), 0);
    assert_eq!(ledgers.map(|ledger| ledger.released()), [1; 5]);
    assert!(!turn.is_pending(spin), "the host has waited for it");
}

/// Other code may know the address and may have queued work, so each storage is released after the work.
#[test]
fn every_storage_waits_for_the_work() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let ways: [(&str, Way<Box<dyn Any>>); 3] = [
        ("Lease", |import| Box::new(Array::<Lease<i16>>::from_import(import).unwrap())),
        ("LeaseMut", |import| Box::new(Array::<LeaseMut<i16>>::from_import(import).unwrap())),
        ("Shared", |import| Box::new(Array::<SharedBuffer>::from_import(import).unwrap())),
    ];
    for (name, way) in ways {
        let spin = place.non_blocking().spin();
        let (ledger, import) = arrive(&data, GPU);
        drop(way(import));
        assert_eq!((ledger.released(), pending_releases()), (0, 1), "{name}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1), "{name}");
    }
}

#[test]
fn work_that_is_queued_after_the_drop_is_not_waited_for() {
    let (turn, place) = first_gpu();
    let (data, early, late) = (place.bytes(0, LARGE), place.non_blocking(), place.non_blocking());
    let (ledger, import) = arrive(&data, GPU);
    let before = early.spin();
    drop(import);
    let after = late.spin();
    turn.release(before);
    assert_eq!((drained(), ledger.released(), turn.is_pending(after)), (0, 1, true));
    turn.release(after);
}

#[test]
fn work_of_another_device_is_not_waited_for_unless_the_policy_says_so() {
    let turn = turn();
    let (place, other) = (Place::primary(0), Place::primary(1));
    let data = place.bytes(0, 64);
    for (policy, waits) in [(Releases::AfterContext, 0), (Releases::AfterAllContexts, 1)] {
        policy.set();
        let (ledger, import) = arrive(&data, GPU);
        let spin = other.non_blocking().spin();
        drop(import);
        assert_eq!((drained(), ledger.released()), (waits, 1 - waits), "{policy:?}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1), "{policy:?}");
    }
}

/// The policy at the drop counts, not the policy when the event is recorded.
#[test]
fn a_release_comes_after_what_it_was_promised_when_it_was_dropped() {
    let turn = turn();
    let data = Place::primary(0).bytes(0, 64);
    for policy in [Releases::AfterContext, Releases::Unordered] {
        Releases::AfterAllContexts.set();
        let (ledger, import) = arrive(&data, GPU);
        let spin = Place::primary(1).non_blocking().spin();
        let held = HoldReleases::new();
        drop(import);
        policy.set();
        drop(held);
        assert_eq!((drained(), ledger.released()), (1, 0), "{policy:?}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1), "{policy:?}");
    }
}

#[test]
fn memory_that_all_devices_reach_waits_for_all_contexts_in_use() {
    let (turn, place) = first_gpu();
    for (data, device) in
        [(place.pinned(0, 64), Device::CUDA_HOST), (place.managed(0, 64), Device::CUDA_MANAGED)]
    {
        for busy in [0, 1] {
            let (ledger, import) = arrive(&data, device);
            assert_waits(&turn, &ledger, Place::primary(busy), || drop(import));
        }
    }
    // A context that a library created: the context of the memory is among those that the release waits for.
    let own = Place::foreign(0);
    {
        let data = own.pinned(0, 64);
        let (ledger, import) = arrive(&data, Device::CUDA_HOST);
        assert_waits(&turn, &ledger, own, || drop(import));
    }
    own.destroy();
}

#[test]
fn a_program_may_order_releases_itself() {
    let turn = turn();
    Releases::Unordered.set();
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    let spin = place.non_blocking().spin();
    turn.reset_calls();
    drop(import);
    assert_eq!((ledger.released(), turn.calls_of(["cuCtxRecordEvent", "cuEventQuery"])), (1, [0; 2]));
    turn.assert_no_host_wait();
    turn.release(spin);
    // A hold delays the recording of events. Here no event is needed.
    let (ledger, import) = arrive(&data, GPU);
    let held = HoldReleases::new();
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
    drop(held);
}

#[test]
fn pool_memory_is_fenced_like_all_other() {
    let (turn, place) = first_gpu();
    let data = place.pool(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    assert_waits(&turn, &ledger, place, || drop(import));
    // The current device of the thread does not matter: its work does not use the memory.
    let other = Place::primary(1);
    let (ledger, import) = other.with(|| arrive(&data, GPU));
    let spin = other.non_blocking().spin();
    drop(import);
    assert_eq!((drained(), ledger.released(), turn.is_pending(spin)), (0, 1, true));
    turn.release(spin);
}

/// Pool memory belongs to a device. Its work may run in a context that a library created and that is current at the
/// import or at the drop.
#[test]
fn pool_memory_is_fenced_in_the_context_that_is_current() {
    let turn = turn();
    let own = Place::foreign(0);
    {
        let data = own.pool(0, 64);
        for busy in [own, Place::primary(0)] {
            let (ledger, import) = own.with(|| arrive(&data, GPU));
            assert_waits(&turn, &ledger, busy, || drop(import));
        }
        let (ledger, import) = own.with(|| arrive(&data, GPU));
        let array = Array::<LeaseMut<i16>>::from_import(import).unwrap();
        let tensor = own.with(|| array.into_dlpack()).unwrap();
        let spin = own.non_blocking().spin();
        drop(tensor);
        assert_eq!((drained() > 0, ledger.released()), (true, 0));
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1));
        let buffer = CudaBuffer::zeroed(MemoryKind::Pool, 0, DType::U8, 64).unwrap();
        let spin = own.non_blocking().spin();
        own.with(|| drop(buffer));
        assert_eq!((drained(), turn.is_pending(spin)), (1, true));
        turn.release(spin);
        assert_eq!(drained(), 0);
    }
    own.destroy();
}

#[test]
fn memory_of_a_context_of_its_own_waits_there_and_nowhere_else() {
    let turn = turn();
    let own = Place::foreign(0);
    {
        let data = own.bytes(0, 64);
        let elsewhere = Place::primary(0).non_blocking().spin();
        let (ledger, import) = arrive(&data, GPU);
        assert_waits(&turn, &ledger, own, || drop(import));
        assert!(turn.is_pending(elsewhere));
        turn.release(elsewhere);
    }
    own.destroy();
}

#[test]
fn a_drop_on_a_thread_without_a_context_is_the_same() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    assert_waits(&turn, &ledger, place, || {
        elsewhere(move || {
            drop(import);
            assert_eq!(current(), None);
        });
    });
    let (ledger, import) = arrive(&data, GPU);
    assert_waits(&turn, &ledger, place, || {
        Place::primary(1).with(|| {
            drop(import);
            assert_eq!(current(), Some(Place::primary(1)));
        });
    });
}

#[test]
fn an_owner_that_panics_is_released_once_and_the_others_too() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    let (info, kept) = import.into_parts();
    let count = Count::default();
    let spin = place.non_blocking().spin();
    // SAFETY: `kept` keeps the memory alive.
    #[expect(unsafe_code, reason = "an import with an owner of its own")]
    let tensor = unsafe {
        interop_core::protocols::dlpack::export::<Versioned, _>(
            &info,
            Panicking(count.clone()),
            interop_core::protocols::dlpack::Ownership::Owned,
        )
    };
    drop(Import::from_dlpack(tensor.unwrap()).unwrap());
    drop(kept);
    assert_eq!((count.get(), ledger.released(), pending_releases()), (0, 0, 2));
    turn.release(spin);
    assert_eq!((drained(), count.get(), ledger.released()), (0, 1, 1));
}

/// An owner that holds imports: its drop re-enters the release code.
struct Chain {
    _first: Import,
    _rest: Option<Owner>,
}

#[test]
fn an_owner_that_drops_other_imports_does_not_deadlock() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (mut ledgers, mut rest) = (Vec::new(), None);
    for _ in 0..20 {
        let (ledger, import) = arrive(&data, GPU);
        ledgers.push(ledger);
        rest = Some(Owner::new(Chain { _first: import, _rest: rest }));
    }
    let spin = place.non_blocking().spin();
    drop(rest);
    assert_eq!(drained(), 20);
    turn.release(spin);
    assert_eq!((drained(), ledgers.iter().map(Ledger::released).sum::<usize>()), (0, 20));

    // The drop of a deferred owner defers another release.
    let (outer, import) = arrive(&data, GPU);
    let (inner, again) = arrive(&data, GPU);
    let (info, owner) = import.into_parts();
    let chain = Chain { _first: again, _rest: Some(owner) };
    #[expect(unsafe_code, reason = "an import with an owner of its own")]
    // SAFETY: the chain keeps the memory alive.
    let tensor = unsafe {
        interop_core::protocols::dlpack::export::<Versioned, _>(
            &info,
            chain,
            interop_core::protocols::dlpack::Ownership::Owned,
        )
    };
    let spin = place.non_blocking().spin();
    drop(tensor.unwrap());
    assert_eq!(drained(), 1);
    turn.release(spin);
    assert_eq!((drained(), inner.released(), outer.released()), (0, 1, 1));
}
