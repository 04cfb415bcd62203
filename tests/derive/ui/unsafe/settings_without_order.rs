//! What switches order off is a promise of the program.
use interop_core::cuda::{Unordered, set_unordered};

fn main() {
    set_unordered(Unordered { releases: true, unknown_work: true });
}
