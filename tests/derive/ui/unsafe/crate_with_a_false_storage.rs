//! Safe code cannot describe memory by a module in the place of this crate.
use interop_core::CudaArray;

mod facade {
    pub mod __interop_core {
        pub use interop_core::__interop_core::*;

        pub struct Description;

        impl Description {
            pub fn extents<const N: usize>(self, _: [i128; N]) -> Result<ArrayInfo> {
                interop_core::protocols::RawDescriptor::new(0x10, interop_core::Device::CPU, &[4]).validate()
            }
        }

        pub trait Storage {
            fn describe(&self) -> Result<Description> {
                Ok(Description)
            }

            fn note_read(&self, _: StreamHandle) -> bool {
                true
            }

            fn note_write(&mut self, _: StreamHandle) -> bool {
                true
            }

            fn is_only_handle(&mut self) -> bool {
                true
            }
        }

        impl Storage for u8 {}
    }
}

#[derive(CudaArray)]
#[cuda_array(crate = "facade", export, shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: u8,
    len: usize,
}

fn main() {
    Samples { values: 0, len: 4 }.to_vec::<u8>().unwrap();
}
