//! `iter` and `[…]` of storages that lend no references: they exist so that the compiler's message names the cure.

use crate::memory::host_vec::HostVec;
use crate::memory::lease::{Lease, LeaseMut};

/// Storages that lend references to their elements. No storage of this crate does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` lends no references to its elements, which other libraries may write to",
    label = "no plain references here",
    note = "loop by the struct: `samples.fold(0.0, |sum, value: f32| sum + value)?`, `for_each_chunk`, `map_inplace`",
    note = "or by a view: `samples.view::<f32, 1>()?.host_view()?.iter()`, and `.read([0])?` for one element",
    note = "`HostVec::as_mut_slice` lends a slice while nothing is exported"
)]
pub trait LendsReferences {}

macro_rules! no_references {
    ($($storage:ident)*) => {
        $(
            impl<T> $storage<T> {
                /// Does not compile.
                #[doc(hidden)]
                #[expect(clippy::iter_without_into_iter, reason = "a loop over a reference has no message of ours")]
                pub fn iter(&self) -> core::slice::Iter<'_, T>
                where
                    Self: LendsReferences,
                {
                    unreachable!("no storage lends references")
                }
            }

            impl<T> core::ops::Index<usize> for $storage<T>
            where
                Self: LendsReferences,
            {
                type Output = T;

                fn index(&self, _: usize) -> &T {
                    unreachable!("no storage lends references")
                }
            }
        )*
    };
}

no_references!(HostVec Lease LeaseMut);
