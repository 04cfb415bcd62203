use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image<S> {
    #[cuda_array(data)]
    pixels: S,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {
    let image = Image { pixels: String::new(), shape: [2, 2] };
    println!("{:?}", image.info());
}
