use interop_core::{CudaArray, HostVec};
use ndarray::ArrayViewMut1;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    data: HostVec<f32>,
    len: usize,
}

fn written_in_two_ways(mut samples: Samples) {
    let host = samples.view_mut::<f32, 1>().unwrap().host_view_mut().unwrap();
    let mut view: ArrayViewMut1<f32> = unsafe { host.into_ndarray().unwrap() };
    samples.map_inplace::<f32>(|value| value + 1.0).unwrap();
    view.fill(0.0);
}

fn main() {}
