use std::rc::Rc;

use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
    #[cuda_array(default)]
    name: Rc<str>,
}

fn main() {}
