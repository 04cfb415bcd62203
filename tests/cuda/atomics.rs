//! Threads that add to one element at the same time, and threads of a block that share values, in kernels in Rust.

use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::{CudaArray, Element, KernelModule, LaunchScope, LaunchSize, StreamHandle};
use interop_demo_kernels::KERNELS_PTX;
use interop_demo_kernels::kernels::{count_elements, histogram_f32, scan_blocks};

use crate::support::turn;

// SAFETY: the PTX is compiled from the functions of `interop_demo_kernels::kernels`.
static KERNELS: KernelModule = unsafe { KernelModule::new(KERNELS_PTX) };

/// Zeros on the device.
#[derive(CudaArray)]
struct Array {
    #[cuda_array(data)]
    data: CudaBuffer,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

fn array<T: Element>(numbers: &[T], shape: &[usize]) -> Array {
    let data = CudaBuffer::from_slice(MemoryKind::Device, 0, numbers).unwrap();
    Array { data, shape: shape.to_vec(), stream: StreamHandle::LegacyDefault }
}

#[test]
fn no_addition_is_lost() {
    let _turn = turn();
    // Exact in `f32`.
    let count = 300_000;
    let (mut unsigned, mut signed) = (array(&[0_u32], &[]), array(&[0_i32], &[]));
    let (mut large, mut large_signed) = (array(&[1_u64 << 32], &[]), array(&[0_i64], &[]));
    let (mut floats, mut doubles) = (array(&[0.0_f32], &[]), array(&[0.0_f64], &[]));
    let mut before = array(&vec![0_u32; count as usize], &[count as usize]);
    let scope = LaunchScope::new();
    let arguments = count_elements::with(
        scope.write(&mut unsigned).unwrap(),
        scope.write(&mut signed).unwrap(),
        scope.write(&mut large).unwrap(),
        scope.write(&mut large_signed).unwrap(),
        scope.write(&mut floats).unwrap(),
        scope.write(&mut doubles).unwrap(),
        scope.write(&mut before).unwrap(),
    );
    scope.launch(&KERNELS, LaunchSize::for_units(count as usize), arguments).unwrap();
    scope.finish().unwrap();
    assert_eq!(
        (unsigned.to_vec::<u32>().unwrap(), signed.to_vec::<i32>().unwrap()),
        (vec![count], vec![-300_000_i32])
    );
    assert_eq!(large.to_vec::<u64>().unwrap(), [(1_u64 << 32) + u64::from(count)]);
    assert_eq!(large_signed.to_vec::<i64>().unwrap(), [-i64::from(count)]);
    assert_eq!(
        (floats.to_vec::<f32>().unwrap(), doubles.to_vec::<f64>().unwrap()),
        (vec![300_000.0_f32], vec![150_000.0_f64])
    );
    let mut before: Vec<u32> = before.to_vec().unwrap();
    before.sort_unstable();
    assert!(before.into_iter().eq(0..count), "each number before an addition is there once");
}

#[test]
fn threads_of_a_block_share_values() {
    let _turn = turn();
    let numbers: Vec<f32> = (0..97_u16).cycle().take(100_000).map(f32::from).collect();
    let (from, mut sums) = (array(&numbers, &[100_000]), array(&vec![0.0_f32; 100_000], &[100_000]));
    let scope = LaunchScope::new();
    let arguments = scan_blocks::with(scope.read(&from).unwrap(), scope.write(&mut sums).unwrap());
    scope.launch(&KERNELS, LaunchSize::for_blocks(100_000_usize.div_ceil(256)), arguments).unwrap();
    scope.finish().unwrap();
    let expected = numbers.chunks(256).flat_map(|block| {
        block.iter().scan(0.0, |sum, number| {
            *sum += number;
            Some(*sum)
        })
    });
    assert!(expected.eq(sums.to_vec::<f32>().unwrap()), "a sum over a block is exact");
}

#[test]
fn histogram_counts_each_element_once() {
    let _turn = turn();
    let numbers: Vec<f32> = (0..1000_u16).cycle().take(100_000).map(f32::from).collect();
    let (from, mut counts) = (array(&numbers, &[100, 1000]), array(&[0_u32; 10], &[10]));
    let scope = LaunchScope::new();
    let from = scope.elementwise((&from,)).unwrap();
    let size = from.launch_size();
    let arguments = histogram_f32::with(from, 0.0, 0.01, scope.write(&mut counts).unwrap());
    scope.launch(&KERNELS, size, arguments).unwrap();
    scope.finish().unwrap();
    assert_eq!(counts.to_vec::<u32>().unwrap(), [10_000; 10]);
}
