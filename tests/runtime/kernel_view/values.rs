//! The contents of a kernel view, and the arrays that are refused.

use core::mem::{align_of, size_of};

use interop_core::kernel::{KernelView, KernelViewMut};
use interop_core::protocols::dlpack::Versioned;
use interop_core::view::ArrayViewMut;
use interop_core::{
    CudaArray, Device, Element, ErrorKind, FromArray, HostVec, Lease, LeaseMut, SharedBuffer, cuda,
};
use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed, GPU_ADDRESS, Managed, Pinned};
use crate::support::assert_told;
use crate::support::brute_force::settings;
use crate::support::foreign_tensors::Claims;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Pixel {
    rgb: [u8; 3],
    alpha: u8,
}

fn gpu(shape: &[usize], strides: &[isize]) -> Array<Claimed> {
    Array::strided(Claimed::gpu::<f32>(1000, 0), shape, strides)
}

/// The address, extents and strides are those of the view; strides are in elements.
#[test]
fn it_holds_what_the_view_holds() {
    let mut array = gpu(&[4, 3], &[5, 1]);
    let view = array.view::<f32, 2>().unwrap().kernel_view().unwrap();
    assert_eq!((view.address(), view.shape(), view.strides()), (GPU_ADDRESS as u64, [4, 3], [5, 1]));
    assert_eq!(view.numel(), 12);
    let pairs = Array::new(Claimed::gpu::<[f32; 2]>(10, 0), &[10]);
    assert_eq!(pairs.view::<f32, 2>().unwrap().kernel_view().unwrap().strides(), [2, 1]);
    assert_eq!(pairs.view::<[f32; 2], 1>().unwrap().kernel_view().unwrap().strides(), [1]);

    let target = array.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
    let copy = target;
    assert_eq!((copy.address(), copy.shape()), (target.address(), target.shape()), "launches take copies");
    let read = target.as_view();
    assert_eq!((read.address(), read.shape(), read.strides()), (GPU_ADDRESS as u64, [4, 3], [5, 1]));
}

/// Bug 165: with an extent of 0 the others may have any product.
#[test]
fn no_elements_are_counted_as_none() {
    let array = gpu(&[1 << 62, 4, 0], &[0, 0, 1]);
    assert_eq!(array.view::<f32, 3>().unwrap().kernel_view().unwrap().numel(), 0);
}

/// The size that `interop.cuh` expects, for any element type.
#[test]
fn the_size_depends_on_the_rank_alone() {
    fn check<T: Element, const N: usize>() {
        assert_eq!(size_of::<KernelView<'_, T, N>>(), 8 + 16 * N);
        assert_eq!(size_of::<KernelViewMut<'_, T, N>>(), 8 + 16 * N);
        assert_eq!((align_of::<KernelView<'_, T, N>>(), align_of::<KernelViewMut<'_, T, N>>()), (8, 8));
    }
    check::<u8, 0>();
    check::<bool, 1>();
    check::<f64, 3>();
    check::<Pixel, 5>();
    check::<[f32; 4], 64>();
}

/// Views can be sent to the thread that launches, like any plain value.
#[test]
fn views_are_plain_values() {
    fn check<T: Copy + Send + Sync + core::fmt::Debug>() {}
    check::<KernelView<'static, f32, 2>>();
    check::<KernelViewMut<'static, f32, 2>>();
}

/// Kernels can access pinned and managed memory like device memory, and also foreign memory.
#[test]
fn every_memory_that_a_device_reaches() {
    for device in [Device::cuda(1), Device::CUDA_MANAGED] {
        let (_ledger, tensor) = Claims { device, ..Claims::new(&[2, 3]) }.send::<Versioned>();
        let mut import: Array<LeaseMut<i16>> = Array::from_dlpack(tensor).unwrap();
        let address = import.info().unwrap().address() as u64;
        assert_eq!(
            import.view_mut::<i16, 2>().unwrap().kernel_view_mut().unwrap().address(),
            address,
            "{device}"
        );
        let view = import.view::<i16, 2>().unwrap().kernel_view().unwrap();
        assert_eq!(view.strides(), [3, 1]);
        let printed = format!("KernelView(i16 [2, 3] at {address:#x}, strides [3, 1])");
        assert_eq!(format!("{view:?}"), printed);
    }
}

/// With a driver, the device address of pinned memory is queried, and the driver reports which memory is pinned.
#[test]
fn the_driver_knows_pinned_memory() {
    let claimed = Array::new(Pinned(HostVec::from([1_i16, 2])), &[2]);
    let view = claimed.view::<i16, 1>().and_then(|view| view.kernel_view());
    if cuda::is_available() {
        assert_eq!(view.unwrap_err().kind(), ErrorKind::Device, "the memory was never pinned");
    } else {
        assert_eq!(view.unwrap().address(), claimed.info().unwrap().address() as u64);
    }
}

/// A kernel cannot dereference an address of ordinary host memory.
#[test]
fn host_memory_is_refused() {
    let mut array = Array::new(HostVec::from([1.0_f32, 2.0]), &[2]);
    let told = (ErrorKind::Device, "device", "CPU (1)", "CUDA (2), CUDAHost (3) or CUDAManaged (13); copy");
    assert_told(&array.view::<f32, 1>().and_then(|view| view.kernel_view()).unwrap_err(), told);
    assert_told(&array.view_mut::<f32, 1>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), told);
    // Also refused without elements: the next array of the same struct would have some.
    let empty = Array::new(HostVec::<f32>::zeroed(0), &[0]);
    assert_told(&empty.view::<f32, 1>().and_then(|view| view.kernel_view()).unwrap_err(), told);
}

/// Other element types and ranks are refused with the messages of a host view.
#[test]
fn element_and_rank_are_compared() {
    let mut array = gpu(&[2, 6], &[6, 1]);
    let dtype = (ErrorKind::DType, "dtype", "float32", "float64");
    assert_told(&array.view::<f64, 2>().and_then(|view| view.kernel_view()).unwrap_err(), dtype);
    assert_told(&array.view_mut::<f64, 2>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), dtype);
    let rank = (ErrorKind::Rank, "shape", "2 axes, shape [2, 6]", "3 axes");
    assert_told(&array.view::<f32, 3>().and_then(|view| view.kernel_view()).unwrap_err(), rank);
    assert_told(&array.view_mut::<f32, 3>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), rank);
    let rank = (ErrorKind::Rank, "shape", "2 axes, shape [2, 6]", "0 axes");
    assert_told(&array.view::<f32, 0>().and_then(|view| view.kernel_view()).unwrap_err(), rank);
}

/// Read-only memory is refused, and so are arrays whose indices share elements, on which a kernel would race with
/// itself.
#[test]
fn a_writable_view_needs_writable_elements() {
    let (_ledger, tensor) = Claims { device: Device::cuda(0), ..Claims::new(&[2]) }.send::<Versioned>();
    let mut lease: Array<Lease<i16>> = Array::from_dlpack(tensor).unwrap();
    let told = (ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array");
    assert_told(&lease.view_mut::<i16, 1>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), told);
    assert_eq!(lease.view::<i16, 1>().unwrap().kernel_view().unwrap().shape(), [2]);

    let mut broadcast = gpu(&[4, 3], &[0, 1]);
    let told = (ErrorKind::Strides, "strides", "[0, 1] for shape [4, 3]", "no two indices share an element");
    assert_told(&broadcast.view_mut::<f32, 2>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), told);
    assert_eq!(broadcast.view::<f32, 2>().unwrap().kernel_view().unwrap().strides(), [0, 1]);
}

/// A misaligned load on the device destroys the context, so such addresses are refused.
#[test]
fn odd_addresses_are_refused() {
    let words = SharedBuffer::new(Managed(HostVec::from([0_u16; 3])));
    let mut odd = Array::new(words.byte_offset(1).unwrap(), &[2]);
    let told = (ErrorKind::Alignment, "data", "0x", "a multiple of 2, the alignment of the element; copy");
    assert_told(&odd.view::<u16, 1>().and_then(|view| view.kernel_view()).unwrap_err(), told);
    assert_told(&odd.view_mut::<u16, 1>().and_then(ArrayViewMut::kernel_view_mut).unwrap_err(), told);
}

/// Arrays without axes and arrays without elements are allowed.
#[test]
fn scalars_and_empty_arrays() {
    let scalar = gpu(&[], &[]);
    let view = scalar.view::<f32, 0>().unwrap().kernel_view().unwrap();
    assert_eq!((view.address(), view.numel(), view.shape()), (GPU_ADDRESS as u64, 1, []));

    let mut empty = gpu(&[3, 0, 2], &[0, 7, 1]);
    let view = empty.view_mut::<f32, 3>().unwrap().kernel_view_mut().unwrap();
    assert_eq!((view.address(), view.numel(), view.shape()), (0, 0, [3, 0, 2]));
}

proptest! {
    #![proptest_config(settings())]

    /// Any extents and strides are passed on unchanged, including negative strides.
    #[test]
    fn extents_and_strides_arrive(
        shape in prop::array::uniform3(2_usize..6),
        strides in prop::array::uniform3(-9_isize..10),
    ) {
        let words = SharedBuffer::new(Managed(HostVec::from([0_u16; 300])));
        let array = Array::strided(words.byte_offset(2 * 150).unwrap(), &shape, &strides);
        let view = array.view::<u16, 3>().unwrap().kernel_view().unwrap();
        prop_assert_eq!(view.shape().map(|extent| usize::try_from(extent).unwrap()), shape);
        prop_assert_eq!(view.strides().map(|stride| isize::try_from(stride).unwrap()), strides);
        prop_assert_eq!(view.numel(), shape.iter().product::<usize>());
        prop_assert_eq!(view.address(), array.info().unwrap().address() as u64);
    }
}
