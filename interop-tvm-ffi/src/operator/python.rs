//! The interpreter of the process, if there is one. Its functions are of the stable ABI.
#![expect(unsafe_code, reason = "calls functions of the interpreter, which is found at run time")]

use core::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::CallError;
use crate::runtime::{c_string, functions, program};

type Object = *mut c_void;

/// `Py_file_input`: a module.
const MODULE: c_int = 257;

/// A function that Python calls with its lock held.
pub(crate) type Pending = unsafe extern "C" fn(*mut c_void) -> c_int;

functions! {
    /// The functions of the interpreter.
    Python {
        add_pending_call: c"Py_AddPendingCall" fn(Pending, *mut c_void) -> c_int;
        gil_ensure: c"PyGILState_Ensure" fn() -> c_int;
        gil_release: c"PyGILState_Release" fn(c_int);
        compile: c"Py_CompileString" fn(*const c_char, *const c_char, c_int) -> Object;
        eval: c"PyEval_EvalCode" fn(Object, Object, Object) -> Object;
        new_dict: c"PyDict_New" fn() -> Object;
        set_item: c"PyDict_SetItemString" fn(Object, *const c_char, Object) -> c_int;
        dec_ref: c"Py_DecRef" fn(Object);
    }
}

impl Python {
    /// Finds the interpreter among the global symbols of the process, where the program or its library has put them.
    pub(crate) fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Python>> = OnceLock::new();
        FOUND.get_or_init(|| Self::of_library(&program()?)).as_ref()
    }

    /// Lets the main thread call a function soon, between two steps of its program. If the queue is full, nothing happens.
    pub(crate) fn queue(&self, pending: Pending) {
        // SAFETY: any thread may call it, with and without the lock.
        unsafe { (self.add_pending_call)(pending, core::ptr::null_mut()) };
    }

    /// Runs `work` with the lock held, which this thread may already hold.
    pub(crate) fn with_lock<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: the interpreter runs, because a thread of it has called.
        let state = unsafe { (self.gil_ensure)() };
        let result = work();
        // SAFETY: the state of the call above.
        unsafe { (self.gil_release)(state) };
        result
    }

    /// Runs a program. `module` is a dict that it finds under this name. The thread holds the lock.
    ///
    /// # Errors
    ///
    /// [`CallError::RAISED`]: the exception is set.
    pub(crate) fn run(&self, text: &str, file: &str, module: Option<Object>) -> Result<(), CallError> {
        let (text, file) = (c_string(text), c_string(file));
        // SAFETY: two C strings; the thread holds the lock.
        let code = self.owned(unsafe { (self.compile)(text.as_ptr(), file.as_ptr(), MODULE) })?;
        // SAFETY: the thread holds the lock.
        let globals = self.owned(unsafe { (self.new_dict)() })?;
        if let Some(module) = module {
            // SAFETY: a dict, a C string and an object.
            unsafe { (self.set_item)(globals.object, c"module".as_ptr(), module) };
        }
        // SAFETY: a code object and a dict.
        self.owned(unsafe { (self.eval)(code.object, globals.object, globals.object) }).map(drop)
    }

    /// Raises an error, or a warning, by a statement of Python about its `text`. The thread holds the lock.
    ///
    /// # Errors
    ///
    /// [`CallError::RAISED`]: the error, or the warning, if warnings are errors.
    pub(crate) fn report(&self, statement: &str, error: &CallError) -> Result<(), CallError> {
        let text = error.text.as_bytes();
        self.run(
            &format!("import warnings\ntext = bytes({text:?}).decode()\n{statement}"),
            "<operators>",
            None,
        )
    }

    /// A reference that a function has returned. Null is an exception.
    fn owned(&self, object: Object) -> Result<OwnedReference<'_>, CallError> {
        if object.is_null() { Err(CallError::RAISED) } else { Ok(OwnedReference { object, python: self }) }
    }
}

struct OwnedReference<'a> {
    object: Object,
    python: &'a Python,
}

impl Drop for OwnedReference<'_> {
    fn drop(&mut self) {
        // SAFETY: an owned reference; the thread that made it holds the lock.
        unsafe { (self.python.dec_ref)(self.object) };
    }
}
