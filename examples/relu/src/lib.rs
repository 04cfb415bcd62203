//! `relu(x, out)` for the package `kernels` of Hugging Face, as their examples have it, on the CPU and on a GPU.
#![expect(unsafe_code, reason = "promises that the PTX is that of the kernels")]
#![expect(clippy::needless_pass_by_value, reason = "a function takes its arguments")]

use interop_core::arrays::ArrayD as Array;
use interop_core::lent::{Borrowed, BorrowedMut};
use interop_core::{KernelModule, LaunchScope, Result};
use relu_rust_kernels::{PTX, relu_elements};

// SAFETY: the PTX is compiled from the functions of the crate in `kernels`.
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

fn relu(x: Array<Borrowed<'_, f32>>, mut out: Array<BorrowedMut<'_, f32>>) -> Result<()> {
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((&mut out, &x))?;
    scope.launch(&KERNELS, arrays.launch_size(), relu_elements::with(arrays))?;
    scope.finish()
}

interop_tvm_ffi::export! {
    operators;
    relu(x, out);
}
