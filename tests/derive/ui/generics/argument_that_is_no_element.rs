use interop_core::{CudaArray, HostVec};

#[derive(Clone, Copy)]
struct Pixel {
    gray: u8,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Image<T> {
    #[cuda_array(data)]
    pixels: HostVec<T>,
    len: usize,
}

fn of_pixels(image: &Image<Pixel>) -> usize {
    image.info().map_or(0, |info| info.numel())
}

fn main() {}
