//! What the dispatcher of `PyTorch` calls.
//!
//! A kernel returns no error: it throws an exception of C++, when nothing that is to be dropped is left. The text is kept by the
//! thread.
#![expect(unsafe_code, reason = "is called by the dispatcher")]

use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::arguments::Arguments;
use crate::call::{Call, Host};
use crate::entry::{note, noted, panicked};
use crate::error::CallError;
use crate::operator::{Operation, Operator};
use crate::owned_object::OwnedObject;
use crate::return_value::Returns;
use crate::torch::library::{ABI, TensorHandle, Torch, Value};
use crate::torch::stack::{Taken, any_tensor, result_value};
use crate::torch::tensor::{NOTHING, to_pointer, to_value};

thread_local! {
    /// The operator whose composite kernel has called the dispatcher.
    static CALLING: Cell<Option<&'static Operator>> = const { Cell::new(None) };
    /// Whether a kernel has noted an error for that composite kernel.
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
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
    if CHOOSES {
        // SAFETY: as the caller promises.
        let records = unsafe { records(torch, operator, stack, RUNS) };
        if !RUNS || !matches!(records, Ok(false)) {
            // SAFETY: as the caller promises.
            if let Err(error) = unsafe { call_inner(torch, operator, records, stack) } {
                note(&error);
                drop(error);
                // SAFETY: as the caller promises; nothing here is to be dropped.
                unsafe { throw(torch) };
            }
            return;
        }
    }
    // SAFETY: as the caller promises.
    let taken = unsafe { Taken::new(torch, operator.signature(), stack) };
    let outcome = if RUNS || !taken.has_tensors() {
        // SAFETY: as the caller promises.
        unsafe { run::<O>(torch, operator, taken) }
    } else {
        drop(taken);
        Err(refused(operator))
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
    let outcome = catch_unwind(AssertUnwindSafe(|| O::call(&arguments)));
    outcome.unwrap_or_else(|payload| Err(panicked(operator.name, payload))).map(result_value)
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

/// Ends a kernel with its result, or throws its error. For a composite kernel the error is noted, because the functions of the library
/// before 2.13 write each exception that they catch to stderr.
///
/// # Safety
///
/// As for [`kernel`].
unsafe fn end(
    torch: &'static Torch,
    operator: &'static Operator,
    outcome: Result<Value, CallError>,
    is_inner: bool,
    stack: *mut Value,
) {
    let returns = operator.signature().returns;
    let value = match outcome {
        Ok(value) => value,
        Err(error) => {
            note(&error);
            let is_awaited =
                is_inner && CALLING.get().is_some_and(|calling| core::ptr::eq(calling, operator));
            let nothing = if is_awaited { nothing(torch, returns) } else { None };
            drop(error);
            let Some(nothing) = nothing else {
                // SAFETY: as the caller promises; nothing here is to be dropped.
                unsafe { throw(torch) };
                return;
            };
            HAS_FAILED.set(true);
            nothing
        }
    };
    if returns != Returns::Nothing {
        // SAFETY: as the caller promises.
        unsafe { stack.write(value) };
    }
}

/// A result that the composite kernel drops.
fn nothing(torch: &'static Torch, returns: Returns) -> Option<Value> {
    match returns {
        Returns::Tensor => torch.allocate(&NOTHING).ok().map(|tensor| to_value(tensor.into_raw())),
        _ => Some(0),
    }
}

/// Notes the text of an exception in Python, if a composite kernel waits for it.
///
/// # Safety
///
/// `text` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn interop_note_error(text: *const c_char) -> bool {
    if CALLING.get().is_some() {
        // SAFETY: as the caller promises.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        note(&CallError::new(c"RuntimeError", text));
        HAS_FAILED.set(true);
    }
    CALLING.get().is_some()
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
    let calling = Calling::new(operator);
    let name = &operator.inner()[usize::from(records)];
    // SAFETY: the operator has the parameters and the result of this one.
    let status = unsafe { (torch.dispatch)(name.as_ptr(), c"".as_ptr(), stack, ABI) };
    let has_failed = HAS_FAILED.get();
    drop(calling);
    if has_failed {
        if status == 0 && operator.signature().returns == Returns::Tensor {
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

/// The time in which a composite kernel has called the dispatcher.
struct Calling(Option<&'static Operator>, bool);

impl Calling {
    fn new(operator: &'static Operator) -> Self {
        Self(CALLING.replace(Some(operator)), HAS_FAILED.replace(false))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLING.set(self.0);
        HAS_FAILED.set(self.1);
    }
}
