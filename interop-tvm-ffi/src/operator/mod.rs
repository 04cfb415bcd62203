//! Operators: exported functions with a schema, rules for their results, and gradients.

pub(crate) mod description;
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
    /// What the types do not tell.
    const RULES: Rules;

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

/// What the types of a function do not tell. Texts are expressions of Python.
#[derive(Debug)]
pub struct Rules {
    /// The parameter whose element type, device and extents the result has.
    pub like: Option<&'static str>,
    /// Other extents, as a tuple.
    pub shape: Option<&'static str>,
    /// Another element type.
    pub dtype: Option<&'static str>,
    /// Whether each element of the result depends only on the elements at its place.
    pub is_elementwise: bool,
    /// The function that writes the result to an array of the caller.
    pub into: Option<&'static str>,
    /// The gradients of parameters.
    pub gradients: &'static [Gradient],
}

/// The gradient of a parameter.
#[derive(Debug)]
pub struct Gradient {
    /// The name of the parameter in Python.
    pub of: &'static str,
    /// The expression.
    pub text: &'static str,
    /// The names of parameters in it, `gradient` and `result`.
    pub uses: &'static [&'static str],
}

/// An operator: a function, its rules, and what `PyTorch` calls.
#[derive(Debug)]
pub struct Operator {
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
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

    pub(crate) const fn has_gradients(&self) -> bool {
        !self.rules.gradients.is_empty()
    }
}
