use interop_core::{CudaArray, LeaseMut};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    data: LeaseMut<f32>,
    len: usize,
}

fn read_beside_a_writer(samples: &mut Samples) {
    let target = samples.view_mut::<f32, 1>().unwrap().kernel_view_mut().unwrap();
    let copy = target;
    let view = samples.view::<f32, 1>().unwrap().kernel_view().unwrap();
    println!("{copy:?} {view:?}");
}

fn main() {}
