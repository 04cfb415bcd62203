//! The lists of operators of a library, and their registration: with `PyTorch` by its C functions, then with its Python part.
#![expect(unsafe_code, reason = "is called by Python")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use crate::entry::caught;
use crate::error::CallError;
use crate::operator::Operator;
use crate::operator::python::Python;
use crate::runtime::file_of;
use crate::torch::library::Torch;
use crate::torch::register::register;

/// A list of operators: those after `operators "namespace";` in an `export!`.
#[derive(Debug)]
pub struct OperatorList {
    namespace: &'static str,
    operators: &'static [&'static Operator],
}

/// What has happened to a list. An error stays.
struct Loaded {
    list: &'static OperatorList,
    registered: Option<Result<(), String>>,
    /// Whether Python has registered the shapes and the gradients.
    has_python: bool,
}

/// Whether Python has not yet run what [`OperatorList::load`] has queued.
static IS_QUEUED: AtomicBool = AtomicBool::new(false);

/// The lists of this library.
static LISTS: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

impl OperatorList {
    /// A list for a namespace.
    #[must_use]
    pub const fn new(namespace: &'static str, operators: &'static [&'static Operator]) -> Self {
        Self { namespace, operators }
    }

    /// Registers the operators if the process has loaded `PyTorch`. Expanded code calls this when the library is loaded.
    ///
    /// Python cannot be called here, because the thread may not hold its lock. So its part is queued.
    pub fn load(&'static self) {
        // An unwinding panic would end the process.
        let _ = catch_unwind(|| {
            LISTS.lock().unwrap_or_else(PoisonError::into_inner).push(Loaded {
                list: self,
                registered: None,
                has_python: false,
            });
            if Torch::is_loaded() {
                let _ = register_all();
                if let Some(python) = Python::find().filter(|_| !IS_QUEUED.swap(true, Ordering::AcqRel)) {
                    python.queue(finish_from_queue);
                }
            }
        });
    }

    pub(crate) const fn operators(&self) -> &'static [&'static Operator] {
        self.operators
    }

    pub(crate) const fn namespace(&self) -> &'static str {
        self.namespace
    }

    /// A program in Python, after assignments of what it uses.
    fn program(&self, program: &str) -> String {
        let operators: Vec<_> = self.operators.iter().map(|operator| operator.described()).collect();
        let (path, namespace, operators) = (path(), self.namespace, operators.join(", "));
        // Dynamo asks for the names of Python in the globals of a function.
        format!(
            "import builtins as __builtins__\npath, namespace = {path:?}, {namespace:?}\noperators = [{operators}]\n{program}"
        )
    }
}

/// Registers the operators of lists that are not registered yet.
fn register_all() -> Result<(), CallError> {
    let torch = Torch::find()?;
    let mut outcome = Ok(());
    for loaded in LISTS.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        let registered = loaded.registered.get_or_insert_with(|| {
            let registered = caught(loaded.list.namespace, || register(torch, loaded.list));
            registered.map_err(|error| error.text)
        });
        if let (Ok(()), Err(text)) = (&outcome, &*registered) {
            outcome = Err(CallError::new(c"RuntimeError", text.clone()));
        }
    }
    outcome
}

/// The thread that registers shapes and gradients now.
static REGISTERING: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The turn of this thread, which ends with the value.
struct Turn;

impl Turn {
    /// Waits for another thread that registers: Python switches between threads meanwhile. `None` if this thread registers already.
    /// The thread holds the lock of Python.
    fn take(python: &Python) -> Result<Option<Self>, CallError> {
        let this = std::thread::current().id();
        loop {
            match *REGISTERING.lock().unwrap_or_else(PoisonError::into_inner) {
                ref mut of @ None => {
                    *of = Some(this);
                    return Ok(Some(Self));
                }
                Some(of) if of == this => return Ok(None),
                Some(_) => {}
            }
            python.run("import time\ntime.sleep(0.001)", "<operators>", None)?;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *REGISTERING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Registers the shapes and the gradients of all lists. The thread holds the lock of Python.
fn register_python(python: &Python) -> Result<(), CallError> {
    let _turn = Turn::take(python)?;
    let mut lists = Vec::new();
    for loaded in LISTS.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        if matches!(loaded.registered, Some(Ok(()))) && !core::mem::replace(&mut loaded.has_python, true) {
            lists.push(loaded.list);
        }
    }
    // The lock is not held while Python runs, which may load another library.
    for list in lists {
        let text = list.program(include_str!("torch_operators.py"));
        python.run(&text, &format!("<operators of {}>", list.namespace), None)?;
        for operator in list.operators {
            operator.has_python.store(true, Ordering::Release);
        }
    }
    Ok(())
}

/// The path of this library.
fn path() -> String {
    file_of(interop_load_operators as *const c_void).unwrap_or_default()
}

/// Registers all that is not registered yet. The thread holds the lock of Python.
fn finish(python: &Python) -> Result<(), CallError> {
    register_all()?;
    register_python(python)
}

/// Runs `work`, and raises its error in Python.
fn raising(work: impl FnOnce(&Python) -> Result<(), CallError>) -> c_int {
    let Some(python) = Python::find() else { return -1 };
    match caught("operators", || work(python)) {
        Ok(()) => 0,
        // An empty class: it is raised already.
        Err(error) if error.class.is_empty() => -1,
        Err(error) => {
            let _raised = python.report("raise RuntimeError(text)", &error);
            -1
        }
    }
}

/// What Python runs on its main thread after the library was loaded.
unsafe extern "C" fn finish_from_queue(_: *mut c_void) -> c_int {
    IS_QUEUED.store(false, Ordering::Release);
    raising(|python| match finish(python) {
        // The functions of TVM FFI work all the same.
        Err(error) if !error.class.is_empty() => {
            python.report("warnings.warn(text, RuntimeWarning, 2)", &error)
        }
        outcome => outcome,
    })
}

/// Registers the operators of the library with `PyTorch`, as `ctypes.PyDLL(path).interop_load_operators()`: if the library was loaded
/// before `PyTorch`, or by another thread than the main one. What is registered stays as it is. An error is raised in Python.
#[unsafe(no_mangle)]
pub extern "C" fn interop_load_operators() -> c_int {
    let Some(python) = Python::find() else { return -1 };
    python.with_lock(|| raising(finish))
}

/// Runs the module of functions for JAX in the namespace of a Python module, as
/// `ctypes.PyDLL(path).interop_jax_functions(ctypes.py_object(globals()))`. An error is raised in Python.
///
/// # Safety
///
/// `globals` is a dict of Python.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_jax_functions(globals: *mut c_void) -> c_int {
    let Some(python) = Python::find() else { return -1 };
    python.with_lock(|| {
        raising(|python| {
            let lists: Vec<&'static OperatorList> = LISTS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .map(|loaded| loaded.list)
                .collect();
            for list in lists {
                let text = list.program(include_str!("jax_functions.py"));
                python.run(&text, &format!("<functions of {} for JAX>", list.namespace), Some(globals))?;
            }
            Ok(())
        })
    })
}
