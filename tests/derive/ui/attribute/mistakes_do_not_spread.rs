use interop_core::{CudaArray, FromArray};

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(defualt)]
    name: String,
}

// The struct is used in every way; the one message is about the one mistake.
fn main() {
    let image = Image { pixels: vec![1.0; 4], shape: [2, 2], name: String::new() };
    let info = image.info().unwrap();
    assert_eq!(info.shape(), [2, 2]);
    let tensor = image.into_dlpack().unwrap();
    let again = Image::from_dlpack(tensor).unwrap();
    println!("{}", again.name);
}
