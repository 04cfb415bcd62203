//! R92: arrays that are passed on many times. Each owner holds the previous one, so the drop of the last drops all.

use std::panic::{self, AssertUnwindSafe};

use interop_core::storage::Owner;
use interop_core::{CudaArray, FromArray, Lease, LeaseMut, SharedBuffer};

use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted, Panicking};
use crate::support::owner_chains::{on_a_small_stack, passed_on};

/// Enough links that nested drops would overflow the stack. Miri would take minutes, so it only counts the releases
/// of a few.
const LINKS: usize = if cfg!(miri) { 40 } else { 20_000 };

/// The last array of a chain that begins with a vector.
fn last<S: Send + 'static>() -> Array<S>
where
    Array<S>: CudaArray + FromArray,
{
    let first = Array::new(vec![1_i16; 4], &[4]).into_dlpack().unwrap();
    passed_on(Array::from_dlpack(first).unwrap(), LINKS)
}

#[test]
fn the_end_of_a_long_chain_is_not_the_end_of_the_stack() {
    on_a_small_stack(|| {
        drop(last::<Lease<i16>>());
        drop(last::<LeaseMut<i16>>());
        let last = last::<SharedBuffer>();
        assert_eq!(last.to_vec::<i16>().unwrap(), [1; 4]);
        drop(last.into_dlpack().unwrap());
    });
}

/// Each link is dropped once before the outermost drop returns.
#[test]
fn every_link_is_dropped() {
    on_a_small_stack(|| {
        let count = Count::default();
        let mut owner = Owner::default();
        for _ in 0..LINKS {
            owner = Owner::new((Counted(count.clone(), ()), owner));
        }
        assert_eq!(count.get(), 0);
        drop(owner);
        assert_eq!(count.get(), LINKS);
    });
}

/// A panic in one drop does not affect the others: all are dropped. The caller only sees the panic of the outermost
/// links.
#[test]
fn a_panic_in_a_link_loses_no_other() {
    on_a_small_stack(|| {
        let count = Count::default();
        let mut owner = Owner::default();
        for link in 0..100 {
            let counted = Counted(count.clone(), ());
            owner = match link {
                10 => Owner::new((counted, Panicking(count.clone()), owner)),
                _ => Owner::new((counted, owner)),
            };
        }
        // The link is deep in the chain, so its drop is deferred.
        panic::catch_unwind(AssertUnwindSafe(|| drop(owner))).unwrap();
        assert_eq!(count.get(), 101);
        // The thread continues normally.
        let outer = Owner::new((Owner::new(Counted(count.clone(), ())), Panicking(count.clone())));
        panic::catch_unwind(AssertUnwindSafe(|| drop(outer))).unwrap_err();
        assert_eq!(count.get(), 103);
        drop(last::<Lease<i16>>());
    });
}
