//! The memory of an import, which may be lent for a call only, is not given to safe code: neither to an implementation of a
//! field's trait, nor to false traits that `crate = "path"` leads to.

use interop_core::__private::Extraction;
use interop_core::launch::FromStream;
use interop_core::{CudaArray, Device, FromArray, Lease, StreamHandle};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row {
    #[cuda_array(data)]
    values: Lease<f32>,
    len: usize,
}

struct Thief(StreamHandle);

impl FromStream for Thief {
    fn from_stream(stream: StreamHandle, _: Device) -> interop_core::Result<Self> {
        Ok(Self(stream))
    }

    fn take(from: &mut Extraction<'_>) -> Option<Self> {
        let row = Row::assemble(from);
        let lease = from.storage::<Lease<f32>>();
        drop((row, lease));
        None
    }
}

fn main() {}
