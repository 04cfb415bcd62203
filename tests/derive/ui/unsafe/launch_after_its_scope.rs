//! A kernel argument of a launch scope cannot be launched after the end of the scope.

use interop_core::kernel::KernelView;
use interop_core::{CudaArray, HostVec, LaunchScope};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn launch(_: KernelView<'_, f32, 1>) {}

fn main() {
    let row = Row { values: HostVec::zeroed(3), len: 3 };
    let scope = LaunchScope::new();
    let view = *scope.read::<f32, 1>(&row).unwrap();
    scope.finish().unwrap();
    launch(view);
}
