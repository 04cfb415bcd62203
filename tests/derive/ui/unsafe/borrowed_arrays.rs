use interop_core::{CudaArray, HostVec, LaunchScope};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

/// A view for the host reads until it is dropped, also after its last use: a writer that comes before would be refused when
/// the program runs.
fn written_beside_a_host_view(mut samples: Samples) {
    let view = samples.view::<f32, 1>().unwrap().host_view().unwrap();
    view.read([0]).unwrap();
    samples.map_inplace(|value: f32| value + 1.0).unwrap();
}

fn read_beside_a_kernel_that_writes(samples: &mut Samples) {
    let target = samples.view_mut::<f32, 1>().unwrap().kernel_view_mut().unwrap();
    let copy = target;
    let view = samples.view::<f32, 1>().unwrap().kernel_view().unwrap();
    println!("{copy:?} {view:?}");
}

fn freed_before_the_launch(samples: Samples) {
    let view = samples.view::<f32, 1>().unwrap().kernel_view().unwrap();
    drop(samples);
    println!("{view:?}");
}

/// A scope makes the streams of its arrays wait at its end, so the arrays are still there.
fn dropped_before_its_scope() {
    let scope = LaunchScope::new();
    let row = Samples { values: HostVec::zeroed(3), len: 3 };
    scope.read::<f32, 1>(&row).unwrap();
}

fn main() {}
