//! `LaunchScope::launch_unchecked`: kernels in C++, as NVRTC compiles them, and in PTX that is written by hand. The driver runs functions
//! of the same names in their place.
#![expect(unsafe_code, reason = "launches kernels that the compiler does not know")]

use core::ffi::c_void;

use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::kernel::{Thread, ViewMut, kernel};
use interop_core::launch::KernelArgument;
use interop_core::{CudaArray, ErrorKind, KernelModule, LaunchScope, Lease, LeaseMut};
use simulated_cuda::{Arguments, sim};

use crate::counted_imports::{Row, row};
use crate::cuda_program::Place;
use crate::exclusive_driver::{first_gpu, turn};
use crate::rust_kernels::FEW;
use crate::support::assert_told;

/// `extern "C" __global__ void produce(interop::view<unsigned, 1> to, unsigned value)`, compiled by NVRTC. Nothing in it describes
/// the parameters but their sizes.
// SAFETY: no kernel in Rust is launched from it.
static PRODUCE: KernelModule =
    unsafe { KernelModule::new(include_str!("../../examples/kernels/ptx/order.ptx")) };

/// `lent_add(float *out, const float *other, unsigned count)`
// SAFETY: as above.
static LENT_ADD: KernelModule = unsafe { KernelModule::new(include_str!("../cuda/lent_add.ptx")) };

#[kernel]
fn produce(thread: Thread<'_>, mut to: ViewMut<'_, u32, 1>, value: u32) {
    for at in thread.elements(to.shape()) {
        to.set(at, value);
    }
}

/// Adds bytes, which a test of order can tell apart.
extern "C" fn lent_add(_: *const u32, _: *const u32, _: u32, parameters: *const *const c_void) {
    // SAFETY: these are the parameters that the driver passed.
    let arguments = unsafe { Arguments::new(parameters) };
    // SAFETY: the parameters are registered below, with these types.
    let out = unsafe { arguments.get::<u64>(0) };
    // SAFETY: as above.
    let other = unsafe { arguments.get::<u64>(1) };
    // SAFETY: as above.
    let bytes = 4 * unsafe { arguments.get::<u32>(2) } as usize;
    let (Some(out), Some(other)) = (sim().write::<u8>(out, bytes), sim().read::<u8>(other, bytes)) else {
        return;
    };
    for at in 0..bytes {
        // SAFETY: the simulator allows reads of that many bytes there.
        let term = unsafe { other.wrapping_add(at).read() };
        // SAFETY: as above.
        let sum = unsafe { out.wrapping_add(at).read() };
        // SAFETY: the simulator allows writes there.
        unsafe { out.wrapping_add(at).write(sum + term) };
    }
}

#[test]
fn kernel_in_cpp_takes_a_view_and_a_number() {
    let turn = turn();
    turn.register::<produce>();
    let data = CudaBuffer::from_slice(MemoryKind::Managed, 0, &[0_u32; 16]).unwrap();
    let (stream, mut target) = (Place::primary(0).non_blocking().handle(), Row { data, len: 16 });
    let scope = LaunchScope::on(&stream);
    let view = scope.write::<u32, 1>(&mut target).unwrap();
    // SAFETY: the kernel has these parameters, and stays within the view.
    unsafe { scope.launch_unchecked(&PRODUCE, "produce", FEW, &[&view, &7_u32]) }.unwrap();
    // A kernel that was launched is compared again with other arguments.
    turn.reset_calls();
    // SAFETY: nothing is launched.
    let error = unsafe { scope.launch_unchecked(&PRODUCE, "produce", FEW, &[&view]) }.unwrap_err();
    assert!(error.found().contains("of [24] in the program"), "{error}");
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [0]);
    scope.finish().unwrap();
    assert_eq!(target.to_vec::<u32>().unwrap(), [7; 16]);
}

#[test]
fn kernel_with_pointers_comes_after_the_work_on_both_arrays() {
    let turn = turn();
    turn.register_kernel("lent_add", &[8, 8, 4], lent_add);
    let place = Place::primary(0);
    let (writer, reader) = (place.non_blocking(), place.non_blocking());
    let (to, from) = (place.bytes(1, 64), place.bytes(1, 64));
    writer.spin();
    writer.fill(&to, 3);
    reader.spin();
    reader.fill(&from, 5);
    let (mut target, source) = (row::<LeaseMut<i16>>(&to, writer).1, row::<Lease<i16>>(&from, reader).1);
    let scope = LaunchScope::new();
    let (out, other) = (scope.write_any(&mut target).unwrap(), scope.read_any(&source).unwrap());
    let (out, other, count) = (out.address() as *mut f32, other.address() as *const f32, 16_u32);
    // SAFETY: the kernel has these parameters, and the arrays have that many elements.
    unsafe { scope.launch_unchecked(&LENT_ADD, "lent_add", FEW, &[&out, &other, &count]) }.unwrap();
    scope.finish().unwrap();
    drop((target, source));
    reader.fill(&from, 6);
    assert_eq!((writer.reads(&to), reader.reads(&from)), (8, 6));
}

/// A struct that a kernel takes by value.
#[repr(C)]
struct Settings {
    value: u32,
    steps: [u64; 3],
}

impl KernelArgument for Settings {}

#[test]
fn arguments_that_the_ptx_does_not_have_are_refused() {
    let (turn, place) = first_gpu();
    let (one, two, to) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    let mut target: Row<LeaseMut<i16>> = row(&to, one).1;
    let other: Row<Lease<i16>> = row(&place.bytes(1, 64), two).1;
    let (scope, elsewhere) = (LaunchScope::new(), LaunchScope::new());
    let view = scope.write::<i16, 1>(&mut target).unwrap();
    let foreign = elsewhere.read::<i16, 1>(&other).unwrap();
    turn.reset_calls();
    let refused = |name, arguments: &[&dyn KernelArgument]| {
        // SAFETY: nothing is launched.
        unsafe { scope.launch_unchecked(&PRODUCE, name, FEW, arguments) }.unwrap_err()
    };
    let settings = Settings { value: 1, steps: [0; 3] };
    let found = "parameters of [24, 4] bytes in the PTX, and of [24, 32] in the program";
    let of_driver = |found| (ErrorKind::Driver, "produce", found, "compile it again");
    assert_told(&refused("produce", &[&view, &settings]), of_driver(found));
    assert_eq!((settings.value, settings.steps[0]), (1, 0));
    let found = "parameters of [24, 4] bytes in the PTX, and of [24] in the program";
    assert_told(&refused("produce", &[&view]), of_driver(found));
    assert!(refused("missing", &[]).found().contains("no kernel of this name in the PTX"));
    let error = refused("produce", &[&foreign, &1_u32]);
    assert_eq!((error.kind(), error.found()), (ErrorKind::Stream, "an array of another scope"));
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [0]);
}
