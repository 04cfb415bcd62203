//! Arrays of one shape combined for an elementwise kernel: each element is visited once, at its place in each array.
//!
//! The Rust computation is compared with the loops of `interop.cuh`, which a host compiler builds and runs thread by
//! thread.
#![expect(unsafe_code, reason = "the bytes of an argument are read as bytes")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice;

use interop_core::kernel::{DynKernelView, KernelArrays, KernelOperand};
use interop_core::launch::KERNEL_HEADER;
use interop_core::protocols::MAX_NDIM;
use interop_core::{CudaArray, ErrorKind, HostVec, SharedBuffer};
use proptest::prelude::*;

use crate::support::arrays::{Array, Managed};
use crate::support::assert_told;
use crate::support::brute_force::{offsets, settings, small_shapes};
use crate::support::compiler;

const ADDRESS: u64 = 0x7F00_0000_0000;

/// The shape, strides, address and element size.
type Plain = (Vec<usize>, Vec<isize>, u64, usize);

fn together<const K: usize, const N: usize>(
    arrays: &[Plain; K],
) -> interop_core::Result<KernelArrays<'_, K, N>> {
    let views = arrays.each_ref().map(|(shape, strides, address, size)| {
        DynKernelView::new(*address, *size, shape, strides).expect("one stride for each axis")
    });
    Ok(KernelArrays::new(views.each_ref().map(|view| view as &dyn KernelOperand<'_>))?)
}

/// The address of each element in each array, element by element.
fn model<const K: usize>(arrays: &[Plain; K]) -> Vec<[i128; K]> {
    let each = arrays.each_ref().map(|(shape, strides, address, size)| {
        let places = offsets(shape, strides).into_iter();
        places.map(|offset| i128::from(*address) + offset * *size as i128).collect::<Vec<_>>()
    });
    (0..each[0].len()).map(|number| each.each_ref().map(|places| places[number])).collect()
}

/// The same in the order of the kernel.
fn found<const K: usize, const N: usize>(
    arrays: &[Plain; K],
    taken: &KernelArrays<'_, K, N>,
) -> Vec<[i128; K]> {
    let places = |number| {
        let offsets = taken.offsets(number);
        core::array::from_fn(|array| {
            assert!(taken.span(array).contains(&offsets[array]), "{:?}", taken.span(array));
            i128::from(taken.address(array)) + i128::from(offsets[array]) * arrays[array].3 as i128
        })
    };
    (0..taken.numel()).map(places).collect()
}

fn check<const K: usize>(arrays: &[Plain; K]) -> KernelArrays<'_, K, 6> {
    let taken = together(arrays).expect("six axes at most");
    let (mut expected, mut found) = (model(arrays), found(arrays, &taken));
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{arrays:?}\n{taken:?}");
    taken
}

/// Combines a single array and returns its rank, width and first address.
fn run_alone(shape: &[usize], strides: &[isize], address: u64, size: usize) -> (usize, usize, u64) {
    let arrays = [(shape.to_vec(), strides.to_vec(), address, size)];
    let taken = check(&arrays);
    (taken.rank(), taken.width(), taken.address(0))
}

#[test]
fn axes_are_dropped_sorted_turned_and_merged() {
    assert_eq!(run_alone(&[], &[], ADDRESS, 4), (1, 1, ADDRESS));
    assert_eq!(run_alone(&[3, 0, 2], &[7, 7, 7], 0, 4), (1, 1, 0));
    assert_eq!(run_alone(&[4, 6], &[6, 1], ADDRESS, 4), (1, 4, ADDRESS), "C order");
    assert_eq!(run_alone(&[4, 6], &[1, 4], ADDRESS, 4), (1, 4, ADDRESS), "F order");
    assert_eq!(run_alone(&[2, 3, 4, 5], &[1, 40, 10, 2], ADDRESS, 4), (1, 4, ADDRESS), "any order");
    assert_eq!(run_alone(&[4, 1, 6], &[6, 99, 1], ADDRESS, 4), (1, 4, ADDRESS), "an axis of extent 1");
    assert_eq!(run_alone(&[4, 6], &[-6, -1], ADDRESS + 92, 4), (1, 4, ADDRESS), "backwards");
    assert_eq!(run_alone(&[4, 6], &[12, 2], ADDRESS, 4), (1, 1, ADDRESS), "every second element");
    assert_eq!(run_alone(&[4, 6], &[7, 1], ADDRESS, 4), (2, 1, ADDRESS), "padded rows");
    assert_eq!(run_alone(&[4, 8], &[12, 1], ADDRESS, 4), (2, 4, ADDRESS), "padded rows of whole vectors");
    assert_eq!(
        run_alone(&[4, 8], &[9, 1], ADDRESS, 4),
        (2, 1, ADDRESS),
        "rows of vectors that are not aligned"
    );
    assert_eq!(run_alone(&[5, 4], &[8, 1], ADDRESS, 4), (2, 4, ADDRESS), "each row is one vector");
    assert_eq!(run_alone(&[5, 7], &[8, 1], ADDRESS, 4), (2, 4, ADDRESS), "each row ends with a part of one");
    assert_eq!(run_alone(&[5, 4], &[0, 1], ADDRESS, 4), (2, 4, ADDRESS), "the same row again and again");
}

#[test]
fn vectors_need_alignment() {
    for (size, width) in [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1), (3, 1), (12, 1), (32, 1)] {
        assert_eq!(run_alone(&[17], &[1], ADDRESS, size).1, width, "{size} bytes");
        let (one_on, most) = (ADDRESS + size as u64, 2 * width - 1);
        assert_eq!(run_alone(&[most], &[1], one_on, size).1, width, "{size} bytes, one element on");
        assert_eq!(run_alone(&[most - 1], &[1], one_on, size).1, 1, "{size} bytes, no vector after the head");
        assert_eq!(run_alone(&[width - 1], &[1], ADDRESS, size).1, 1, "{size} bytes, too few");
    }
}

#[test]
fn all_arrays_have_to_allow_it() {
    let c = (vec![4, 8], vec![8, 1], ADDRESS, 4);
    let f = (vec![4, 8], vec![1, 4], ADDRESS + 0x1000, 4);
    let row = (vec![4, 8], vec![0, 1], ADDRESS + 0x2000, 4);
    let bytes = (vec![4, 8], vec![8, 1], ADDRESS + 0x3000, 1);
    let shape = |arrays: &[Plain; 2]| {
        let taken = check(arrays);
        (taken.rank(), taken.width())
    };
    assert_eq!(shape(&[c.clone(), c.clone()]), (1, 4));
    assert_eq!(shape(&[f.clone(), f.clone()]), (1, 4));
    assert_eq!(shape(&[c.clone(), f.clone()]), (2, 1));
    assert_eq!(shape(&[c.clone(), row]), (2, 4));
    assert_eq!(shape(&[c.clone(), bytes.clone()]), (1, 4));
    let on = |mut array: Plain, elements: u64| {
        array.2 += elements * array.3 as u64;
        array
    };
    assert_eq!(shape(&[on(c.clone(), 1), on(bytes.clone(), 1)]), (1, 4), "as far from an aligned address");
    assert_eq!(shape(&[on(c.clone(), 1), on(bytes, 2)]), (1, 1), "not as far");
    let backwards = (vec![4, 8], vec![-8, 1], ADDRESS + 0x1000, 4);
    assert_eq!(shape(&[c.clone(), backwards]), (2, 4), "only one of both");
    check(&[c.clone(), f, c]);
}

#[test]
fn a_launch_has_a_thread_for_each_piece_of_work() {
    let launch = |len: usize, stride| {
        let arrays = [(vec![len], vec![stride], ADDRESS, 4)];
        let taken = together::<1, 1>(&arrays).unwrap();
        (taken.launch_size().grid.0, taken.launch_size_within(64).grid.0)
    };
    assert_eq!(launch(0, 1), (1, 1));
    assert_eq!((launch(2048, 1), launch(2052, 1)), ((1, 1), (2, 2)));
    assert_eq!((launch(2048, 2), launch(2049, 2)), ((1, 1), (2, 2)));
    assert_eq!(launch(1 << 28, 1), (1 << 17, 64));
    assert_eq!(launch(1 << 40, 2), (1 << 22, 64), "a slab has fewer than 2^31 units");
}

#[test]
fn what_does_not_go_together_is_told() {
    let square = || (vec![4, 4], vec![4, 1], ADDRESS, 4);
    let wrong = together::<2, 4>(&[square(), (vec![4, 5], vec![5, 1], ADDRESS, 4)]).unwrap_err();
    assert_told(&wrong, (ErrorKind::Shape, "shape", "5 in axis 1 of array 2 of 2", "4, as in array 1"));
    let wrong = together::<2, 4>(&[square(), (vec![4], vec![1], ADDRESS, 4)]).unwrap_err();
    assert_told(&wrong, (ErrorKind::Shape, "axes", "1 in array 2 of 2", "2, as in array 1"));
    let wrong = together::<1, 1>(&[(vec![2, 2], vec![3, 1], ADDRESS, 4)]).unwrap_err();
    assert_told(&wrong, (ErrorKind::Rank, "shape", "2 axes that do not merge", "1 at most, for this kernel"));
    let wrong = together::<1, 8>(&[(vec![1 << 32; 2], vec![1 << 32, 1], ADDRESS, 1)]).unwrap_err();
    assert_told(
        &wrong,
        (ErrorKind::Overflow, "shape", "[4294967296, 4294967296]", "fewer than 2^63 elements"),
    );
    let wrong = together::<1, 8>(&[(vec![1 << 20; 3], vec![1 << 44, 1 << 22, 2], ADDRESS, 1)]).unwrap_err();
    assert_told(
        &wrong,
        (ErrorKind::Overflow, "shape", "more than 2147483647 units", "fewer; copy the array"),
    );
    let wrong = DynKernelView::new(ADDRESS, 4, &[2, 2], &[1]).unwrap_err();
    assert_told(&wrong.into(), (ErrorKind::Strides, "strides", "1", "one for each of 2 axes"));
    let wrong = DynKernelView::new(ADDRESS, 4, &[1; MAX_NDIM + 1], &[1; MAX_NDIM + 1]).unwrap_err();
    assert_told(&wrong.into(), (ErrorKind::Rank, "shape", "65 axes", "at most 64 axes"));
}

#[test]
fn views_and_facts_are_operands() {
    let words = SharedBuffer::new(Managed(HostVec::from([0_u16; 64])));
    let mut array = Array::strided(words.clone(), &[4, 8], &[1, 4]);
    let info = array.info().unwrap();
    let of_facts = info.kernel_view().unwrap();
    let first = KernelArrays::<1, 4>::new([&of_facts]).unwrap();
    let view = array.view_mut::<u16, 2>().unwrap().kernel_view_mut().unwrap();
    let second = KernelArrays::<2, 4>::new([&view, &view.as_view()]).unwrap();
    assert_eq!((first.rank(), first.width(), first.numel()), (1, 8, 32));
    assert_eq!(
        (second.rank(), second.address(0), second.address(1)),
        (1, first.address(0), first.address(0))
    );

    let odd = Array::new(words.byte_offset(1).unwrap(), &[2]).info().unwrap();
    let told = (ErrorKind::Alignment, "data", "0x", "a multiple of 2, the alignment of the element; copy");
    assert_told(&odd.kernel_view().unwrap_err(), told);
    let host = Array::new(SharedBuffer::new(HostVec::from([0_u16; 2])), &[2]).info().unwrap();
    let told = (ErrorKind::Device, "device", "CPU (1)", "memory that a kernel reaches");
    assert_told(&host.kernel_view().unwrap_err(), told);
}

/// If a computation used 32 bits, an offset of these arrays would be wrong.
#[test]
fn large_arrays_are_counted_in_64_bits() {
    let far = (vec![3, 1 << 33], vec![1 << 40, 3], ADDRESS, 1);
    let arrays = [far];
    let taken = together::<1, 2>(&arrays).unwrap();
    assert_eq!((taken.rank(), taken.numel()), (2, 3 << 33));
    // The longest axis was made the outermost.
    assert_eq!(taken.offsets(3 * 7 + 2), [2 * (1 << 40) + 7 * 3]);
    assert_eq!(taken.offsets((3 << 33) - 1), [2 * (1 << 40) + ((1 << 33) - 1) * 3]);
    let flat = [(vec![(1 << 34) + 3], vec![1], ADDRESS, 4)];
    let taken = together::<1, 1>(&flat).unwrap();
    assert_eq!((taken.numel(), taken.offsets((1 << 34) + 2)), ((1 << 34) + 3, [(1 << 34) + 2]));
}

/// Strides that keep elements apart: a permutation of the axes with gaps, some of them negative.
fn spread(shape: &[usize], order: u64, gaps: u64, turns: u64) -> Vec<isize> {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.sort_by_key(|axis| (order >> (8 * axis)) & 0xFF);
    let (mut strides, mut step) = (vec![0; shape.len()], 1);
    for axis in axes {
        // No gap, a gap that keeps vectors aligned, or an odd gap.
        step += [0, 0, 8, 1][(gaps >> (2 * axis) & 3) as usize] * step;
        strides[axis] = if turns >> axis & 1 == 1 { -step } else { step };
        step *= shape[axis].max(1) as isize;
    }
    strides
}

prop_compose! {
    fn plain(shape: Vec<usize>)(
        order: u64, gaps: u64, turns in prop_oneof![Just(0_u64), any::<u64>()],
        repeats in prop_oneof![3 => Just(0_u64), 1 => any::<u64>()],
        size in prop::sample::select(vec![1_usize, 2, 4, 8, 12]), first in prop_oneof![Just(0_u64), 0_u64..4],
    ) -> Plain {
        let mut strides = spread(&shape, order, gaps, turns);
        for (axis, stride) in strides.iter_mut().enumerate() {
            if repeats >> axis & 1 == 1 {
                *stride = 0;
            }
        }
        (shape.clone(), strides, ADDRESS + first * size as u64, size)
    }
}

proptest! {
    #![proptest_config(settings())]

    /// Compared with the element-by-element model.
    #[test]
    fn every_element_is_visited_once(
        (one, two, three) in small_shapes().prop_flat_map(|shape| {
            (plain(shape.clone()), plain(shape.clone()), plain(shape))
        }),
    ) {
        check(core::array::from_ref(&one));
        check(&[one.clone(), two.clone()]);
        check(&[one, two, three]);
    }
}

/// Compiles `elementwise.cpp`, if there is a compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    let names = ["c++", "g++", "clang++"];
    let mut command = compiler::find("CXX", &names, "that the loops of kernels visit every element")?;
    std::fs::write(folder.join("interop.cuh"), KERNEL_HEADER).expect("the folder is ours");
    let program = folder.join("elementwise.exe");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel_view/elementwise.cpp");
    command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror", "-I"]);
    compiler::run(command.arg(folder).arg(source).arg("-o").arg(&program));
    Some(program)
}

/// The input of the program for a case: the number of the kernel, the launch, the argument, and the memory of each
/// array.
fn case<const K: usize>(kernel: u64, arrays: &[Plain; K], launch: [u64; 2]) -> Vec<u8> {
    let taken = together::<K, 8>(arrays).expect("eight axes are enough");
    let mut bytes = Vec::new();
    let mut number = |number: u64| bytes.extend(number.to_ne_bytes());
    [kernel, launch[0], launch[1], K as u64, MEMORY as u64, ADDRESS].into_iter().for_each(&mut number);
    // SAFETY: an argument consists of integers without padding, as is asserted where it is defined, and is borrowed
    // meanwhile.
    bytes.extend(unsafe { slice::from_raw_parts((&raw const taken).cast::<u8>(), size_of_val(&taken)) });
    bytes
}

/// The bytes of each array, with [0, …] in the middle. They are numbered from the array's number on.
const MEMORY: usize = 1 << 16;

fn memory(array: usize) -> Vec<u8> {
    (0..MEMORY).map(|at| (at * 37 / 8 + array).to_le_bytes()[0]).collect()
}

/// The result of the kernels of `elementwise.cpp`, element by element: the first array, or a sum in its first eight
/// bytes.
fn expected<const K: usize>(kernel: u64, arrays: &[Plain; K]) -> Vec<u8> {
    let memories: Vec<Vec<u8>> = (0..K).map(memory).collect();
    let mut first = memories[0].clone();
    let read = |array: usize, address: i128| {
        let at = usize::try_from(address - i128::from(ADDRESS)).expect("within the memory");
        let mut bytes = [0; 8];
        bytes[..arrays[array].3].copy_from_slice(&memories[array][at..at + arrays[array].3]);
        (at, u64::from_le_bytes(bytes))
    };
    let mut sum = 0_u64;
    for places in model(arrays) {
        let (at, old) = read(0, places[0]);
        let result = match kernel {
            0 | 1 => old.wrapping_mul(3).wrapping_add(1),
            2 => read(1, places[1]).1.wrapping_mul(256).wrapping_add(read(2, places[2]).1),
            _ => {
                sum = sum.wrapping_add(old.wrapping_mul(old));
                continue;
            }
        };
        first[at..at + arrays[0].3].copy_from_slice(&result.to_le_bytes()[..arrays[0].3]);
    }
    if kernel == 3 {
        first.clone_from(&memories[0]);
        first[..8].copy_from_slice(&sum.to_le_bytes());
    }
    first
}

/// Runs the cases in one process and compares the memory of the first array.
fn run<const K: usize>(program: &Path, kernel: u64, sizes: [usize; K], cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let shapes = prop::collection::vec(1_usize..6, 0..4);
    let of = |size| move |plain: Plain| (plain.0, plain.1, plain.2, size);
    for number in 0..cases {
        let mut new =
            |strategy: BoxedStrategy<Plain>| strategy.new_tree(&mut runner).expect("a case").current();
        let shape = new(shapes.clone().prop_flat_map(plain).boxed()).0;
        let mut arrays = sizes.map(|size| of(size)(new(plain(shape.clone()).boxed())));
        for (at, (shape, strides, address, size)) in arrays.iter_mut().enumerate() {
            if at == 0 && kernel != 3 && strides.contains(&0) {
                *strides = spread(shape, 0, 0, 0);
            }
            // The middle of the memory, in whole vectors, sometimes shifted by elements.
            *address = ADDRESS + (MEMORY / 2) as u64 + (*address - ADDRESS) / *size as u64 * *size as u64;
        }
        let fits = |place: &i128| (0..MEMORY as i128 - 8).contains(&(place - i128::from(ADDRESS)));
        if !model(&arrays).iter().flatten().all(fits) {
            continue;
        }
        let launch = [[1, 1], [3, 32], [2, 7], [1, 256]][number as usize % 4];
        let mut input = case(kernel, &arrays, launch);
        if number % 3 == 0 {
            // Pretends that one index of the outermost axis has as many units as 32 bits can count, as for large
            // arrays.
            let piece = input.len() - size_of::<KernelArrays<'_, K, 8>>();
            input[piece..piece + 8].copy_from_slice(&1_i64.to_ne_bytes());
        }
        (0..K).for_each(|array| input.extend(memory(array)));
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        child.stdin.take().expect("a pipe").write_all(&input).expect("the program reads");
        let output = child.wait_with_output().expect("the program ends");
        assert!(output.status.success(), "{kernel} {arrays:?}: {}", output.status);
        assert!(output.stdout == expected(kernel, &arrays), "kernel {kernel}, {launch:?}, {arrays:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn the_loops_of_the_header_visit_every_element() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elementwise");
    std::fs::create_dir_all(&folder).expect("the folder for tests is ours");
    let Some(program) = compile(&folder) else { return };
    run(&program, 0, [4], 100);
    run(&program, 1, [1], 100);
    run(&program, 2, [4, 4, 1], 100);
    run(&program, 3, [2], 100);
}
