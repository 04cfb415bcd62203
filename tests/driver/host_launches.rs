//! Launches over arrays of the CPU: the kernel runs there, in the scope and with the errors of a launch on a GPU, and the driver hears
//! nothing of it.
#![expect(unsafe_code, reason = "names PTX, and launches it where that is refused")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use interop_core::arrays::ArrayD;
use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::kernel::{
    Atomic, BlockThread, Blocks, Elementwise, In, Out, Rows, Team, Thread, View, ViewMut, kernel,
};
use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor};
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::Mutability;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, HostVec, KernelModule, LaunchScope, LaunchSize, SharedBuffer,
    StreamHandle,
};

use crate::children::child_does;
use crate::cuda_program::Place;
use crate::exclusive_driver::turn;
use crate::support::allocator::watch;
use crate::support::arrays::{Array, Pinned};
use crate::support::assert_told;
use crate::support::run_alone;

#[kernel(same_shape(to, from))]
fn add(thread: Thread<'_>, mut to: ViewMut<'_, i16, 1>, from: View<'_, i16, 1>, by: i16) {
    for at in thread.elements(to.shape()) {
        to.set(at, to.get(at) + from.get(at) + by);
    }
}

#[kernel]
fn add_all(thread: Thread<'_>, arrays: Elementwise<'_, (Out<i16>, In<i16>)>) {
    arrays.map_inplace(&thread, |to, from| to + from);
}

#[kernel]
fn row_sums(mut team: Team<'_>, x: View<'_, f32, 2>, mut sums: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        row.set(&mut sums, row.sum(&x, |x| x));
    }
}

#[kernel]
fn count(thread: Thread<'_>, bytes: View<'_, u8, 1>, counts: ViewMut<'_, u32, 1, Atomic>) {
    thread.elements(bytes.shape()).for_each(|at| {
        counts.add([bytes.get(at).into()], 1);
    });
}

#[kernel]
fn number_blocks(thread: BlockThread<'_>, mut numbers: ViewMut<'_, u64, 1, Blocks>) {
    if let Some(at) = thread.of_block(numbers.shape()) {
        numbers.set(at, thread.block());
    }
}

#[kernel]
fn checked(thread: Thread<'_>, arrays: Elementwise<'_, (Out<i16>,)>) {
    arrays.map_inplace(&thread, |x| x.checked_add(1).expect("below the maximum"));
}

#[kernel]
fn first_only(thread: Thread<'_>, mut numbers: ViewMut<'_, i16, 1>) {
    if let Some(at) = thread.elements(numbers.shape()).next() {
        numbers.set(at, 1);
    }
}

/// No driver compiles it.
// SAFETY: no launch of these tests loads it.
static KERNELS: KernelModule = unsafe { KernelModule::new("no PTX at all") };

const FEW: LaunchSize = LaunchSize { grid: (1, 1, 1), block: (4, 1, 1) };

fn row(numbers: &[i16]) -> Array<HostVec<i16>> {
    Array::new(HostVec::from(numbers.to_vec()), &[numbers.len()])
}

fn on_gpu(numbers: &[i16]) -> Array<CudaBuffer> {
    Array::new(CudaBuffer::from_slice(MemoryKind::Device, 0, numbers).unwrap(), &[numbers.len()])
}

fn numbers(array: &impl CudaArray) -> Vec<i16> {
    array.to_vec().unwrap()
}

#[test]
fn kernel_runs_on_the_cpu_without_a_call_of_the_driver() {
    let turn = turn();
    let (mut to, from) = (row(&[1, 2, 3]), row(&[10, 20, 30]));
    turn.reset_calls();
    let scope = LaunchScope::new();
    let arguments = add::try_with(scope.write(&mut to), scope.read(&from), 100).unwrap();
    scope.launch(&KERNELS, FEW, arguments).unwrap();
    scope.finish().unwrap();
    assert_eq!((numbers(&to), turn.all_calls()), (vec![111, 122, 133], 0));
}

/// The array is an argument that a C caller lends, as those of `hello-functions`.
#[test]
fn a_small_call_makes_one_list_and_asks_only_where_its_arrays_are() {
    let turn = turn();
    let (mut numbers, other, mut shape) = ([1_i16, 2, 3], [10_i16, 20, 30], [3_i64]);
    let tensor = |data: *const i16, shape: &mut [i64; 1]| DLTensor {
        data: data.cast_mut().cast(),
        device: Device::CPU,
        ndim: 1,
        dtype: DType::I16,
        shape: shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let to = tensor(numbers.as_mut_ptr(), &mut shape);
    let from = tensor(other.as_ptr(), &mut shape);
    let call = || -> interop_core::Result<()> {
        // SAFETY: the tensor describes `numbers`, which live, and which nothing else uses meanwhile. No stream is stated.
        let mut to: ArrayD<BorrowedMut<'_, i16>> =
            unsafe { BorrowedTensor::array(&raw const to, Mutability::Writable, false, |_| None) }?;
        // SAFETY: as above, for `other`.
        let from: ArrayD<Borrowed<'_, i16>> =
            unsafe { BorrowedTensor::array(&raw const from, Mutability::ReadOnly, false, |_| None) }?;
        for with_other in [false, true] {
            let scope = LaunchScope::new();
            if with_other {
                let arrays = scope.elementwise((&mut to, &from))?;
                scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays))?;
            } else {
                let arrays = scope.elementwise((&mut to,))?;
                scope.launch(&KERNELS, arrays.launch_size(), checked::with(arrays))?;
            }
            scope.finish()?;
        }
        Ok(())
    };
    // The first call makes the lists of the record, which stay.
    call().unwrap();
    turn.reset_calls();
    let (called, tally) = watch(call);
    called.unwrap();
    // The list for the second array of a scope, and a question for each import.
    assert_eq!((tally.made, turn.all_calls()), (1, 2));
    assert_eq!(numbers, [23, 44, 65]);
}

#[test]
fn kernels_of_each_kind_run_in_one_scope() {
    let _turn = turn();
    let turned = Array::strided(HostVec::from(vec![1_i16, 2, 3, 4, 5, 6]), &[3, 2], &[1, 3]);
    let mut sum = Array::new(HostVec::from(vec![10_i16; 6]), &[3, 2]);
    let x = Array::new(HostVec::from((0..600_u16).map(f32::from).collect::<Vec<_>>()), &[3, 200]);
    let mut sums = Array::new(HostVec::from(vec![0.0_f32; 3]), &[3]);
    let bytes = Array::new(HostVec::from(b"abracadabra".to_vec()), &[11]);
    let mut counts = Array::new(HostVec::from(vec![0_u32; 256]), &[256]);
    let mut blocks = Array::new(HostVec::from(vec![0_u64; 5]), &[5]);
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((&mut sum, &turned)).unwrap();
    scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays)).unwrap();
    let size = LaunchSize::for_rows::<f32>(3, 200);
    let arguments = row_sums::try_with(scope.read(&x), scope.write(&mut sums)).unwrap();
    scope.launch(&KERNELS, size, arguments).unwrap();
    let arguments = count::try_with(scope.read(&bytes), scope.write(&mut counts)).unwrap();
    scope.launch(&KERNELS, LaunchSize::for_units(11), arguments).unwrap();
    let size = LaunchSize { grid: (5, 1, 1), block: (2, 1, 1) };
    scope.launch(&KERNELS, size, number_blocks::try_with(scope.write(&mut blocks)).unwrap()).unwrap();
    scope.finish().unwrap();
    assert_eq!(numbers(&sum), [11, 14, 12, 15, 13, 16]);
    assert_eq!(sums.to_vec::<f32>().unwrap(), [19_900.0, 59_900.0, 99_900.0]);
    let counts = counts.to_vec::<u32>().unwrap();
    assert_eq!(b"abrz".map(|byte| counts[usize::from(byte)]), [5, 2, 2, 0]);
    assert_eq!(blocks.to_vec::<u64>().unwrap(), [0, 1, 2, 3, 4]);
}

/// Adds more elements than one thread has, with the feature `rayon` on several.
fn add_many() {
    let from: Vec<i16> = (0..1_000_000_u32).map(|at| (at % 1000) as i16).collect();
    let (mut to, added) = (row(&from), row(&from));
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((&mut to, &added)).unwrap();
    scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays)).unwrap();
    drop(scope);
    assert!(numbers(&to).iter().zip(&from).all(|(sum, x)| *sum == 2 * x));
}

#[test]
fn a_large_array_is_done_once() {
    let _turn = turn();
    add_many();
}

/// The threads that a launch has used do not live in a child that is forked later: it would wait for them for ever.
#[test]
fn a_child_launches_after_a_launch_of_its_parent() {
    run_alone("host_launches::a_child_launches_after_a_launch_of_its_parent", || {
        add_many();
        child_does(|| {
            add_many();
            child_does(add_many);
        });
        add_many();
    });
}

#[test]
fn arrays_without_elements_are_launched() {
    let _turn = turn();
    let (mut to, from) = (row(&[]), row(&[]));
    let x = Array::new(HostVec::from(Vec::<f32>::new()), &[2, 0]);
    let mut sums = Array::new(HostVec::from(vec![1.0_f32; 2]), &[2]);
    let scope = LaunchScope::new();
    scope.launch(&KERNELS, FEW, add::try_with(scope.write(&mut to), scope.read(&from), 1).unwrap()).unwrap();
    let arguments = row_sums::try_with(scope.read(&x), scope.write(&mut sums)).unwrap();
    scope.launch(&KERNELS, LaunchSize::for_rows::<f32>(2, 0), arguments).unwrap();
    scope.finish().unwrap();
    assert_eq!(sums.to_vec::<f32>().unwrap(), [0.0, 0.0], "the sum of no elements");
}

#[test]
fn arrays_of_two_places_are_refused() {
    let _turn = turn();
    let (mut host, gpu) = (row(&[1, 2, 3]), on_gpu(&[1, 2, 3]));
    let beside = |error: &interop_core::Error, found, allowed| {
        assert_told(error, (ErrorKind::Device, "device", found, allowed));
    };
    let scope = LaunchScope::new();
    let error = scope.elementwise::<(Out<i16>, In<i16>), 4>((&mut host, &gpu)).unwrap_err();
    beside(&error, "CUDA (2), ordinal 0", "CPU (1), where the first array of the scope is");
    drop(scope);
    let scope = LaunchScope::new();
    scope.read::<i16, 1>(&gpu).unwrap();
    let error = scope.read::<i16, 1>(&host).unwrap_err();
    beside(&error, "CPU (1)", "CUDA (2), ordinal 0, where the first array of the scope is");
    drop(scope);
    // Pinned memory is that of a GPU.
    let pinned = Array::new(Pinned(HostVec::from(vec![1_i16, 2])), &[2]);
    let managed = Array::new(CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::I16, 2).unwrap(), &[2]);
    let scope = LaunchScope::new();
    scope.read::<i16, 1>(&host).unwrap();
    beside(&scope.read_any(&pinned).unwrap_err(), "CUDAHost (3)", "CPU (1)");
    beside(&scope.read_any(&managed).unwrap_err(), "CUDAManaged (13)", "CPU (1)");
    drop(scope);
    let stream = Place::primary(0).blocking().handle();
    let scope = LaunchScope::on(&stream);
    let error = scope.read::<i16, 1>(&host).unwrap_err();
    beside(&error, "CPU (1)", "memory that a GPU reaches, because the scope is on a stream");
}

#[test]
fn other_launches_need_a_gpu() {
    let _turn = turn();
    let mut host = row(&[1, 2]);
    let scope = LaunchScope::new();
    let view = scope.write::<i16, 1>(&mut host).unwrap();
    // SAFETY: it is refused.
    let launched = unsafe { scope.launch_unchecked(&KERNELS, "scale", FEW, &[&view]) };
    let allowed = "over arrays of the CPU a scope launches kernels in Rust only, by `launch`";
    for error in [launched.unwrap_err(), scope.stream::<StreamHandle>().unwrap_err()] {
        assert_told(&error, (ErrorKind::Device, "device", "CPU (1)", allowed));
    }
    let view = row(&[1]);
    let view = view.view::<i16, 1>().unwrap();
    let error = view.kernel_view().unwrap_err();
    assert_told(&error, (ErrorKind::Device, "device", "CPU (1)", "memory that a kernel reaches"));
}

#[test]
fn arguments_that_do_not_fit_are_errors_before_the_launch() {
    let _turn = turn();
    let (mut to, from) = (row(&[1, 2, 3]), row(&[1, 2]));
    let scope = LaunchScope::new();
    let arguments = add::try_with(scope.write(&mut to), scope.read(&from), 1).unwrap();
    let error = scope.launch(&KERNELS, FEW, arguments).unwrap_err();
    assert_told(&error, (ErrorKind::Shape, "from", "2 elements", "3 elements, as in `to`"));
    drop(scope);
    let scope = LaunchScope::new();
    let none = LaunchSize { grid: (0, 1, 1), block: (1, 1, 1) };
    let error =
        scope.launch(&KERNELS, none, first_only::try_with(scope.write(&mut to)).unwrap()).unwrap_err();
    assert_told(&error, (ErrorKind::Shape, "size", "grid: (0, 1, 1)", "1 to 1024 threads in a block"));
    assert!(error.to_string().contains("kernel `first_only`"), "{error}");
    drop(scope);
    let other = LaunchScope::new();
    let scope = LaunchScope::new();
    let arguments = first_only::try_with(other.write(&mut to)).unwrap();
    let error = scope.launch(&KERNELS, FEW, arguments).unwrap_err();
    assert_told(&error, (ErrorKind::Stream, "arguments", "an array of another scope", "this scope"));
    drop((scope, other));
    assert_eq!(numbers(&to), [1, 2, 3]);
}

/// Somebody writes the memory meanwhile.
fn assert_in_use(error: &interop_core::Error) {
    let allowed = "one writer, or any number of readers, of the same memory";
    assert_told(error, (ErrorKind::AlreadyBorrowed, "data", "a writer of 0x", allowed));
}

#[test]
fn memory_that_others_use_is_refused() {
    let _turn = turn();
    let shared = SharedBuffer::new(HostVec::from(vec![1_i16, 2, 3, 4]));
    let [mut one, mut other] = [shared.clone(), shared].map(|data| Array::new(data, &[4]));
    let scope = LaunchScope::new();
    assert_in_use(&scope.elementwise::<(Out<i16>, In<i16>), 4>((&mut one, &other)).unwrap_err());
    drop(scope);
    let view = other.view_mut::<i16, 1>().unwrap();
    let open = view.host_view_mut().unwrap();
    let scope = LaunchScope::new();
    assert_in_use(&scope.read::<i16, 1>(&one).unwrap_err());
    drop(scope);
    drop(open);
    let scope = LaunchScope::new();
    let arguments = first_only::try_with(scope.write(&mut one));
    assert_eq!(
        arguments.err().map(|error| error.to_string()),
        None,
        "the other handle does not use it any more"
    );
}

/// Arguments that a caller lends may be parts of one array, if no element is in two of them.
#[test]
fn arguments_that_overlap_are_refused() {
    let _turn = turn();
    let mut memory = [1_i16, 2, 3, 4, 5, 6];
    let data = memory.as_mut_ptr();
    let add = |first: u64, stride: i64| {
        let (mut shape, mut strides) = ([3_i64], [stride]);
        let mut tensor = |byte_offset| DLTensor {
            data: data.cast(),
            device: Device::CPU,
            ndim: 1,
            dtype: DType::I16,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset,
        };
        let (to, from) = (tensor(0), tensor(2 * first));
        // SAFETY: the tensor describes elements of `memory`, which live, and which nothing else uses meanwhile but `from`.
        let mut to: ArrayD<BorrowedMut<'_, i16>> =
            unsafe { BorrowedTensor::array(&raw const to, Mutability::Writable, false, |_| None) }?;
        // SAFETY: as above.
        let from: ArrayD<Borrowed<'_, i16>> =
            unsafe { BorrowedTensor::array(&raw const from, Mutability::ReadOnly, false, |_| None) }?;
        let scope = LaunchScope::new();
        let arrays = scope.elementwise((&mut to, &from))?;
        scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays))?;
        scope.finish()
    };
    add(3, 1).unwrap();
    add(1, 2).unwrap();
    for (first, stride) in [(0, 1), (2, 1), (2, 2)] {
        assert_in_use(&add(first, stride).unwrap_err());
    }
    assert_eq!(memory, [5 + 7, 7, 9 + 4, 4, 5 + 6, 6]);
}

/// The scope ends, and the array is used again.
#[test]
fn a_panic_of_the_kernel_passes_through_the_scope() {
    let _turn = turn();
    let mut to = row(&[1, i16::MAX, 3]);
    let launch = |to: &mut Array<HostVec<i16>>| {
        let scope = LaunchScope::new();
        let arrays = scope.elementwise((to,)).unwrap();
        scope.launch(&KERNELS, arrays.launch_size(), checked::with(arrays)).unwrap();
        scope.finish().unwrap();
    };
    let panic = catch_unwind(AssertUnwindSafe(|| launch(&mut to))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap() == "below the maximum");
    assert_eq!(numbers(&to), [2, i16::MAX, 3], "what was done before");
    to = row(&[1, 2, 3]);
    launch(&mut to);
    assert_eq!(numbers(&to), [2, 3, 4]);
    // One of several threads panics.
    let mut many = vec![1; 1_000_000];
    many[999_999] = i16::MAX;
    let mut many = row(&many);
    let panic = catch_unwind(AssertUnwindSafe(|| launch(&mut many))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap() == "below the maximum");
    assert_eq!(numbers(&many)[999_999], i16::MAX);
    launch(&mut to);
    assert_eq!(numbers(&to), [3, 4, 5]);
    let scope = LaunchScope::new();
    let arguments = first_only::try_with(scope.write(&mut to)).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| scope.launch(&KERNELS, FEW, arguments))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("kernel `first_only` did not take all of its elements"), "{text}");
}
