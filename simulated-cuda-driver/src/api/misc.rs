//! Functions for initialization, version, error texts and symbol lookup.

#![allow(unsafe_code, reason = "the names are exported, and functions are found by name")]

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use crate::api_call::{Code, In, Out, call, call_early};
use crate::copy_kernels;
use crate::status::{Answer, Status, describe};

/// The version of the driver: that of `SIMULATED_CUDA_VERSION`, or else CUDA 12.2.
fn version() -> i32 {
    std::env::var("SIMULATED_CUDA_VERSION").ok().and_then(|value| value.parse().ok()).unwrap_or(12020)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> Code {
    call_early("cuInit", |sim| {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if sim.devices.is_empty() {
            return Err(Status::NO_DEVICE);
        }
        for (name, kernel) in copy_kernels::all() {
            sim.kernels.entry(name).or_insert(kernel);
        }
        sim.initialized = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(out: Out<i32>) -> Code {
    call_early("cuDriverGetVersion", |_| out.set(version()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: i32, out: Out<*const c_char>) -> Code {
    call_early("cuGetErrorName", |_| {
        let (name, _) = describe(code).ok_or(Status::INVALID_VALUE)?;
        out.set(name.as_ptr())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: i32, out: Out<*const c_char>) -> Code {
    call_early("cuGetErrorString", |_| {
        let (_, text) = describe(code).ok_or(Status::INVALID_VALUE)?;
        out.set(text.as_ptr())
    })
}

/// Functions for which the lookup returns a form that is not the newest, with that form.
const FORMS: [(&str, &str); 2] =
    [("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2"), ("cuCtxCreate", "cuCtxCreate_v2")];

/// Returns the newest form of a function that this library has, or null.
fn find(name: &str) -> *mut c_void {
    let fixed = FORMS.iter().find(|(plain, _)| *plain == name).map(|(_, form)| (*form).to_owned());
    let forms = fixed.into_iter().chain([format!("{name}_v2"), name.to_owned()]);
    forms.map(|form| symbol(&form)).find(|found| !found.is_null()).unwrap_or(ptr::null_mut())
}

/// Returns a symbol of this library, or null.
fn symbol(name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return ptr::null_mut() };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name ends with a zero. The library is already loaded, so no initializer runs.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
    if library.is_null() {
        return library;
    }
    // SAFETY: `library` was opened above and is never closed.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Finds a function by its name in the documentation, without a version suffix.
fn look_up(name: &In<c_char>, out: &Out<*mut c_void>) -> Answer {
    let found = find(&name.text()?);
    out.set(found)?;
    if found.is_null() { Err(Status::NOT_FOUND) } else { Ok(()) }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(name: In<c_char>, out: Out<*mut c_void>, _version: i32, _flags: u64) -> Code {
    call_early("cuGetProcAddress", |_| look_up(&name, &out))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: In<c_char>,
    out: Out<*mut c_void>,
    _version: i32,
    _flags: u64,
    status: Out<i32>,
) -> Code {
    call_early("cuGetProcAddress_v2", |_| {
        let answer = look_up(&name, &out);
        // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND.
        status.set_if_wanted(answer.is_err().into());
        answer
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> Code {
    call("cuProfilerStart", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> Code {
    call("cuProfilerStop", |_| Ok(()))
}
