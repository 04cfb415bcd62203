//! A scope makes the streams of its arrays wait at its end, so the arrays are still there.

use interop_core::{CudaArray, HostVec, LaunchScope};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {
    let scope = LaunchScope::new();
    let row = Row { values: HostVec::zeroed(3), len: 3 };
    scope.read::<f32, 1>(&row).unwrap();
}
