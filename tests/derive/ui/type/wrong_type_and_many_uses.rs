use interop_core::{CudaArray, FromArray};

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: String,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

// One message, although the struct is used in every way.
fn main() {
    let image = Image { pixels: String::new(), shape: [2, 2] };
    println!("{:?}", image.info());
    let tensor = image.into_dlpack().unwrap();
    let _ = Image::from_dlpack(tensor);
}
