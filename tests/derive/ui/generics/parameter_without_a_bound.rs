use interop_core::{CudaArray, Lease};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Image<T> {
    #[cuda_array(data)]
    pixels: Lease<T>,
    len: usize,
}

impl<T> Image<T> {
    fn count(&self) -> usize {
        self.info().map_or(0, |info| info.numel())
    }
}

fn main() {}
