use interop_core::{CudaArray, FromArray, Import};

#[derive(CudaArray)]
struct Image<S> {
    #[cuda_array(data)]
    pixels: S,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn import(from: Import) {
    let image: Image<&'static [f32]> = FromArray::from_import(from).unwrap();
    println!("{:?}", image.info());
}

fn main() {}
