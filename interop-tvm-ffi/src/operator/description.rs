//! Operators described for programs in Python: `torch_operators.py` and `jax_functions.py`.

use crate::operator::list::OperatorList;
use crate::operator::{Gradient, Operator};

/// A program in Python, after assignments of what it uses.
pub(crate) fn program(path: &str, list: &OperatorList, program: &str) -> String {
    let operators: Vec<_> = list.operators().iter().map(|operator| describe(operator)).collect();
    // Options and bools are written as in Rust.
    format!(
        "Some, true, false = (lambda value: value), True, False\n\
         path, namespace = {path:?}, {:?}\noperators = {operators:?}\n{program}",
        list.namespace()
    )
}

/// The arguments of `register` and `add`.
fn describe(operator: &Operator) -> impl core::fmt::Debug {
    let (rules, signature) = (&operator.rules, operator.signature());
    let parameters: Vec<_> =
        signature.parameters.iter().map(|parameter| (parameter.python, parameter.kind.schema())).collect();
    let gradient = |gradient: &Gradient| (gradient.of, gradient.text, gradient.uses);
    let gradients: Vec<_> = rules.gradients.iter().map(gradient).collect();
    let (returns, is_elementwise) = (signature.returns.schema(), rules.is_elementwise);
    (
        operator.name,
        parameters,
        returns,
        rules.like,
        rules.shape,
        rules.dtype,
        is_elementwise,
        rules.into,
        gradients,
    )
}
