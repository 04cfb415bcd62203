use interop_core::{CudaArray, LeaseMut};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    data: LeaseMut<f32>,
    len: usize,
}

fn freed_before_the_launch(samples: Samples) {
    let view = samples.view::<f32, 1>().unwrap().kernel_view().unwrap();
    drop(samples);
    println!("{view:?}");
}

fn main() {}
