//! Safe code cannot end a description by a function of its own.
use interop_core::{ArrayInfo, CudaArray};

mod facade {
    pub mod __interop_core {
        pub use interop_core::__interop_core::*;

        #[allow(non_snake_case)]
        pub fn Ok(_: interop_core::ArrayInfo) -> interop_core::Result<interop_core::ArrayInfo> {
            interop_core::protocols::RawDescriptor::new(0x10, interop_core::Device::CPU, &[4]).validate()
        }
    }
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<u8>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(crate = "facade", export)]
struct Outer {
    #[cuda_array(inner)]
    samples: Samples,
}

macro_rules! leave {
    ($me:ident) => {
        match &$me.other {
            Some(other) => return Ok(other.clone()),
            None => 1_usize,
        }
    };
}

/// Nor by a `return` in an extent.
#[derive(CudaArray)]
#[cuda_array(shape = [leave!(self)], export)]
struct Computed {
    #[cuda_array(data)]
    values: Vec<u8>,
    other: Option<ArrayInfo>,
}

fn main() {
    // This is right: the function above is never called.
    let outer = Outer { samples: Samples { values: vec![0; 4], len: 4 } };
    outer.to_vec::<f32>().unwrap();
}
