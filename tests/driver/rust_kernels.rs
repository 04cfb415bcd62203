//! `LaunchScope::launch` of kernels in Rust: the driver runs the functions themselves, after the work on their arrays and before what
//! follows, and what does not fit is an error before the launch.
#![expect(unsafe_code, reason = "names the PTX of the kernels")]

use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::kernel::{
    Blocks, Elementwise, In, KernelElement, Out, Rows, Team, Thread, View, ViewMut, kernel,
};
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{
    CudaArray, Element, ErrorKind, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut, Storage as _,
    StreamHandle,
};
use simulated_cuda::Mistake;

use crate::counted_imports::{Row, row};
use crate::cuda_program::Place;
use crate::exclusive_driver::turn;
use crate::support::arrays::{Array, Claimed};
use crate::support::assert_told;

#[kernel(same_shape(to, from))]
pub(crate) fn add(thread: Thread<'_>, mut to: ViewMut<'_, i16, 1>, from: View<'_, i16, 1>, by: i16) {
    for at in thread.elements(to.shape()) {
        to.set(at, to.get(at) + from.get(at) + by);
    }
}

#[kernel]
fn add_all(thread: Thread<'_>, arrays: Elementwise<'_, (Out<i16>, In<i16>)>) {
    arrays.map_inplace(&thread, |to, from| to + from);
}

#[kernel]
fn quadruple(thread: Thread<'_>, arrays: Elementwise<'_, (Out<[i16; 4]>, In<[i16; 4]>)>) {
    arrays.map(&thread, |from| from.map(|number| 4 * number));
}

#[kernel]
fn look(_: Thread<'_>, _array: View<'_, i16, 1>) {}

#[kernel]
fn look_at_all(_: Thread<'_>, _arrays: Elementwise<'_, (In<i16>,)>) {}

/// The simulated driver has no function for it.
#[kernel]
fn unregistered(_thread: Thread<'_>) {}

/// The PTX is that of an array with two axes.
#[kernel]
fn changed(_: Thread<'_>, _array: View<'_, i16, 1>) {}

/// No PTX has it.
#[kernel]
fn forgotten(_thread: Thread<'_>) {}

/// The simulated driver reads the names only, and the launch the sizes of the parameters, too.
const PTX: &str = "
    .version 7.0
    .target sm_70
    .visible .entry add(.param .b8 a[24], .param .b8 b[24], .param .b16 c)
    .visible .entry add_all(.param .b8 a[200])
    .visible .entry quadruple(.param .b8 a[200])
    .visible .entry number_blocks(.param .b8 a[24])
    .visible .entry unregistered()
    .visible .entry look(.param .b8 a[24])
    .visible .entry look_at_all(.param .b8 a[160])
    .visible .entry changed(.param .b8 a[40])
";

// SAFETY: it runs on the simulated driver, which runs the functions above.
pub(crate) static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

pub(crate) const FEW: LaunchSize = LaunchSize { grid: (2, 1, 1), block: (3, 1, 1) };

#[test]
fn kernel_comes_after_the_work_on_both_arrays_and_before_what_follows() {
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    for (writer, reader) in [(place.non_blocking(), place.blocking()), (place.legacy(), place.non_blocking())]
    {
        let (to, from) = (place.bytes(1, 64), place.bytes(1, 64));
        writer.spin();
        writer.fill(&to, 3);
        reader.spin();
        reader.fill(&from, 5);
        let (mut target, source) = (row::<LeaseMut<i16>>(&to, writer).1, row::<Lease<i16>>(&from, reader).1);
        let scope = LaunchScope::new();
        let arguments = add::with(scope.write(&mut target).unwrap(), scope.read(&source).unwrap(), 0x0101);
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        scope.finish().unwrap();
        drop((target, source));
        reader.fill(&from, 6);
        // Each byte is 3 + 5 + 1.
        assert_eq!((writer.reads(&to), reader.reads(&from)), (9, 6));
        turn.assert_no_reports();
    }
}

/// Both scopes order their own arrays only.
#[test]
fn arguments_of_another_scope_are_refused() {
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    let (to, from) = (place.bytes(3, 64), place.bytes(5, 64));
    let (one, two) = (place.non_blocking(), place.non_blocking());
    let (mut target, source) = (row::<LeaseMut<i16>>(&to, one).1, row::<Lease<i16>>(&from, two).1);
    let (first, second) = (LaunchScope::new(), LaunchScope::new());
    let arguments = add::with(first.write(&mut target).unwrap(), second.read(&source).unwrap(), 0);
    turn.reset_calls();
    let refused = first.launch(&KERNELS, FEW, arguments).unwrap_err();
    assert_eq!((refused.kind(), refused.found()), (ErrorKind::Stream, "an array of another scope"));
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [0]);
}

/// Both scopes have the array, each on its own stream, and order its uses on that stream.
#[test]
fn arguments_of_another_scope_with_the_same_array_are_refused() {
    let turn = turn();
    turn.register::<look>();
    turn.register::<look_at_all>();
    let place = Place::primary(0);
    let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &[5_i16; 8]).unwrap();
    let (one, two) = (place.non_blocking().handle(), place.non_blocking().handle());
    let source = Row { data, len: 8 };
    let (first, second) = (LaunchScope::on(&one), LaunchScope::on(&two));
    let own = first.read::<i16, 1>(&source).unwrap();
    let other = second.read::<i16, 1>(&source).unwrap();
    assert_eq!(own.address(), other.address());
    let [own_arrays, arrays] = [&first, &second].map(|scope| scope.elementwise((&source,)).unwrap());
    turn.reset_calls();
    for refused in [
        // SAFETY: nothing is launched.
        unsafe { first.launch_unchecked(&KERNELS, "look", FEW, &[&other]) },
        // SAFETY: as above.
        unsafe { first.launch_unchecked(&KERNELS, "look_at_all", FEW, &[&arrays]) },
        first.launch(&KERNELS, FEW, look::with(other)),
        second.launch(&KERNELS, FEW, look::with(own)),
        first.launch(&KERNELS, FEW, look_at_all::with(arrays)),
        second.launch(&KERNELS, FEW, look_at_all::with(own_arrays)),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.found()), (ErrorKind::Stream, "an array of another scope"));
    }
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [0]);
    // A kernel in another language takes them by value, too.
    let arrays = first.elementwise::<(In<i16>,), 4>((&source,)).unwrap();
    // SAFETY: the kernel has this parameter, and only reads.
    unsafe { first.launch_unchecked(&KERNELS, "look_at_all", FEW, &[&arrays]) }.unwrap();
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [1]);
}

/// Pinned memory is of no device. The default stream of the scope is that of the device of the array after it.
#[test]
fn pinned_memory_first_and_another_device_after_it() {
    let turn = turn();
    turn.register::<add>();
    let (zero, one) = (Place::primary(0), Place::primary(1));
    zero.with(|| {
        let mut from = array(&[5; 8], &[8], &[1]);
        from.stream = StreamHandle::LegacyDefault;
        let data = CudaBuffer::zeroed(MemoryKind::Device, 1, interop_core::DType::I16, 8).unwrap();
        let mut to = Row { data, len: 8 };
        turn.run_all();
        let address = from.info().unwrap().address();
        let busy = zero.legacy().spin();
        zero.legacy().fill(&zero.legacy().bytes_at(address, 16), 7);
        let scope = LaunchScope::new();
        let arguments = {
            let from = scope.read(&from).unwrap();
            add::with(scope.write(&mut to).unwrap(), from, 0)
        };
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        scope.finish().unwrap();
        one.with(|| one.legacy().finish());
        assert!(!turn.is_pending(busy), "the kernel came after the write");
        turn.assert_no_reports();
    });
}

/// The scope is all that uses the arrays, so they are released at once.
#[test]
fn an_argument_of_any_rank_does_not_give_the_address_away() {
    let turn = turn();
    turn.register::<add_all>();
    let place = Place::primary(0);
    let (stream, busy, to, from) =
        (place.non_blocking(), place.non_blocking(), place.bytes(1, 64), place.bytes(2, 64));
    busy.spin();
    let (mut target, source) = (row::<LeaseMut<i16>>(&to, stream).1, row::<Lease<i16>>(&from, stream).1);
    let scope = LaunchScope::new();
    let arrays = scope.elementwise((&mut target, &source)).unwrap();
    scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays)).unwrap();
    scope.finish().unwrap();
    drop((target, source));
    assert_eq!(interop_core::cuda::pending_releases(), 0);
    assert_eq!(stream.reads(&to), 3);
}

fn array(numbers: &[i16], shape: &[usize], strides: &[isize]) -> Array<CudaBuffer> {
    Array::strided(CudaBuffer::from_slice(MemoryKind::Managed, 0, numbers).unwrap(), shape, strides)
}

#[test]
fn arrays_of_any_rank_are_one_argument() {
    let turn = turn();
    turn.register::<add_all>();
    let numbers: Vec<i16> = (0..24).collect();
    for (shape, strides) in
        [(&[24][..], &[1][..]), (&[4, 6], &[6, 1]), (&[6, 4], &[1, 6]), (&[2, 3, 4], &[1, 2, 6])]
    {
        let (mut to, from) = (array(&numbers, shape, strides), array(&numbers, shape, strides));
        let scope = LaunchScope::new();
        let arrays = scope.elementwise((&mut to, &from)).unwrap();
        scope.launch(&KERNELS, arrays.launch_size(), add_all::with(arrays)).unwrap();
        scope.finish().unwrap();
        let (sums, before) = (to.to_vec::<i16>().unwrap(), from.to_vec::<i16>().unwrap());
        assert!(sums.iter().zip(before).all(|(sum, before)| *sum == 2 * before), "{shape:?}");
        turn.assert_no_reports();
    }
}

/// The address of an element is a multiple of the size of its items, not of its own size.
#[test]
fn elements_of_small_items_begin_at_any_item() {
    let turn = turn();
    turn.register::<quadruple>();
    let numbers: Vec<i16> = (0..9).collect();
    for first in [0, 1_u8] {
        let owners = [(); 2].map(|()| CudaBuffer::from_slice(MemoryKind::Managed, 0, &numbers).unwrap());
        let [mut to, from] = owners.each_ref().map(|owner| Array::new(part(owner, first), &[2, 4]));
        let scope = LaunchScope::new();
        let arrays = scope.elementwise((&mut to, &from)).unwrap();
        scope.launch(&KERNELS, arrays.launch_size(), quadruple::with(arrays)).unwrap();
        scope.finish().unwrap();
        let first = i16::from(first);
        assert_eq!(
            to.to_vec::<i16>().unwrap(),
            (first..first + 8).map(|number| 4 * number).collect::<Vec<_>>()
        );
        turn.assert_no_reports();
    }
}

/// Eight numbers of managed memory.
fn part(owner: &CudaBuffer, first: u8) -> Claimed {
    let region = owner.memory().unwrap();
    let (address, device) = (region.address + 2 * usize::from(first), region.device);
    Claimed(MemoryRegion::new::<i16>(address, 8, device, Mutability::Writable))
}

#[test]
fn kernel_that_the_driver_lacks_is_a_mistake_in_the_ptx() {
    let turn = turn();
    let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
    let error = scope.launch(&KERNELS, FEW, unregistered::with()).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Driver, "cuModuleGetFunction"));
    assert!(
        error.found().contains("(500)") && error.allowed().contains("with the kernel unregistered"),
        "{error}"
    );
    turn.expect(Mistake::NoKernel);
}

#[test]
fn what_does_not_fit_is_an_error_before_the_launch() {
    let turn = turn();
    turn.register::<add>();
    turn.register::<add_all>();
    let (mut to, from, mut same) =
        (array(&[1; 3], &[3], &[1]), array(&[1; 2], &[2], &[1]), array(&[1; 1], &[3], &[0]));
    turn.reset_calls();
    let told = |error: &interop_core::Error, kind, at, found, allowed| {
        assert_told(error, (kind, at, found, allowed));
    };
    {
        let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
        let arguments = add::with(scope.write(&mut to).unwrap(), scope.read(&from).unwrap(), 1);
        let error = scope.launch(&KERNELS, FEW, arguments).unwrap_err();
        told(&error, ErrorKind::Shape, "from", "2 elements", "3 elements, as in `to`");
    }
    {
        let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
        let error = scope.elementwise((&mut same, &to)).map(add_all::with).unwrap_err();
        told(
            &error,
            ErrorKind::Strides,
            "strides",
            "[0] for shape [3]",
            "strides under which no two indices",
        );
    }
    {
        let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
        let error =
            scope.write(&mut same).map(|to| add::with(to, scope.read(&from).unwrap(), 1)).unwrap_err();
        told(
            &error,
            ErrorKind::Strides,
            "strides",
            "[0] for shape [3]",
            "strides under which no two indices",
        );
        let error = scope.launch(&KERNELS, FEW, changed::with(scope.read(&from).unwrap())).unwrap_err();
        let found = "parameters of [40] bytes in the PTX, and of [24] in the program";
        told(&error, ErrorKind::Driver, "changed", found, "compile it again");
        let error = scope.launch(&KERNELS, FEW, forgotten::with()).unwrap_err();
        told(
            &error,
            ErrorKind::Driver,
            "forgotten",
            "no kernel of this name in the PTX",
            "PTX of the kernels",
        );
    }
    assert_eq!(turn.calls("cuLaunchKernel"), 0);
}

/// On a device, an alias or a field may be another one, by `cfg(target_arch)`. All views have 24 bytes.
#[derive(Clone, Copy, Element, KernelElement)]
#[repr(C)]
struct Point {
    x: f32,
    y: f32,
}

#[kernel]
fn shift(thread: Thread<'_>, mut points: ViewMut<'_, Point, 1>, by: Point, factor: f32) {
    for at in thread.elements(points.shape()) {
        let Point { x, y } = points.get(at);
        points.set(at, Point { x: x + factor * by.x, y: y + factor * by.y });
    }
}

/// PTX of `shift` with what a device build writes about its parameters.
fn ptx_of_shift(layout: &str) -> KernelModule {
    let (bytes, count) =
        (format!("{:?}", layout.as_bytes()).replace('[', "{").replace(']', "}"), layout.len());
    let ptx = format!(
        ".version 6.0\n.target sm_70\n\
         .visible .global .align 1 .b8 interop_layout_shift_all[1] = {{0}};\n\
         .visible .global .align 1 .b8 interop_layout_shift[{count}] = {bytes};\n\
         .visible .entry shift(.param .b8 a[24], .param .b8 b[8], .param .b32 c)\n"
    );
    // SAFETY: it runs on the simulated driver, which runs the function above.
    unsafe { KernelModule::new(ptx.leak()) }
}

#[test]
fn types_of_another_layout_on_the_device_are_an_error_before_the_launch() {
    let turn = turn();
    turn.register::<shift>();
    let point = "{x: f32 at 0, y: f32 at 4, size 8, alignment 4}";
    let right = str::from_utf8(interop_core::kernel::host::layout::<shift>()).unwrap();
    let parameters = format!("points: ViewMut<{point}, 1>\nby: {point}\nfactor: f32\n");
    assert!(right.starts_with(&format!("{parameters}{{code ")), "{right}");
    let numbers = CudaBuffer::from_slice(MemoryKind::Managed, 0, &[Point { x: 1.0, y: 2.0 }]).unwrap();
    let mut points = Row { data: numbers, len: 1 };
    let mut launch = |layout: &str| {
        let scope = LaunchScope::new();
        let arguments = shift::with(scope.write(&mut points).unwrap(), Point { x: 1.0, y: 2.0 }, 2.0);
        scope.launch(&ptx_of_shift(layout), FEW, arguments)
    };
    let own = format!("`points: ViewMut<{point}, 1>`, as in the program");
    let cases = [
        (
            ("y: f32", "y: f64"),
            "`points: ViewMut<{x: f32 at 0, y: f64 at 4, size 8, alignment 4}, 1>`",
            &*own,
        ),
        (("at 4, size 8", "at 4, size 12"), "", &own),
        (("x: f32 at 0, y", "y: f32 at 0, x"), "`points: ViewMut<{y: f32 at 0, x: f32 at 4", &own),
        (("ViewMut<", "View<"), "`points: View<", &own),
        (("1>", "1, Packs<4>>"), "1, Packs<4>>` in the PTX", &own),
        (("factor: f32", "factor: u32"), "`factor: u32` in the PTX", "`factor: f32`, as in the program"),
        (("factor: f32\n", ""), "no further parameter in the PTX", "`factor: f32`"),
        (("by: {", "of: {"), "`of: {", "`by: {"),
        // The body has changed, and nothing else.
        (
            ("{code ", "{code 0"),
            "other code of the kernel in the PTX",
            "the code of the kernel, as in the program",
        ),
    ];
    for ((from, to), found, allowed) in cases {
        let error = launch(&right.replacen(from, to, 1)).unwrap_err();
        assert_told(&error, (ErrorKind::Driver, "shift", found, allowed));
        assert!(error.allowed().ends_with("compile it again"), "{error}");
    }
    assert_eq!(turn.calls("cuLaunchKernel"), 0);
    launch(right).unwrap();
    turn.run_all();
    assert_eq!(points.to_vec::<Point>().unwrap()[0].y.to_bits(), 6.0_f32.to_bits());
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Table<S> {
    #[cuda_array(data)]
    data: S,
    rows: usize,
    columns: usize,
}

/// The largest element of each row.
#[kernel]
fn row_max(mut team: Team<'_>, x: View<'_, f32, 2>, mut most: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        row.set(&mut most, row.max(&x, |x| x));
    }
}

/// By a variable that a kernel of the module writes, the threads of a team could tell each other apart, and hang.
#[test]
fn a_team_beside_a_variable_that_kernels_write_is_an_error_before_the_launch() {
    let turn = turn();
    turn.register::<row_max>();
    let layout = interop_core::kernel::host::layout::<row_max>();
    let bytes = format!("{layout:?}").replace('[', "{").replace(']', "}");
    let ptx = |instruction: &str| {
        let ptx = format!(
            ".version 6.0\n.target sm_70\n.visible .global .align 1 .b8 interop_layout_row_max[{}] = {bytes};\n.global .align 4 .b8 COUNT[4];\n\
             .visible .entry row_max(.param .b8 a[40], .param .b8 b[24])\n{{\n\t{instruction}\n\tret;\n}}\n",
            layout.len()
        );
        // SAFETY: it runs on the simulated driver, which runs the function above.
        unsafe { KernelModule::new(ptx.leak()) }
    };
    let x = CudaBuffer::from_slice(MemoryKind::Managed, 0, &[1.0_f32, 3.0, 2.0]).unwrap();
    let x = Table { data: x, rows: 1, columns: 3 };
    let mut most = Row { data: CudaBuffer::from_slice(MemoryKind::Managed, 0, &[0.0_f32]).unwrap(), len: 1 };
    let mut launch = |ptx: &KernelModule| {
        let scope = LaunchScope::new();
        let arguments = row_max::with(scope.read(&x).unwrap(), scope.write(&mut most).unwrap());
        scope.launch(ptx, LaunchSize::for_rows::<f32>(1, 3), arguments)
    };
    let error = launch(&ptx("atom.global.add.u32 \t%r1, [COUNT], 1;")).unwrap_err();
    let (found, allowed) =
        ("the variable `COUNT`, which a kernel of the PTX writes", "no `static` that kernels change");
    assert_told(&error, (ErrorKind::Driver, "row_max", found, allowed));
    assert_eq!(turn.calls("cuLaunchKernel"), 0);
    launch(&ptx("ld.global.b32 \t%r1, [COUNT];")).unwrap();
    turn.run_all();
    assert_eq!(most.to_vec::<f32>().unwrap(), [3.0]);
}

/// One element for each block.
#[kernel]
fn number_blocks(thread: Thread<'_>, mut numbers: ViewMut<'_, i16, 1, Blocks>) {
    if let Some(at) = thread.of_block(numbers.shape()) {
        numbers.set(at, 1);
    }
}

#[test]
fn too_few_blocks_are_an_error_before_the_launch() {
    let turn = turn();
    turn.register::<number_blocks>();
    let mut numbers = array(&[0; 7], &[7], &[1]);
    for (grid, is_enough) in [((6, 1, 1), false), ((3, 2, 1), false), ((2, 2, 2), true), ((7, 1, 1), true)] {
        let size = LaunchSize { grid, block: (2, 1, 1) };
        turn.reset_calls();
        let scope = LaunchScope::new();
        let launched = scope.launch(&KERNELS, size, number_blocks::with(scope.write(&mut numbers).unwrap()));
        scope.finish().unwrap();
        assert_eq!(
            (launched.is_ok(), turn.calls("cuLaunchKernel")),
            (is_enough, is_enough.into()),
            "{grid:?}"
        );
        if let Err(error) = launched {
            let allowed = "a block for each element, as in `LaunchSize::for_blocks(7)`";
            assert_told(&error, (ErrorKind::Shape, "numbers", "7 elements for 6 blocks", allowed));
            assert!(error.to_string().ends_with("(from kernel `number_blocks`)"), "{error}");
        }
    }
    assert_eq!(numbers.to_vec::<i16>().unwrap(), [1; 7]);
}

#[test]
fn mistakes_of_arrays_name_the_parameter() {
    let turn = turn();
    turn.register::<add>();
    turn.register::<add_all>();
    let (mut to, from) = (array(&[1; 3], &[3], &[1]), array(&[2; 3], &[3], &[1]));
    let floats = Array::new(CudaBuffer::from_slice(MemoryKind::Managed, 0, &[1.0_f32; 3]).unwrap(), &[3]);
    let table = array(&[1; 4], &[2, 2], &[2, 1]);
    let MemoryRegion { address, device, .. } = from.data.memory().unwrap();
    let region = MemoryRegion::new::<i16>(address, 3, device, Mutability::ReadOnly);
    let mut constant = Array::new(Claimed(region), &[3]);
    let told = |error: interop_core::Error, kind, origin: &str| {
        assert_eq!((error.kind(), error.origin()), (kind, Some(origin)), "{error}");
    };
    {
        let scope = LaunchScope::new();
        let error = add::try_with(scope.write(&mut to), scope.read(&floats), 1).unwrap_err();
        told(error, ErrorKind::DType, "argument `from` of kernel `add`");
    }
    {
        let scope = LaunchScope::new();
        let error = add::try_with(scope.write(&mut to), scope.read(&table), 1).unwrap_err();
        told(error, ErrorKind::Rank, "argument `from` of kernel `add`");
    }
    {
        let scope = LaunchScope::new();
        let error = add::try_with(scope.write(&mut constant), scope.read(&from), 1).unwrap_err();
        told(error, ErrorKind::ReadOnly, "argument `to` of kernel `add`");
    }
    {
        let scope = LaunchScope::new();
        let error = add_all::try_with(scope.elementwise((&mut to, &floats))).unwrap_err();
        told(error, ErrorKind::DType, "argument `arrays` of kernel `add_all`");
    }
    let scope = LaunchScope::new();
    let arguments = add::try_with(scope.write(&mut to), scope.read(&from), 1).unwrap();
    scope.launch(&KERNELS, FEW, arguments).unwrap();
    scope.finish().unwrap();
    assert_eq!(to.to_vec::<i16>().unwrap(), [4; 3]);
}

#[test]
fn elements_of_another_type_are_refused_by_the_type_of_the_kernel() {
    let _turn = turn();
    let mut floats = Array::new(CudaBuffer::from_slice(MemoryKind::Managed, 0, &[1.0_f32; 3]).unwrap(), &[3]);
    let from = array(&[1; 3], &[3], &[1]);
    let scope = LaunchScope::new();
    let error = scope.write(&mut floats).map(|to| add::with(to, scope.read(&from).unwrap(), 1)).unwrap_err();
    assert_told(&error, (ErrorKind::DType, "dtype", "float32", "int16"));
}
