//! What the dispatcher of `PyTorch` calls.
//!
//! A kernel returns no error: it throws an exception of C++, when nothing that is to be dropped is left. The text is kept by the
//! thread.
#![expect(unsafe_code, reason = "is called by the dispatcher")]

use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

use crate::arguments::Arguments;
use crate::call::{Call, Host};
use crate::entry::{caught, note, noted};
use crate::error::CallError;
use crate::operator::signature::Kind;
use crate::operator::{Operation, Operator};
use crate::owned_object::OwnedObject;
use crate::torch::library::{ABI, TensorHandle, Torch, Value};
use crate::torch::stack::{Taken, any_tensor, result_value};
use crate::torch::tensor::{NOTHING, to_pointer, to_value};

thread_local! {
    /// The operator whose composite kernel has called the dispatcher, and whether a kernel has noted an error for it.
    static CALLING: Cell<Option<(&'static Operator, bool)>> = const { Cell::new(None) };
}

/// A kernel, of four:
///
/// | `CHOOSES` | `RUNS` | |
/// | --- | --- | --- |
/// | no | yes | runs the function |
/// | no | no | refuses tensors whose elements a function cannot use; runs the function for empty lists and options |
/// | yes | yes | runs the function, but if a gradient is recorded, calls the operator with gradients, which takes 5 µs longer |
/// | yes | no | calls the operator with or without gradients: what the dispatcher does for the tensors comes between |
///
/// # Safety
///
/// As for a kernel of `torch_library_impl`: `stack` has the arguments of the operator, which the kernel takes, and a place for the
/// result. The callers can be unwound. What `bump_version` throws is passed on.
pub(crate) unsafe extern "C-unwind" fn kernel<O: Operation, const CHOOSES: bool, const RUNS: bool>(
    stack: *mut Value,
    _: u64,
    _: u64,
) {
    let (torch, operator) = (Torch::of_kernel(), O::operator());
    // SAFETY: as the caller promises.
    let records = if CHOOSES { unsafe { records(torch, operator, stack, RUNS) } } else { Ok(false) };
    let outcome = if CHOOSES && !(RUNS && matches!(records, Ok(false))) {
        // SAFETY: as the caller promises.
        unsafe { call_inner(torch, operator, records, stack) }.map(|()| None)
    } else {
        // SAFETY: as the caller promises.
        let taken = unsafe { Taken::new(torch, operator.signature(), stack) };
        if RUNS || !taken.has_tensors() {
            // SAFETY: as the caller promises.
            unsafe { run::<O>(torch, operator, taken) }.map(Some)
        } else {
            Err(refused(operator))
        }
    };
    // SAFETY: as the caller promises.
    unsafe { end(torch, operator, outcome, !CHOOSES, stack) };
}

/// # Safety
///
/// The callers can be unwound.
unsafe fn run<O: Operation>(
    torch: &'static Torch,
    operator: &'static Operator,
    mut taken: Taken,
) -> Result<Value, CallError> {
    // SAFETY: as the caller promises.
    let values = unsafe { taken.values(operator.signature(), operator.name) }?;
    let call = Call::new(operator.name, Host::Torch(torch));
    // SAFETY: the values live as long as `taken`, and nobody else has them.
    let arguments = unsafe { Arguments::new(&call, values.as_ptr(), values.len()) };
    caught(operator.name, || O::call(&arguments)).map(result_value)
}

#[cold]
fn refused(operator: &Operator) -> CallError {
    let text = format!(
        "`{}`: found a tensor of another device or layout, or one without elements{}; allowed: dense tensors on the CPU or on CUDA. A \
         rule such as `like` tells the result for fake tensors, and is registered after the library was loaded",
        operator.name,
        if operator.signature().writes() {
            ", or one with a lazy sign or conjugate (`x.resolve_neg()`, `x.resolve_conj()`)"
        } else {
            ""
        }
    );
    CallError::new(c"RuntimeError", text)
}

/// Ends a kernel with its result, unless it is on the stack already, or throws its error. For a composite kernel the error is noted, because the functions of the library
/// before 2.13 write each exception that they catch to stderr.
///
/// # Safety
///
/// As for [`kernel`].
unsafe fn end(
    torch: &'static Torch,
    operator: &'static Operator,
    outcome: Result<Option<Value>, CallError>,
    is_inner: bool,
    stack: *mut Value,
) {
    let returns = operator.signature().returns;
    let value = match outcome {
        Ok(value) => value,
        Err(error) => {
            note(&error);
            let is_awaited =
                is_inner && CALLING.get().is_some_and(|(calling, _)| core::ptr::eq(calling, operator));
            let nothing = if is_awaited { nothing(torch, returns) } else { None };
            drop(error);
            let Some(nothing) = nothing else {
                // SAFETY: as the caller promises; nothing here is to be dropped.
                unsafe { throw(torch) };
                return;
            };
            CALLING.set(Some((operator, true)));
            Some(nothing)
        }
    };
    if let Some(value) = value.filter(|_| returns != Kind::None) {
        // SAFETY: as the caller promises.
        unsafe { stack.write(value) };
    }
}

/// A result that the composite kernel drops.
fn nothing(torch: &'static Torch, returns: Kind) -> Option<Value> {
    if !returns.has_tensors() {
        return Some(0);
    }
    torch.allocate(&NOTHING).ok().map(|tensor| to_value(tensor.into_raw()))
}

/// Notes the text of an exception in Python, if a composite kernel waits for it.
///
/// # Safety
///
/// `text` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn interop_note_error(text: *const c_char) -> bool {
    let Some((calling, _)) = CALLING.get() else { return false };
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    note(&CallError::new(c"RuntimeError", text));
    CALLING.set(Some((calling, true)));
    true
}

/// Throws the noted error as a `c10::Error`, which is a `RuntimeError` in Python.
///
/// # Safety
///
/// The callers can be unwound.
#[cold]
unsafe fn throw(torch: &Torch) {
    // SAFETY: C strings. The text stays until the next error of this thread. As the caller promises.
    unsafe { (torch.check)(false, c"".as_ptr(), c"".as_ptr(), 0, noted()) };
}

/// # Safety
///
/// As for [`kernel`].
unsafe fn call_inner(
    torch: &'static Torch,
    operator: &'static Operator,
    records: Result<bool, CallError>,
    stack: *mut Value,
) -> Result<(), CallError> {
    let records = records.and_then(|records| match records {
        true if !operator.has_python.load(Ordering::Acquire) => Err(missing_gradient(operator)),
        records => Ok(records),
    });
    let records = match records {
        Ok(records) => records,
        Err(error) => {
            // SAFETY: as the caller promises.
            drop(unsafe { Taken::new(torch, operator.signature(), stack) });
            return Err(error);
        }
    };
    let before = CALLING.replace(Some((operator, false)));
    let name = &operator.inner()[usize::from(records)];
    // SAFETY: the operator has the parameters and the result of this one.
    let status = unsafe { (torch.dispatch)(name.as_ptr(), c"".as_ptr(), stack, ABI) };
    if CALLING.replace(before).is_some_and(|(_, has_failed)| has_failed) {
        if status == 0 && operator.signature().returns.has_tensors() {
            // SAFETY: the result of the call.
            let result = to_pointer(unsafe { stack.read() });
            // SAFETY: a tensor, which nobody gets.
            drop(unsafe { OwnedObject::new(result, torch.delete_tensor) });
        }
        // SAFETY: a C string, which is copied.
        let text = unsafe { CStr::from_ptr(noted()) }.to_string_lossy();
        return Err(CallError::new(c"RuntimeError", text));
    }
    torch.check(status, operator.name)
}

/// Whether a gradient is recorded for one of the arguments. An operator that is called must not get a tangent, because `PyTorch` would
/// say nothing, or something else. A function checks that itself.
///
/// # Safety
///
/// As for [`kernel`].
unsafe fn records(
    torch: &'static Torch,
    operator: &Operator,
    stack: *const Value,
    runs: bool,
) -> Result<bool, CallError> {
    // SAFETY: the function has no preconditions.
    if !unsafe { (torch.grad_mode)() } {
        return Ok(false);
    }
    let any = |test: &dyn Fn(TensorHandle) -> Result<bool, CallError>| -> Result<bool, CallError> {
        for (at, parameter) in operator.signature().parameters.iter().enumerate() {
            // SAFETY: as the caller promises.
            let value = unsafe { stack.wrapping_add(at).read() };
            // SAFETY: as the caller promises.
            if unsafe { any_tensor(torch, parameter.kind, value, test) }? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // SAFETY: a live tensor.
    let records = any(&|handle| unsafe { torch.needs_gradient(handle) })?;
    if records || !runs {
        // SAFETY: a live tensor.
        any(&|handle| unsafe { torch.check_tangent(handle) }.map(|()| false))?;
    }
    Ok(records)
}

#[cold]
fn missing_gradient(operator: &Operator) -> CallError {
    let text = format!(
        "`{}`: its gradient is not registered yet: Python does that on its main thread soon after the library was loaded. Call \
         `ctypes.PyDLL(path).interop_load_operators()` before, on this thread",
        operator.name
    );
    CallError::new(c"RuntimeError", text)
}
