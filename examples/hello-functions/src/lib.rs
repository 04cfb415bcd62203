//! Functions for PyTorch, JAX, NumPy, CuPy and C. Each runs where its arrays are, on the CPU or on a GPU.
//!
//! An `Array` has any shape and layout. `Borrowed<'_, f32>` lends the caller's memory for reading, `BorrowedMut<'_, f32>` for
//! writing.

use hello_functions_kernels::{PTX, scale_elements, scaled_elements};
use interop_core::arrays::ArrayD as Array;
use interop_core::lent::{Borrowed, BorrowedMut};
use interop_core::{CudaArray, KernelModule, LaunchScope, Result};
use interop_tvm_ffi::{Call, CallError, NewArray};

/// The kernels. The first launch on a GPU loads them.
// SAFETY: the PTX is compiled from the functions of the crate in `kernels`.
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

/// Multiplies every element of the caller's array, in place.
fn scale_(mut array: Array<BorrowedMut<'_, f32>>, factor: f32) -> Result<()> {
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((&mut array,))?;
    scope.launch(&KERNELS, arrays.launch_size(), scale_elements::with(arrays, factor))?;
    scope.finish()
}

/// Writes every element of an array, multiplied, to another array of the caller.
fn scale_into(
    from: Array<Borrowed<'_, f32>>,
    mut to: Array<BorrowedMut<'_, f32>>,
    factor: f32,
) -> Result<()> {
    write_scaled(&from, &mut to, factor)
}

/// An array in new memory of the caller's library.
type New<'c> = NewArray<Array<BorrowedMut<'c, f32>>>;

/// Returns a new array of the caller's library with every element multiplied.
fn scaled<'c>(call: &'c Call<'_>, from: Array<Borrowed<'_, f32>>, factor: f32) -> Result<New<'c>, CallError> {
    let mut to: New<'_> = call.new_like(&from)?;
    write_scaled(&from, &mut *to, factor)?;
    Ok(to)
}

fn write_scaled(from: &impl CudaArray, to: &mut impl CudaArray, factor: f32) -> Result<()> {
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((to, from))?;
    scope.launch(&KERNELS, arrays.launch_size(), scaled_elements::with(arrays, factor))?;
    scope.finish()
}

interop_tvm_ffi::export! {
    operators;
    #[elementwise(array)]
    scale_(array, factor);
    scale_into(from, to, factor);
    #[elementwise(from)]
    #[into(scale_into)]
    #[gradient(from = scaled(gradient, factor))]
    scaled(call, from, factor);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use interop_core::HostVec;
    use interop_core::cuda::{CudaBuffer, MemoryKind};

    use super::*;

    /// On the simulated driver, which runs the functions of the crate in `kernels`, and reports accesses that nothing orders.
    #[test]
    fn arrays_are_scaled_without_a_gpu() -> Result<()> {
        let sim = simulated_cuda::sim();
        sim.register::<scaled_elements>();
        let array = |values: &[f32; 6]| -> Result<_> {
            let values = CudaBuffer::from_slice(MemoryKind::Device, 0, values)?;
            Ok(Array { values, shape: [2, 3].into(), strides: None })
        };
        let (from, mut to) = (array(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?, array(&[0.0; 6])?);
        write_scaled(&from, &mut to, 2.0)?;
        assert_eq!(to.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        sim.assert_no_reports();
        Ok(())
    }

    /// The same function runs the same kernel on the CPU, over arrays of any layout.
    #[test]
    fn arrays_of_the_cpu_are_scaled() -> Result<()> {
        let array = |values: [f32; 6], strides: [isize; 2]| Array {
            values: HostVec::from(values.to_vec()),
            shape: [2, 3].into(),
            strides: Some(strides.into()),
        };
        let (from, mut to) = (array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1, 2]), array([0.0; 6], [3, 1]));
        write_scaled(&from, &mut to, 2.0)?;
        assert_eq!(to.to_vec::<f32>()?, [0.0, 4.0, 8.0, 2.0, 6.0, 10.0]);
        Ok(())
    }
}
