//! The interpreter of the process, if there is one. Its functions are of the stable ABI.
#![expect(unsafe_code, reason = "calls functions of the interpreter, which is found at run time")]

use core::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::CallError;
use crate::runtime::{c_string, function, program};

type Object = *mut c_void;

/// `Py_file_input`: a module.
const MODULE: c_int = 257;

/// A function that Python calls with its lock held.
pub(crate) type Pending = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The functions of the interpreter.
pub(crate) struct Python {
    add_pending_call: unsafe extern "C" fn(Pending, *mut c_void) -> c_int,
    gil_ensure: unsafe extern "C" fn() -> c_int,
    gil_release: unsafe extern "C" fn(c_int),
    compile: unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> Object,
    eval: unsafe extern "C" fn(Object, Object, Object) -> Object,
    builtins: unsafe extern "C" fn() -> Object,
    new_dict: unsafe extern "C" fn() -> Object,
    set_item: unsafe extern "C" fn(Object, *const c_char, Object) -> c_int,
    dec_ref: unsafe extern "C" fn(Object),
}

impl Python {
    /// Finds the interpreter among the global symbols of the process, where the program or its library has put them.
    pub(crate) fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Python>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let program = program()?;
            Some(Self {
                add_pending_call: function(&program, c"Py_AddPendingCall")?,
                gil_ensure: function(&program, c"PyGILState_Ensure")?,
                gil_release: function(&program, c"PyGILState_Release")?,
                compile: function(&program, c"Py_CompileString")?,
                eval: function(&program, c"PyEval_EvalCode")?,
                builtins: function(&program, c"PyEval_GetBuiltins")?,
                new_dict: function(&program, c"PyDict_New")?,
                set_item: function(&program, c"PyDict_SetItemString")?,
                dec_ref: function(&program, c"Py_DecRef")?,
            })
        });
        found.as_ref()
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
        // SAFETY: the thread holds the lock; the result is borrowed.
        let builtins = unsafe { (self.builtins)() };
        for (name, value) in [(c"__builtins__", Some(builtins)), (c"module", module)] {
            if let Some(value) = value {
                // SAFETY: a dict, a C string and an object.
                unsafe { (self.set_item)(globals.object, name.as_ptr(), value) };
            }
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
