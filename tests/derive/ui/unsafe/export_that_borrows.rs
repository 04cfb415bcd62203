use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples<'a> {
    #[cuda_array(data)]
    values: &'a [f32],
    len: usize,
}

// A consumer keeps an export as long as it likes.
fn export(values: &[f32]) {
    let samples = Samples { values, len: values.len() };
    let _ = samples.into_dlpack();
}

fn main() {
    export(&[1.0, 2.0]);
}
