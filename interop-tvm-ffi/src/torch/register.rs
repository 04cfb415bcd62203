//! Registers operators with the dispatcher of `PyTorch`.
#![expect(unsafe_code, reason = "calls functions of the library")]

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

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
    let namespace = Namespace::new(torch, list.namespace())?;
    for operator in list.operators() {
        operator.set_namespace(list.namespace());
        namespace.register(operator).map_err(|error| {
            let text = format!(
                "operators: `{}::{}` was not registered; a library with this name may be loaded already. {error}",
                list.namespace(),
                operator.name
            );
            CallError::new(c"RuntimeError", text)
        })?;
    }
    Ok(())
}

/// The libraries of `PyTorch` for a namespace: one for schemas, one for each dispatch key.
struct Namespace<'a> {
    torch: &'a Torch,
    schemas: *mut c_void,
    cpu: *mut c_void,
    cuda: *mut c_void,
    /// For all devices and layouts that have no kernel of their own.
    others: *mut c_void,
    composite: *mut c_void,
    /// For tensors of tensors, which `others` does not include.
    nested: [*mut c_void; 3],
}

impl<'a> Namespace<'a> {
    fn new(torch: &'a Torch, name: &str) -> Result<Self, CallError> {
        let (name, mut schemas) = (c_string(name), null_mut());
        // SAFETY: C strings, and a place that is valid for a write.
        let status =
            unsafe { (torch.init_fragment)(name.as_ptr(), c"export!".as_ptr(), 0, &raw mut schemas) };
        torch.check(status, "aoti_torch_library_init_fragment")?;
        let kernels = |key: &CStr| {
            let mut library = null_mut();
            // SAFETY: C strings, and a place that is valid for a write.
            let status = unsafe {
                (torch.init_impl)(name.as_ptr(), key.as_ptr(), c"export!".as_ptr(), 0, &raw mut library)
            };
            torch.check(status, "aoti_torch_library_init_impl").map(|()| library)
        };
        Ok(Self {
            torch,
            schemas,
            cpu: kernels(c"CPU")?,
            cuda: kernels(c"CUDA")?,
            others: kernels(c"CompositeExplicitAutograd")?,
            composite: kernels(c"CompositeImplicitAutograd")?,
            nested: [
                kernels(c"NestedTensorCPU")?,
                kernels(c"NestedTensorCUDA")?,
                kernels(c"AutogradNestedTensor")?,
            ],
        })
    }

    fn register(&self, operator: &'static Operator) -> Result<(), CallError> {
        let (signature, name) = (operator.signature(), c_string(operator.name));
        self.define(&signature.schema(operator.name))?;
        if !signature.has_tensors() {
            return self.implement(self.others, &name, operator.kernel);
        }
        if !operator.has_gradients() {
            return self.implement_all(operator, &name);
        }
        for inner in operator.inner_names() {
            self.define(&signature.schema(&inner))?;
            self.implement_all(operator, &c_string(&inner))?;
        }
        self.implement(self.composite, &name, operator.composite)
    }

    /// The kernels of an operator with tensors.
    fn implement_all(&self, operator: &Operator, name: &CStr) -> Result<(), CallError> {
        for library in self.nested.into_iter().chain([self.others]) {
            self.implement(library, name, operator.refuse)?;
        }
        self.implement(self.cpu, name, operator.kernel)?;
        self.implement(self.cuda, name, operator.kernel)
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

    fn implement(&self, library: *mut c_void, name: &CStr, kernel: Kernel) -> Result<(), CallError> {
        // SAFETY: a library, a C string, and a kernel of the schema.
        let status = unsafe { (self.torch.implement)(library, name.as_ptr(), kernel, ABI) };
        self.torch.check(status, "torch_library_impl")
    }
}
