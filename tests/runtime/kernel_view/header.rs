//! Compares `interop.cuh` with the Rust side: a C++ program receives the bytes of a view and its memory, and prints
//! what it reads.
//!
//! A host compiler replaces the device compiler, which reads the same header.
#![expect(unsafe_code, reason = "the bytes of a view are read as bytes")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice;

use interop_core::kernel::KernelView;
use interop_core::launch::KERNEL_HEADER;
use interop_core::{CudaArray, HostVec, Order, SharedBuffer};

use crate::support::arrays::{Array, Managed};
use crate::support::brute_force::{indices, offsets};
use crate::support::compiler;
use crate::support::signed;

/// Compiles `header.cpp`, if there is a compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    let mut command =
        compiler::find("CXX", &["c++", "g++", "clang++"], "that C++ and Rust see the same elements")?;
    // The published header, so that the constant is tested.
    std::fs::write(folder.join("interop.cuh"), KERNEL_HEADER).expect("the folder is ours");
    let program = folder.join("header.exe");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel_view/header.cpp");
    command.args([
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
        "-ftrapv",
        "-I",
    ]);
    compiler::run(command.arg(folder).arg(source).arg("-o").arg(&program));
    Some(program)
}

/// The input of the program: the rank, the address and values of the memory, then the bytes of the view.
fn question<const N: usize>(view: &KernelView<'_, i32, N>, memory: usize, values: &[i32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [N as u64, memory as u64, values.len() as u64] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    // SAFETY: a view consists of integers without padding, as is asserted where it is defined, and is borrowed
    // meanwhile.
    bytes.extend(unsafe { slice::from_raw_parts((&raw const *view).cast::<u8>(), size_of_val(view)) });
    bytes
}

/// The expected output of the program, computed from the extents and strides alone.
fn answer(array: &Array<SharedBuffer>, first: isize) -> String {
    let (shape, info) = (&array.shape, array.info().expect("the arrays of the table are sound"));
    let mut text = String::new();
    let contiguous = u8::from(info.layout().is_contiguous(Order::C));
    writeln!(text, "size {} contiguous {contiguous}", info.numel()).expect("a string takes it");
    for (index, offset) in indices(shape).iter().zip(offsets(shape, info.strides())) {
        write!(text, "{}", first as i128 + offset).expect("a string takes it");
        for index in index {
            write!(text, " {index}").expect("a string takes it");
        }
        text.push('\n');
    }
    text
}

fn check<const N: usize>(program: &Path, shape: [usize; N], strides: [isize; N], first: isize) {
    let values: Vec<i32> = (0..120).collect();
    let whole = SharedBuffer::new(Managed(HostVec::from(&values[..])));
    let memory = Array::new(whole.clone(), &[120]).info().expect("sound").address();
    let array = Array::strided(whole.byte_offset(first * 4).expect("within the memory"), &shape, &strides);
    let view = array.view::<i32, N>().and_then(|view| view.kernel_view()).expect("managed memory");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let question = question(&view, memory, &values);
    child.stdin.take().expect("a pipe").write_all(&question).expect("the program reads");
    let output = child.wait_with_output().expect("the program ends");
    assert!(output.status.success(), "{shape:?} {strides:?}: {}", output.status);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said.replace('\r', ""), answer(&array, signed(first)), "{shape:?} {strides:?}");
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn rust_and_cpp_see_the_same_elements() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
    std::fs::create_dir_all(&folder).expect("the folder for tests is ours");
    let Some(program) = compile(&folder) else { return };
    check(&program, [], [], 7);
    check(&program, [5], [1], 0);
    check(&program, [5], [-3], 119);
    check(&program, [0], [1], 0);
    check(&program, [2, 3], [3, 1], 0);
    check(&program, [3, 2], [1, 3], 4);
    check(&program, [3, 4], [0, 1], 0);
    check(&program, [1, 6], [77, 1], 2);
    check(&program, [2, 0], [1, 1], 0);
    check(&program, [4, 3, 2], [-8, 2, 1], 60);
    check(&program, [2, 3, 4, 5], [60, 20, 5, 1], 0);
    check(&program, [2, 3, 4, 5], [1, -2, 6, 24], 4);
    // With an extent of 0 the product of the others may overflow, and the program aborts on an overflow.
    check(&program, [1 << 62, 4, 0], [0, 0, 1], 0);
    check(&program, [0, 1 << 62, 4], [0, 0, 1], 0);
}
