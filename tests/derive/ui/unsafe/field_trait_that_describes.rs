//! No field can say where the memory is: a safe `impl` could name an address that nobody has guaranteed.
use interop_core::__private::{InfoBuilder, ArrayInfo, Extraction, Result, ShapeField};
use interop_core::CudaArray;

struct Elsewhere([usize; 1]);

impl ShapeField for Elsewhere {
    fn take(_: &mut Extraction<'_>, _: &'static str) -> Option<Self> {
        Some(Self([4]))
    }

    fn finish(&self, _: InfoBuilder<'_>) -> Result<ArrayInfo> {
        interop_core::protocols::RawDescriptor::new(0x10, interop_core::Device::CPU, &[4]).validate()
    }
}

#[derive(CudaArray)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<u8>,
    #[cuda_array(shape)]
    shape: Elsewhere,
}

fn main() {
    let samples = Samples { values: vec![0; 4], shape: Elsewhere([4]) };
    samples.to_vec::<u8>().unwrap();
}
