//! What switches order off is a promise of the program. A number is not a stream: the driver ends the process over one that is none.

use interop_core::cuda::{Unordered, set_unordered};
use interop_core::StreamHandle;

fn main() {
    set_unordered(Unordered { releases: true, unknown_work: true });
    let _ = StreamHandle::from_raw(0x1234);
}
