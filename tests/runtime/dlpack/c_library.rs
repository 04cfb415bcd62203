//! Bug 185: a C library, compiled against the header, uses our tensors and gives us its own.
#![expect(unsafe_code, reason = "calls a library in C, which takes and makes pointers")]

use std::fs;
use std::mem::{offset_of, size_of};
use std::path::Path;

use interop_core::protocols::dlpack::{
    C_HEADER, DLManagedTensor, DLManagedTensorVersioned, DLTensor, Legacy, ManagedTensor, Versioned,
};
use interop_core::{CudaArray, ErrorKind, FromArray, HostVec, Import, Lease, LeaseMut, StreamHandle};
use libloading::Library;

use crate::support::arrays::{Array, Matrix};
use crate::support::compiler;
use crate::support::counted_owners::elsewhere;

/// Compiles `c_users.c` to a library, if there is a compiler.
fn compiled() -> Option<Library> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_users");
    fs::create_dir_all(&folder).expect("the folder for tests is ours");
    // The published header, so that the constant is tested.
    fs::write(folder.join("interop_dlpack.h"), C_HEADER).expect("the folder is ours");
    let (library, here) = (folder.join("c_users.so"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"];
    let mut cc = compiler::find("CC", &["cc", "gcc", "clang"], "the contract for C")?;
    cc.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-shared", "-fPIC", "-pthread", "-o"]).arg(&library);
    compiler::run(cc.args(strict).arg(&folder).arg(here.join("dlpack/c_users.c")));
    let mut cxx = compiler::find("CXX", &["c++", "g++", "clang++"], "the same header in C++")?;
    cxx.args(["-std=c++11", "-fsyntax-only", "-x", "c++"]).args(strict).arg(&folder);
    compiler::run(cxx.arg(folder.join("interop_dlpack.h")));
    // SAFETY: the library has no initializers.
    Some(unsafe { Library::new(&library) }.expect("it was compiled"))
}

/// A function of the library, which stays loaded.
macro_rules! c {
    ($library:ident, $name:ident($($argument:ty),*) $(-> $result:ty)?) => {{
        // SAFETY: this is the type of the function in `c_users.c`.
        let found = unsafe { $library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(stringify!($name)) };
        *found.expect("the library has the function")
    }};
}

/// The numbers 1 to 6 in two rows, stored column by column.
fn by_columns() -> Array<HostVec<i16>> {
    Array::strided(HostVec::from([1, 4, 2, 5, 3, 6]), &[2, 3], &[1, 2])
}

#[test]
#[cfg_attr(miri, ignore = "starts processes and loads a library")]
fn rust_and_c_keep_the_contract() {
    let Some(library) = compiled() else { return };
    declares_the_structs(&library);
    c_uses_what_rust_makes(&library);
    rust_uses_what_c_makes(&library);
}

fn declares_the_structs(library: &Library) {
    let c_layout = c!(library, c_layout(*mut usize) -> i32);
    let mut found = [0; 15];
    // SAFETY: the buffer has room for as many numbers as the function writes.
    assert_eq!(unsafe { c_layout(found.as_mut_ptr()) }, 15);
    let expected = [
        size_of::<DLManagedTensorVersioned>(),
        offset_of!(DLManagedTensorVersioned, manager_ctx),
        offset_of!(DLManagedTensorVersioned, deleter),
        offset_of!(DLManagedTensorVersioned, flags),
        offset_of!(DLManagedTensorVersioned, dl_tensor),
        size_of::<DLManagedTensor>(),
        offset_of!(DLManagedTensor, manager_ctx),
        offset_of!(DLManagedTensor, deleter),
        size_of::<DLTensor>(),
        offset_of!(DLTensor, device),
        offset_of!(DLTensor, ndim),
        offset_of!(DLTensor, dtype),
        offset_of!(DLTensor, shape),
        offset_of!(DLTensor, strides),
        offset_of!(DLTensor, byte_offset),
    ];
    assert_eq!(found, expected);
}

fn c_uses_what_rust_makes(library: &Library) {
    let c_use = c!(library, c_use(*mut DLManagedTensorVersioned) -> i64);
    let c_use_legacy = c!(library, c_use_legacy(*mut DLManagedTensor) -> i64);
    // SAFETY: ownership of the pointer is passed on.
    let given = |tensor: ManagedTensor<Versioned>| unsafe { c_use(tensor.into_raw()) };
    let shared = std::sync::Arc::new(by_columns());
    assert_eq!(given(shared.share_dlpack().unwrap()), 21);
    // C may write to memory that is not read-only, and did.
    assert_eq!(shared.to_vec::<i16>().unwrap(), [0, 2, 3, 4, 5, 6]);
    let readonly = std::sync::Arc::new(Array::new(vec![1_i16, 2, 3], &[3]));
    assert_eq!(given(readonly.share_dlpack().unwrap()), 6);
    assert_eq!(readonly.data, [1, 2, 3]);
    assert_eq!(given(Array::new(HostVec::from([7_i16]), &[]).into_dlpack().unwrap()), 7);
    let legacy = by_columns().into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { c_use_legacy(legacy.into_raw()) }, 21);
    assert_eq!(std::sync::Arc::strong_count(&shared), 1, "the deleter was called, on a thread of C's");
}

fn rust_uses_what_c_makes(library: &Library) {
    let c_make = c!(library, c_make(u32, i32, i32) -> *mut DLManagedTensorVersioned);
    let (released, unchanged) = (c!(library, c_released() -> i32), c!(library, c_unchanged() -> i32));
    let make = |major, strides, deleter| {
        // SAFETY: the arguments are plain numbers.
        let pointer = unsafe { c_make(major, strides, deleter) };
        assert!(!pointer.is_null());
        // SAFETY: nothing else owns the tensor, which lives until it is released.
        (pointer, unsafe { ManagedTensor::<Versioned>::from_raw(pointer) })
    };
    let mut so_far = 0;
    let mut one_more = || {
        so_far += 1;
        // SAFETY: the function has no preconditions.
        let released = unsafe { released() };
        // SAFETY: as above.
        assert_eq!((released, unsafe { unchanged() }), (so_far, so_far), "once, and as it was made");
    };
    for strides in [0, 1] {
        let mut used: Matrix<LeaseMut<i16>> = Matrix::from_dlpack(make(1, strides, 1).1).unwrap();
        assert_eq!(used.to_vec::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
        used.map_inplace::<i16>(|value| -value).unwrap();
        elsewhere(move || drop(used));
        one_more();
    }
    drop(make(1, 1, 1).1);
    one_more();
    drop(Matrix::<Lease<f32>>::from_dlpack(make(1, 1, 1).1).unwrap_err());
    one_more();
    let refused = Import::from_dlpack(make(2, 1, 1).1).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Version);
    drop(refused);
    one_more();
    // Without a deleter nothing is called: the producer keeps the memory.
    let (pointer, tensor) = make(1, 0, 0);
    assert_eq!(Matrix::<Vec<i16>>::from_dlpack(tensor).unwrap().data, [1, 2, 3, 4, 5, 6]);
    let c_free = c!(library, c_free(*mut DLManagedTensorVersioned));
    // SAFETY: nothing uses the tensor any more.
    unsafe { c_free(pointer) };
}
