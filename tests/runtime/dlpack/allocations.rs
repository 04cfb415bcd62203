//! An export makes one allocation and an import none, and each is freed with the layout of its allocation (bugs 27,
//! 30, 34, 49).
#![expect(unsafe_code, reason = "facts are exported with owners that have nothing to do with them")]

use std::mem::{align_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interop_core::protocols::RawDescriptor;
use interop_core::protocols::dlpack::{Legacy, ManagedTensor, Ownership, Versioned, export};
use interop_core::storage::HostBuffer;
use interop_core::{
    CudaArray, Device, FromArray, HostVec, Import, Lease, LeaseMut, SharedBuffer, StreamHandle,
    live_allocations, live_exports,
};

use crate::support::allocator::{Tally, watch};
use crate::support::arrays::{Array, Matrix};
use crate::support::counted_owners::{Aligned, Count, Counted, elsewhere};
use crate::support::foreign_tensors::{Claims, Form, look};
use crate::support::run_alone;

const ONE: Tally = Tally { made: 1, freed: 0, mismatched: 0 };
const NONE: Tally = Tally { made: 0, freed: 0, mismatched: 0 };

/// A promise of the README: the two-dimensional common case.
#[test]
fn an_export_is_one_allocation_and_an_import_is_none() {
    fn case<A: Form>() {
        let given = Matrix { data: HostVec::<i16>::zeroed(6), rows: 2, columns: 3 };
        let (tensor, tally) = watch(|| given.into_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap());
        assert_eq!(tally, ONE, "given away");
        let (import, tally) = watch(|| Import::from_dlpack(tensor).unwrap());
        assert_eq!(tally, NONE, "imported");
        let (leased, tally) = watch(|| Matrix::<Lease<i16>>::from_import(import).unwrap());
        assert_eq!((tally, leased.rows, leased.columns), (NONE, 2, 3), "made into a struct");
        drop(leased);

        let shared = Arc::new(Matrix { data: HostVec::<i16>::zeroed(6), rows: 2, columns: 3 });
        let (tensor, tally) = watch(|| shared.share_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap());
        assert_eq!(tally, ONE, "shared");
        drop(tensor);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
    case::<Versioned>();
    case::<Legacy>();

    let foreign = Claims { strides: Some(vec![3, 1]), ..Claims::new(&[2, 3]) };
    let (_ledger, tensor) = foreign.send::<Versioned>();
    let (leased, tally) = watch(|| Matrix::<LeaseMut<i16>>::from_dlpack(tensor).unwrap());
    assert_eq!((tally, leased.rows), (NONE, 2), "a foreign struct");
}

/// As many axes as fit in place cost no more than two. More axes still cost one allocation.
#[test]
fn the_number_of_axes_adds_no_allocation_that_stays() {
    for ndim in [0, 1, 5, 6, 7, 64] {
        let array = Array::new(HostVec::<u8>::zeroed(1), &vec![1; ndim]);
        let (tensor, tally) = watch(|| array.into_dlpack().unwrap());
        assert_eq!((tally.made - tally.freed, tally.mismatched), (1, 0), "{ndim} axes");
        assert!(ndim > 5 || tally.made == 1, "{ndim} axes: {tally:?}");
        assert_eq!(look(&tensor).shape.map_or(0, |shape| shape.len()), ndim);
    }
}

/// Exports with this owner and runs the whole life of the struct on this thread, in both forms.
fn whole_life<O: Send + 'static>(make: impl Fn() -> O) {
    fn case<A: Form, O: Send + 'static>(owner: O) {
        let name = std::any::type_name::<O>();
        let info = RawDescriptor::new(0x1000, Device::CPU, &[2, 3, 4]).validate().unwrap();
        let ((), tally) = watch(|| {
            // SAFETY: nothing is read at the address.
            let tensor = unsafe { export::<A, O>(&info, owner, Ownership::Owned) }.unwrap();
            assert_eq!(tensor.as_ptr().addr() % align_of::<O>().max(align_of::<A>()), 0, "{name}");
            drop(tensor);
        });
        // Memory that the owner allocated before is freed too, but not counted.
        assert_eq!(tally, Tally { made: 1, freed: 1, mismatched: 0 }, "{name}");
    }
    case::<Versioned, O>(make());
    case::<Legacy, O>(make());
}

/// Bugs 27, 180: owners of any size and alignment are freed with the right layout and dropped once.
#[test]
fn owners_of_any_size_and_alignment() {
    static ZEROS: AtomicUsize = AtomicUsize::new(0);
    struct Zero;
    impl Drop for Zero {
        fn drop(&mut self) {
            ZEROS.fetch_add(1, Ordering::SeqCst);
        }
    }
    assert_eq!((size_of::<Zero>(), align_of::<Aligned>()), (0, 128));
    whole_life(|| Zero);
    assert_eq!(ZEROS.load(Ordering::SeqCst), 2);
    whole_life(|| ());
    whole_life(|| 1_u8);
    whole_life(|| [1_u64; 100]);
    whole_life(|| Box::new(7_u8));
    whole_life(|| -> Box<dyn Send> { Box::new([1_u16; 3]) });
    whole_life(|| vec![1_u32; 5]);
    whole_life(String::new);
    let count = Count::default();
    whole_life(|| Counted(count.clone(), [0_u8; 3]));
    whole_life(|| Counted(count.clone(), Aligned(1)));
    whole_life(|| (1_u8, Counted(count.clone(), [Aligned(1), Aligned(2)])));
    assert_eq!(count.get(), 6);
}

/// R95, R96: the struct, its shape and strides, and its owner are freed together, on any thread.
#[test]
fn the_owner_is_dropped_with_the_struct() {
    fn case<A: Form>() {
        let info = RawDescriptor::new(0x1000, Device::CPU, &[2, 3]).validate().unwrap();
        let dropped = Count::default();
        let owner = Counted(dropped.clone(), Aligned(7));
        assert_eq!(owner.1.0, 7);
        // SAFETY: nothing is read at the address.
        let tensor = unsafe { export::<A, _>(&info, owner, Ownership::Owned) }.unwrap();
        assert_eq!(dropped.get(), 0);
        elsewhere(move || drop(tensor));
        assert_eq!(dropped.get(), 1);
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// A consumer may change each field of the struct: the deleter uses none of them.
#[test]
fn a_consumer_that_writes_into_the_struct_is_survived() {
    let ((), tally) = watch(|| {
        let array = Matrix { data: HostVec::<i16>::zeroed(6), rows: 2, columns: 3 };
        let pointer = array.into_dlpack().unwrap().into_raw();
        // SAFETY: nothing else uses the pointer until it is taken back.
        let managed = unsafe { &mut *pointer };
        managed.dl_tensor.ndim = 64;
        managed.dl_tensor.shape = std::ptr::null_mut();
        managed.dl_tensor.data = std::ptr::null_mut();
        managed.manager_ctx = std::ptr::null_mut();
        managed.flags = u64::MAX;
        managed.version.major = 99;
        // SAFETY: the pointer was given away above; a null shape is refused before it is dereferenced.
        drop(unsafe { ManagedTensor::from_raw(pointer) });
    });
    assert_eq!((tally.made, tally.freed, tally.mismatched), (2, 2, 0));
}

/// Bugs 20, 21, 28, 34: the counters return to zero on each path.
#[test]
fn the_counters_return_to_zero() {
    run_alone("dlpack::allocations::the_counters_return_to_zero", || {
        const ROUNDS: u32 = if cfg!(miri) { 5 } else { 200 };
        let counters = || (live_exports(), live_allocations());
        assert_eq!(counters(), (0, 0));
        for round in 0..ROUNDS {
            let array = Arc::new(Array::new(HostVec::<i16>::zeroed(6), &[2, 3]));
            let buffer = Array::new(HostBuffer::zeroed(interop_core::DType::F32, 3).unwrap(), &[3]);
            let exports: Vec<ManagedTensor<Versioned>> =
                (0..5).map(|_| array.share_dlpack().unwrap()).collect();
            let given = buffer.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).unwrap();
            assert_eq!(counters(), (6, 2), "round {round}");
            drop(array);
            assert_eq!(counters(), (6, 2), "the exports hold the memory");
            for (at, tensor) in exports.into_iter().enumerate() {
                match at {
                    0 => drop(tensor),
                    1 => drop(Array::<Lease<f64>>::from_dlpack(tensor).unwrap_err()),
                    2 => drop(Array::<Vec<i16>>::from_dlpack(tensor).unwrap()),
                    3 => drop(
                        Array::<SharedBuffer>::from_dlpack(tensor)
                            .unwrap()
                            .into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)
                            .unwrap(),
                    ),
                    _ => drop(elsewhere(move || Array::<LeaseMut<i16>>::from_dlpack(tensor).unwrap())),
                }
            }
            assert_eq!(counters(), (1, 1), "round {round}");
            drop(given);
            assert_eq!(counters(), (0, 0), "round {round}");
        }
    });
}
