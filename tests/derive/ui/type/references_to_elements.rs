//! The first things that people write on a storage.

use interop_core::{HostVec, Lease, LeaseMut};

fn main() {
    let values = HostVec::<f32>::zeroed(3);
    values.iter();
    let lease = Lease::<f32>::from_owner(vec![1.0]);
    let _ = lease[0];
    LeaseMut::<f32>::from_owner(vec![1.0]).iter();
}
