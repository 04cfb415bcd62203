//! A view for the host reads until it is dropped, also after its last use: a writer that comes before would be refused when
//! the program runs.
use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {
    let mut samples = Samples { values: HostVec::zeroed(4), len: 4 };
    let view = samples.view::<f32, 1>().unwrap().host_view().unwrap();
    view.read([0]).unwrap();
    samples.map_inplace(|value: f32| value + 1.0).unwrap();
}
