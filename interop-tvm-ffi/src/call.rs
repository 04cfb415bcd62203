//! A call: its caller, its arguments, and its error.
#![expect(unsafe_code, reason = "is called from C")]

use core::any::Any;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::marker::PhantomData;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::{Device, Error, StreamHandle};

use crate::abi::{TVMFFIAny, index};
use crate::argument::Argument;
use crate::error::CallError;
use crate::return_value::ReturnValue;
use crate::runtime::{Runtime, c_string};
use crate::torch::library::Torch;

/// The call that a function answers. A function gets it as an argument besides those of its caller, at any place:
///
/// ```
/// use interop_core::lent::Borrowed;
/// use interop_core::{CudaArray, LeaseMut};
/// use interop_tvm_ffi::{Call, CallError, NewArray};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], device = "cpu")]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// A new array of the caller's library.
/// fn doubled(call: &Call<'_>, row: Row<Borrowed<'_, f32>>) -> Result<NewArray<Row<LeaseMut<f32>>>, CallError> {
///     let mut to: NewArray<Row<LeaseMut<f32>>> = call.new_like(&row)?;
///     to.zip_map_inplace(&row, |_: f32, value: f32| 2.0 * value)?;
///     Ok(to)
/// }
///
/// interop_tvm_ffi::export! { doubled(call, row) }
/// ```
pub struct Call<'c> {
    pub(crate) function: &'static str,
    pub(crate) host: Host,
    /// The streams and the allocator are those of this thread.
    thread: PhantomData<(&'c (), *const ())>,
}

/// Who calls.
#[derive(Clone, Copy)]
pub(crate) enum Host {
    /// A library by the ABI of TVM FFI.
    TvmFfi,
    /// The dispatcher of `PyTorch`.
    Torch(&'static Torch),
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("function", &self.function).finish_non_exhaustive()
    }
}

impl Call<'_> {
    pub(crate) const fn new(function: &'static str, host: Host) -> Self {
        Self { function, host, thread: PhantomData }
    }

    /// The stream on which the caller works on a device. `None` if the caller does not tell it, and for host memory.
    ///
    /// Arrays among the arguments are on this stream already, and a [`LaunchScope`](interop_core::LaunchScope) uses it.
    #[must_use]
    pub fn stream(&self, device: Device) -> Option<StreamHandle> {
        match self.host {
            _ if device == Device::CPU => None,
            Host::TvmFfi => Runtime::functions()?.stream(device),
            Host::Torch(torch) => torch.stream(device),
        }
    }
}

/// The arguments of a call, or the items of a list among them, which are read one after another.
pub struct Arguments<'c> {
    pub(crate) call: &'c Call<'c>,
    pub(crate) values: &'c [TVMFFIAny],
    next: Cell<usize>,
    /// Of a list: its indices in the lists around it. `None` for the arguments of a call.
    list: Option<Vec<usize>>,
}

impl<'c> Arguments<'c> {
    /// The values at `first`. None if it is null.
    ///
    /// # Safety
    ///
    /// `first` is null, or points to `count` values that nobody writes to during `'c`.
    pub(crate) unsafe fn new(call: &'c Call<'c>, first: *const TVMFFIAny, count: usize) -> Self {
        let values = if count == 0 || first.is_null() {
            &[]
        } else {
            // SAFETY: as the caller promises.
            unsafe { core::slice::from_raw_parts(first, count) }
        };
        Self { call, values, next: Cell::new(0), list: None }
    }

    /// The items at `first` of a list, which is the argument that was read last.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    pub(crate) unsafe fn list(&self, first: *const TVMFFIAny, count: usize) -> Self {
        // SAFETY: as the caller promises.
        let items = unsafe { Self::new(self.call, first, count) };
        Self { list: Some(self.indices()), ..items }
    }

    /// The index of the item that was read last, after those of the lists around it. Empty for an argument of the call.
    fn indices(&self) -> Vec<usize> {
        let last = self.next.get().saturating_sub(1);
        self.list.iter().flat_map(|list| list.iter().copied().chain([last])).collect()
    }

    /// The name of the argument that was read last, for errors: `` `rows[1]` `` for the second item of a list.
    fn place(&self, name: &str) -> String {
        let indices = self.indices().into_iter().map(|index| format!("[{index}]"));
        format!("`{name}{}`", indices.collect::<String>())
    }

    /// The error for a value of a wrong type.
    #[cold]
    pub(crate) fn wrong_type(&self, argument: &str, found: &TVMFFIAny, allowed: &str) -> CallError {
        let found = match found.type_index {
            index::INT => format!("the int {}", found.value as i64),
            other => index::name(other).to_owned(),
        };
        CallError { class: c"TypeError", ..self.wrong_value(argument, &found, allowed) }
    }

    /// The error for a value that is not allowed.
    #[cold]
    pub(crate) fn wrong_value(&self, argument: &str, found: &str, allowed: &str) -> CallError {
        let (place, function) = (self.place(argument), self.call.function);
        let text = format!("{place}: found {found}, allowed: {allowed} (argument of `{function}`)");
        CallError::new(c"ValueError", text)
    }

    /// Names the argument in an error of an array.
    #[cold]
    pub(crate) fn of_argument(&self, argument: &str, error: Error) -> CallError {
        error.with_origin(self.origin(argument)).into()
    }

    /// Where the argument that was read last is from, for errors about its array.
    pub(crate) fn origin(&self, argument: &str) -> String {
        format!("argument {} of `{}`", self.place(argument), self.call.function)
    }

    /// Reads the next argument. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// If it is missing, has another type, or does not fit the struct.
    #[inline]
    pub fn read<A: Argument<'c, K>, K>(&self, name: &'static str) -> Result<A, CallError> {
        A::read(self, name)
    }

    /// Checks that no argument is left. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// If there are more arguments than parameters.
    #[inline]
    pub fn end(&self) -> Result<(), CallError> {
        let (read, found) = (self.next.get(), self.values.len());
        if read >= found {
            return Ok(());
        }
        let text = format!("`{}`: found {found} arguments, allowed: {read}", self.call.function);
        Err(CallError::new(c"TypeError", text))
    }

    /// Converts the result of the function. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// The error of the function, or of the export.
    #[inline]
    pub fn end_with<R: ReturnValue<K>, K>(&self, result: R) -> Result<TVMFFIAny, CallError> {
        result.into_value(self.call)
    }

    /// The next value, which stays the next one.
    pub(crate) fn peek(&self) -> Option<&'c TVMFFIAny> {
        self.values.get(self.next.get())
    }

    /// The next value.
    #[inline]
    pub(crate) fn next(&self, name: &'static str) -> Result<&'c TVMFFIAny, CallError> {
        let value = self.peek().ok_or_else(|| {
            let text = format!("`{}`: the argument `{name}` is missing", self.call.function);
            CallError::new(c"TypeError", text)
        })?;
        self.next.set(self.next.get() + 1);
        Ok(value)
    }
}

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
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Runtime::for_call(arguments.values).map_or(Ok(()), Runtime::check)?;
        body(&arguments)
    }));
    let error = match outcome {
        Ok(Ok(outcome)) => {
            // SAFETY: as the caller promises. The value there owns nothing.
            unsafe { result.write(outcome) };
            return 0;
        }
        Ok(Err(error)) => error,
        Err(payload) => panicked(function, payload),
    };
    raise(&error);
    -1
}

#[cold]
pub(crate) fn panicked(function: &str, payload: Box<dyn Any + Send>) -> CallError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    let error = CallError::new(c"RuntimeError", format!("`{function}` panicked: {text}"));
    // The drop of the payload could panic again.
    core::mem::forget(payload);
    error
}

thread_local!(static LAST: RefCell<(&'static CStr, CString)> = RefCell::default());

#[cold]
fn raise(error: &CallError) {
    match Runtime::find() {
        Some(runtime) => runtime.raise(error),
        // A C caller without the library asks `interop_tvm_ffi_last_error`.
        None => LAST.set((error.class, c_string(&error.text))),
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
