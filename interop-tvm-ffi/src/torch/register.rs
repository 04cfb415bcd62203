//! Registers operators with the dispatcher of `PyTorch`.
#![expect(unsafe_code, reason = "calls functions of the library")]

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use std::ffi::CString;

use crate::error::CallError;
use crate::operator::Operator;
use crate::operator::list::OperatorList;
use crate::runtime::c_string;
use crate::torch::library::{ABI, Kernel, Torch};

/// Registers a list of operators. They stay registered, so this library stays loaded.
///
/// # Errors
///
/// If an operator of this name exists, or the library refuses a schema.
pub(crate) fn register(torch: &Torch, list: &'static OperatorList) -> Result<(), CallError> {
    crate::runtime::stay_loaded();
    // The functions of the library before 2.13 write each exception that they catch to stderr.
    let level = torch.log_level.map(|level| (level, level.swap(FATAL, Ordering::Relaxed)));
    let outcome = register_all(torch, list);
    if let Some((level, before)) = level {
        level.store(before, Ordering::Relaxed);
    }
    outcome
}

/// `c10::GLOG_FATAL`.
const FATAL: i32 = 3;

fn register_all(torch: &Torch, list: &'static OperatorList) -> Result<(), CallError> {
    let refused = |name: &str, error: CallError| {
        let why = torch.what.map_or(String::new(), |_| format!(": {}", error.text));
        let namespace = list.namespace();
        let text = format!(
            "operators: `{namespace}{name}` was not registered; a library with this name may be loaded already{why}"
        );
        CallError::new(c"RuntimeError", text)
    };
    let namespace = Namespace::new(torch, list.namespace()).map_err(|error| refused("", error))?;
    for operator in list.operators() {
        operator.set_namespace(list.namespace());
        namespace.register(operator).map_err(|error| refused(&format!("::{}", operator.name), error))?;
    }
    Ok(())
}

/// The keys of tensors of tensors, and of all devices and layouts that have no kernel of their own. The last does not include the
/// others.
const REFUSED: [&CStr; 4] =
    [c"NestedTensorCPU", c"NestedTensorCUDA", c"AutogradNestedTensor", c"CompositeExplicitAutograd"];

/// The keys of tensors with a lazy conjugate or sign. `PyTorch` passes a copy of these, writes back what the operator returns, and reads
/// beyond its stack for one that returns nothing.
const LAZY: [&CStr; 2] = [c"Conjugate", c"Negative"];

/// The keys at which an operator with gradients calls one of two others. `Autograd` stands for all devices; for the CPU and CUDA
/// `torch_operators.py` removes it, so that a call without a gradient is one step of the dispatcher. So all keys are here that come
/// between the gradient and the kernel of a device: a mode or a transform sees the operators that are called.
const CHOOSES: [&CStr; 7] = [
    c"Autograd",
    c"FuncTorchDynamicLayerBackMode",
    c"Python",
    c"Functionalize",
    c"Conjugate",
    c"Negative",
    c"ZeroTensor",
];

const DEVICES: [&CStr; 2] = [c"CPU", c"CUDA"];

/// A namespace of `PyTorch`, with its library for schemas. Libraries stay.
struct Namespace<'a> {
    torch: &'a Torch,
    name: CString,
    schemas: *mut c_void,
}

impl<'a> Namespace<'a> {
    fn new(torch: &'a Torch, name: &str) -> Result<Self, CallError> {
        let (name, mut schemas) = (c_string(name), null_mut());
        // SAFETY: C strings, and a place that is valid for a write.
        let status =
            unsafe { (torch.init_fragment)(name.as_ptr(), c"export!".as_ptr(), 0, &raw mut schemas) };
        torch.check(status, "aoti_torch_library_init_fragment")?;
        Ok(Self { torch, name, schemas })
    }

    fn register(&self, operator: &'static Operator) -> Result<(), CallError> {
        let (signature, name) = (operator.signature(), c_string(operator.name));
        self.define(&signature.schema(operator.name))?;
        if !signature.has_tensors() {
            return self.implement(c"CompositeExplicitAutograd", &name, operator.kernel);
        }
        if !operator.has_gradients {
            return self.implement_all(operator, &name);
        }
        for inner in operator.inner_names() {
            self.define(&signature.schema(&inner))?;
            self.implement_all(operator, &c_string(&inner))?;
        }
        self.implement_each(&CHOOSES, &name, operator.composite)?;
        self.implement_each(&REFUSED, &name, operator.composite)?;
        self.implement_each(&DEVICES, &name, operator.direct)
    }

    /// The kernels of an operator with tensors.
    fn implement_all(&self, operator: &Operator, name: &CStr) -> Result<(), CallError> {
        self.implement_each(&REFUSED, name, operator.refuse)?;
        if operator.signature().writes() {
            self.implement_each(&LAZY, name, operator.refuse)?;
        }
        self.implement_each(&DEVICES, name, operator.kernel)
    }

    fn implement_each(&self, keys: &[&CStr], name: &CStr, kernel: Kernel) -> Result<(), CallError> {
        keys.iter().try_for_each(|key| self.implement(key, name, kernel))
    }

    fn define(&self, schema: &str) -> Result<(), CallError> {
        let (torch, schema) = (self.torch, c_string(schema));
        let status = match (torch.define_with_tags, torch.compliant_tag) {
            (Some(define), Some(tag)) => {
                // SAFETY: the function has no preconditions.
                let tag = unsafe { tag() };
                // SAFETY: a library, a C string, and a list with one tag.
                unsafe { define(self.schemas, schema.as_ptr(), &raw const tag, 1) }
            }
            // SAFETY: a library and a C string.
            _ => unsafe { (torch.define)(self.schemas, schema.as_ptr()) },
        };
        torch.check(status, "aoti_torch_library_def")
    }

    /// Registers a kernel for a dispatch key.
    fn implement(&self, key: &CStr, name: &CStr, kernel: Kernel) -> Result<(), CallError> {
        let (torch, mut library) = (self.torch, null_mut());
        // SAFETY: C strings, and a place that is valid for a write.
        let status = unsafe {
            (torch.init_impl)(self.name.as_ptr(), key.as_ptr(), c"export!".as_ptr(), 0, &raw mut library)
        };
        torch.check(status, "aoti_torch_library_init_impl")?;
        // SAFETY: a library, a C string, and a kernel of the schema.
        torch.check(unsafe { (torch.implement)(library, name.as_ptr(), kernel, ABI) }, "torch_library_impl")
    }
}
