use interop_core::launch::AsStream;
use interop_core::{CudaArray, StreamHandle};

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream)]
    stream: Own,
}

// As `cust::Stream` is: it owns its handle, and cannot be made from one of somebody else.
struct Own;

impl AsStream for Own {
    fn as_stream(&self) -> StreamHandle {
        StreamHandle::LegacyDefault
    }
}

fn main() {}
