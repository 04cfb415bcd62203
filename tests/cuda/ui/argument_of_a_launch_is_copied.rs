//! Neither `cudarc` nor `cust` copies what a kernel writes, so that a launch gets it once.
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cust::memory::DeviceBuffer;
use interop_core::kernel::{InScope, KernelViewMut};

fn by_cudarc(stream: &Arc<CudaStream>, argument: InScope<KernelViewMut<'_, f32, 1>>) {
    let _ = stream.clone_htod(&[argument]);
}

fn by_cust(argument: InScope<KernelViewMut<'_, f32, 1>>) {
    let _ = DeviceBuffer::from_slice(&[argument]);
}

fn main() {}
