//! Operators: exported functions with a schema, rules for their results, and gradients.

pub(crate) mod list;
pub(crate) mod python;
pub(crate) mod signature;

use core::sync::atomic::AtomicBool;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::abi::TVMFFIAny;
use crate::arguments::Arguments;
use crate::error::CallError;
use crate::runtime::c_string;
use crate::torch::kernel::kernel;
use crate::torch::library::Kernel;
use signature::Signature;

/// The outcome of a function.
pub type Outcome = Result<TVMFFIAny, CallError>;

/// A function of a list of operators. Expanded code implements it.
pub trait Operation: 'static {
    /// The name of the function.
    const NAME: &'static str;
    /// What the types do not tell, as arguments of functions in Python: of `register` and of `add`.
    const RULES: &'static str;
    /// Whether one of the rules is a gradient.
    const HAS_GRADIENTS: bool;

    /// Notes the types of the parameters and of the result.
    fn describe(signature: &mut Signature);

    /// Reads the arguments and calls the function.
    ///
    /// # Errors
    ///
    /// For arguments that do not fit, and the error of the function.
    fn call(arguments: &Arguments<'_>) -> Outcome;

    /// The operator in the list.
    fn operator() -> &'static Operator;
}

/// An operator: a function, its rules, and what `PyTorch` calls.
#[derive(Debug)]
pub struct Operator {
    pub(crate) name: &'static str,
    rules: &'static str,
    pub(crate) has_gradients: bool,
    describe: fn(&mut Signature),
    /// What [`kernel`] says of each.
    pub(crate) kernel: Kernel,
    pub(crate) refuse: Kernel,
    pub(crate) direct: Kernel,
    pub(crate) composite: Kernel,
    signature: OnceLock<Signature>,
    /// The names of the operators that the composite kernel calls, without and with gradients.
    inner: OnceLock<[CString; 2]>,
    /// Whether Python has registered the shape and the gradients.
    pub(crate) has_python: AtomicBool,
}

impl Operator {
    /// The operator of a function.
    #[must_use]
    pub const fn of<O: Operation>() -> Self {
        Self {
            name: O::NAME,
            rules: O::RULES,
            has_gradients: O::HAS_GRADIENTS,
            describe: O::describe,
            kernel: kernel::<O, false, true>,
            refuse: kernel::<O, false, false>,
            direct: kernel::<O, true, true>,
            composite: kernel::<O, true, false>,
            signature: OnceLock::new(),
            inner: OnceLock::new(),
            has_python: AtomicBool::new(false),
        }
    }

    /// The types of the function.
    pub(crate) fn signature(&self) -> &Signature {
        self.signature.get_or_init(|| {
            let mut signature = Signature::default();
            (self.describe)(&mut signature);
            signature
        })
    }

    /// Notes the namespace before the first call.
    pub(crate) fn set_namespace(&self, namespace: &str) {
        let inner = self.inner_names();
        self.inner.get_or_init(|| inner.map(|name| c_string(&format!("{namespace}::{name}"))));
    }

    pub(crate) fn inner(&self) -> &[CString; 2] {
        self.inner.get_or_init(Default::default)
    }

    /// The operators without and with gradients that an operator with gradients calls.
    pub(crate) fn inner_names(&self) -> [String; 2] {
        [format!("_{}", self.name), format!("_{}_grad", self.name)]
    }

    /// The arguments of `register` and of `add` in Python.
    pub(crate) fn described(&self) -> String {
        let signature = self.signature();
        let parameters: Vec<_> = signature
            .parameters
            .iter()
            .map(|parameter| (parameter.python, parameter.kind.schema()))
            .collect();
        let returns = signature.returns.schema();
        format!("dict(name={:?}, parameters={parameters:?}, returns={returns:?}, {})", self.name, self.rules)
    }
}
