//! A borrowed part of a slice cannot be exported as owned.
use cudarc::driver::CudaView;
use interop_core::CudaArray;
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Part<'a> {
    #[cuda_array(data)]
    values: CudaView<'a, f32>,
    len: usize,
}

fn give_away(part: Part<'_>) -> ManagedTensor<Versioned> {
    part.into_dlpack().unwrap()
}

fn main() {}
