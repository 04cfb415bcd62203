//! R98, bug 184: no panic of an owner crosses into C; the process continues, and the struct is freed.
#![expect(unsafe_code, reason = "deleters are called as C code calls them")]

use std::panic;

use interop_core::protocols::RawDescriptor;
use interop_core::protocols::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, Legacy, Ownership, Versioned, export,
};
use interop_core::storage::{MemoryRegion, Owner};
use interop_core::{
    CudaArray, Device, FromArray, HostVec, Import, Lease, SharedBuffer, Storage, live_exports,
};

use crate::support::allocator::watch;
use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted, Panicking, PanickingTwice, elsewhere};
use crate::support::foreign_tensors::Form;
use crate::support::run_alone;

/// Exports with this owner, and releases the struct.
fn released<A: Form, O: Send + 'static>(owner: O) {
    let info = RawDescriptor::new(0x1000, Device::CPU, &[2, 3]).validate().unwrap();
    let ((), tally) = watch(|| {
        // SAFETY: nothing is read at the address.
        let tensor = unsafe { export::<A, O>(&info, owner, Ownership::Owned) }.unwrap();
        drop(tensor);
    });
    assert_eq!((tally.made - tally.freed, tally.mismatched), (0, 0), "the block is freed all the same");
    assert!(tally.made > 0);
}

/// An owner that panics, and one whose panic payload panics when it is dropped.
#[test]
fn a_panic_in_a_drop_stays_inside() {
    let count = Count::default();
    released::<Versioned, _>(Panicking(count.clone()));
    released::<Legacy, _>(Panicking(count.clone()));
    released::<Versioned, _>(PanickingTwice(count.clone()));
    released::<Legacy, _>(PanickingTwice(count.clone()));
    assert_eq!(count.get(), 4, "each was dropped once");
}

/// The other fields of an owner that panics are dropped as well.
#[test]
fn the_other_parts_of_the_owner_are_dropped() {
    let (panicked, dropped) = (Count::default(), Count::default());
    let parts =
        (Counted(dropped.clone(), 1_u8), Panicking(panicked.clone()), Counted(dropped.clone(), [0_u64; 9]));
    released::<Versioned, _>(parts);
    assert_eq!((panicked.get(), dropped.get()), (1, 2));
}

/// Calls the function in the struct on another thread, as a C consumer does.
#[test]
fn a_deleter_that_is_called_from_c_returns() {
    let count = Count::default();
    let info = RawDescriptor::new(0x1000, Device::CPU, &[2, 3]).validate().unwrap();
    // SAFETY: nothing is read at the address.
    let versioned =
        unsafe { export::<Versioned, _>(&info, Panicking(count.clone()), Ownership::Owned) }.unwrap();
    // SAFETY: as above.
    let legacy = unsafe { export::<Legacy, _>(&info, Panicking(count.clone()), Ownership::Owned) }.unwrap();
    let addresses = (versioned.into_raw().expose_provenance(), legacy.into_raw().expose_provenance());
    let (returned, _) = elsewhere(move || {
        let versioned = std::ptr::with_exposed_provenance_mut::<DLManagedTensorVersioned>(addresses.0);
        let legacy = std::ptr::with_exposed_provenance_mut::<DLManagedTensor>(addresses.1);
        // SAFETY: the struct is live.
        let deleter = unsafe { (*versioned).deleter }.unwrap();
        // SAFETY: this is the struct's own deleter, called once.
        unsafe { deleter(versioned) };
        // SAFETY: the struct is live.
        let deleter = unsafe { (*legacy).deleter }.unwrap();
        // SAFETY: this is the struct's own deleter, called once.
        unsafe { deleter(legacy) };
        true
    });
    assert_eq!((returned, count.get()), (true, 2));
}

/// A storage that panics when it is dropped, behind each kind of import.
#[derive(Debug)]
struct Grenade(HostVec<i16>, Count);

// SAFETY: forwards to the inner vector.
unsafe impl Storage for Grenade {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        self.0.memory()
    }
}

impl Drop for Grenade {
    fn drop(&mut self) {
        self.1.add();
        panic::resume_unwind(Box::new(()));
    }
}

/// Importers are not affected: the deleter returns normally, whatever the import became.
#[test]
fn importers_do_not_notice() {
    let count = Count::default();
    let send = || {
        let array = Array::new(Grenade(HostVec::from([1, 2, 3]), count.clone()), &[3]);
        array.into_dlpack().unwrap()
    };
    drop(Import::from_dlpack(send()).unwrap());
    assert_eq!(Array::<Vec<i16>>::from_dlpack(send()).unwrap().data, [1, 2, 3]);
    drop(Array::<Lease<f32>>::from_dlpack(send()).unwrap_err());
    drop(Array::<SharedBuffer>::from_dlpack(send()).unwrap());
    let lease: Array<Lease<i16>> = Array::from_dlpack(send()).unwrap();
    elsewhere(move || drop(lease));
    assert_eq!(count.get(), 5);
}

/// The panic of a Rust owner is visible to Rust code: our own `Owner` passes it on and drops once.
#[test]
fn a_rust_owner_panics_as_any_value() {
    let count = Count::default();
    let owner = Owner::new(Panicking(count.clone()));
    assert!(panic::catch_unwind(panic::AssertUnwindSafe(move || drop(owner))).is_err());
    assert_eq!(count.get(), 1);
}

/// If an owner panics while another panic is unwinding, the first continues and the process does not abort.
#[test]
fn a_panic_under_way_goes_on() {
    let count = Count::default();
    let info = RawDescriptor::new(0x1000, Device::CPU, &[2]).validate().unwrap();
    // SAFETY: nothing is read at the address.
    let tensor =
        unsafe { export::<Versioned, _>(&info, Panicking(count.clone()), Ownership::Owned) }.unwrap();
    let caught = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        let _dropped_on_the_way = tensor;
        panic::resume_unwind(Box::new("first"));
    }));
    assert_eq!((caught.unwrap_err().downcast_ref(), count.get()), (Some(&"first"), 1));
}

/// The export that panicked is not counted as live.
#[test]
fn the_counter_is_right_after_a_panic() {
    run_alone("dlpack::panics::the_counter_is_right_after_a_panic", || {
        released::<Versioned, _>(Panicking(Count::default()));
        assert_eq!(live_exports(), 0);
    });
}
