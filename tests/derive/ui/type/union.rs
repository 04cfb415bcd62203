use interop_core::CudaArray;

#[derive(CudaArray)]
union Image {
    pixels: std::mem::ManuallyDrop<Vec<f32>>,
    nothing: (),
}

fn main() {}
