//! The call of a function from C: its panics, and its last error.
#![expect(unsafe_code, reason = "is called from C")]

use core::any::Any;
use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::TVMFFIAny;
use crate::arguments::Arguments;
use crate::call::{Call, Host};
use crate::error::CallError;
use crate::runtime::{Runtime, c_string};

/// Reads the arguments and calls a function by its expanded body, whose types follow from this one.
///
/// # Errors
///
/// For arguments that do not fit, and the error of the function.
#[inline]
pub fn call_with<'c>(
    arguments: &Arguments<'c>,
    body: impl FnOnce(&Arguments<'c>) -> Result<TVMFFIAny, CallError>,
) -> Result<TVMFFIAny, CallError> {
    body(arguments)
}

/// Runs a function for a C caller. Expanded code calls this.
///
/// # Safety
///
/// As for a `TVMFFISafeCallType`: `first` points to `count` values, or is null. They are live during the call with all that
/// they point to. Nothing else writes to what the function reads. `result` is valid for a write.
pub unsafe fn run(
    function: &'static str,
    first: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
    body: impl for<'c> FnOnce(&Arguments<'c>) -> Result<TVMFFIAny, CallError>,
) -> i32 {
    let call = Call::new(function, Host::TvmFfi);
    // SAFETY: as the caller promises.
    let arguments = unsafe { Arguments::new(&call, first, usize::try_from(count).unwrap_or(0)) };
    let outcome = caught(function, || {
        Runtime::for_call(arguments.values).map_or(Ok(()), Runtime::check)?;
        body(&arguments)
    });
    match outcome {
        Ok(outcome) => {
            // SAFETY: as the caller promises. The value there owns nothing.
            unsafe { result.write(outcome) };
            0
        }
        Err(error) => {
            raise(&error);
            -1
        }
    }
}

/// Runs code, whose panic becomes an error that names the function.
#[inline]
pub(crate) fn caught<T>(function: &str, run: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(function, payload)))
}

#[cold]
fn panicked(function: &str, payload: Box<dyn Any + Send>) -> CallError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    let error = CallError::new(c"RuntimeError", format!("`{function}` panicked: {text}"));
    // The drop of the payload could panic again.
    core::mem::forget(payload);
    error
}

thread_local! {
    /// The class and the text of the last error on this thread.
    static LAST: RefCell<(&'static CStr, CString)> = RefCell::default();
}

/// Keeps an error for the caller, who asks for it next.
pub(crate) fn note(error: &CallError) {
    LAST.set((error.class, c_string(&error.text)));
}

/// The text of the error that was kept last. It is valid until the next one.
pub(crate) fn noted() -> *const c_char {
    LAST.with_borrow(|(_, text)| text.as_ptr())
}

#[cold]
fn raise(error: &CallError) {
    match Runtime::find() {
        Some(runtime) => runtime.raise(error),
        // A C caller without the library asks `interop_tvm_ffi_last_error`.
        None => note(error),
    }
}

/// For a caller in C without `libtvm_ffi`: the text of the last error on this thread. It is valid until the next one. `class`
/// receives the class of the exception; it may be null.
///
/// # Safety
///
/// `class` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_tvm_ffi_last_error(class: *mut *const c_char) -> *const c_char {
    LAST.with_borrow(|(of_last, text)| {
        if !class.is_null() {
            // SAFETY: as the caller promises.
            unsafe { class.write(of_last.as_ptr()) };
        }
        text.as_ptr()
    })
}
