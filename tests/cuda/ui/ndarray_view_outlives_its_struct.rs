use interop_core::{CudaArray, HostVec};
use ndarray::ArrayView1;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    data: HostVec<f32>,
    len: usize,
}

fn read_after_the_release(samples: Samples) {
    let host = samples.view::<f32, 1>().unwrap().host_view().unwrap();
    let view: ArrayView1<f32> = unsafe { host.as_ndarray().unwrap() };
    drop(samples);
    println!("{view}");
}

fn main() {}
