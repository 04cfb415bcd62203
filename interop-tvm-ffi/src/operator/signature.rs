//! The types of an operator, as in a schema of `PyTorch`.

use crate::argument::{Argument, ArrayKind, ListKind, OptionKind, ValueKind};
use crate::return_value::ReturnValue;

/// The type of a parameter or of a result in a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// None: `()` as a result, `&Call`, for which the caller passes nothing, and tuples.
    #[default]
    None,
    /// `Tensor`, or `Tensor(a!)`.
    Tensor {
        /// Whether the function writes to it.
        is_written: bool,
    },
    /// `int`.
    Int,
    /// `float`.
    Float,
    /// `bool`.
    Bool,
    /// `str`.
    Str,
    /// `ScalarType`.
    DType,
    /// `Device`.
    Device,
    /// `T?`.
    Optional(&'static Self),
    /// `T[]`.
    List(&'static Self),
}

impl Kind {
    /// Whether it is a tensor, or a list or an option of tensors.
    pub(crate) fn has_tensors(self) -> bool {
        match self {
            Self::Tensor { .. } => true,
            Self::Optional(kind) | Self::List(kind) => kind.has_tensors(),
            _ => false,
        }
    }

    /// The type in a schema. The letter of all tensors that are written is `a`.
    pub(crate) fn schema(self) -> String {
        match self {
            Self::None => "()".to_owned(),
            Self::Tensor { is_written: false } => "Tensor".to_owned(),
            Self::Tensor { is_written: true } => "Tensor(a!)".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Float => "float".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Str => "str".to_owned(),
            Self::DType => "ScalarType".to_owned(),
            Self::Device => "Device".to_owned(),
            Self::Optional(kind) => kind.schema() + "?",
            Self::List(kind) => kind.schema() + "[]",
        }
    }
}

/// The kinds of types that a schema of `PyTorch` has.
pub trait SchemaKind {}
impl<K: PresentKind> SchemaKind for K {}
impl<K: PresentKind> SchemaKind for OptionKind<K> {}

/// The kinds of types that can be optional.
#[diagnostic::on_unimplemented(
    message = "an option of an option cannot be the parameter of an operator",
    label = "a schema of PyTorch has no such type"
)]
pub trait PresentKind {}
impl PresentKind for ArrayKind {}
impl PresentKind for ValueKind {}
impl<K: ItemKind> PresentKind for ListKind<K> {}

/// The kinds of types that can be the items of a list.
#[diagnostic::on_unimplemented(
    message = "a tuple, or a list of lists or of options, cannot be the parameter of an operator",
    label = "a schema of PyTorch has no such type",
    note = "allowed: arrays, integers, `f32`, `f64`, `bool`, `&str`, `DType`, `Device`, a `Vec` of one of these, and an `Option` of any of these",
    note = "list the function in an `export!` without `operators`, which makes it a function of TVM FFI only"
)]
pub trait ItemKind {}
impl ItemKind for ArrayKind {}
impl ItemKind for ValueKind {}

/// A parameter of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// The name in Rust, for errors.
    pub(crate) name: &'static str,
    /// The name in Python, which keeps some names for itself.
    pub(crate) python: &'static str,
    pub(crate) kind: Kind,
}

/// The types of an operator.
#[derive(Debug, Default)]
pub struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Kind,
}

/// Stands for an argument whose type the compiler finds.
#[derive(Debug)]
pub struct Placeholder<A>(Option<A>);

impl<A> Placeholder<A> {
    /// The argument, in code that never runs.
    #[must_use]
    pub fn take(self) -> A {
        self.0.unwrap_or_else(|| unreachable!("a description calls no function"))
    }
}

impl Signature {
    /// Notes the next parameter.
    pub fn parameter<'c, A: Argument<'c, K>, K: SchemaKind>(
        &mut self,
        name: &'static str,
        python: &'static str,
    ) -> Placeholder<A> {
        if A::KIND != Kind::None {
            self.parameters.push(Parameter { name, python, kind: A::KIND });
        }
        Placeholder(None)
    }

    /// Notes the result.
    pub fn result<R: ReturnValue<K>, K>(&mut self, _: impl FnOnce() -> R) {
        self.returns = R::RETURNS;
    }

    /// Whether a tensor is written.
    pub(crate) fn writes(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.kind.schema().contains('!'))
    }

    pub(crate) fn has_tensors(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.kind.has_tensors())
    }

    /// The schema of an operator with this name. Options at the end may be left out.
    pub(crate) fn schema(&self, name: &str) -> String {
        let is_optional = |parameter: &Parameter| matches!(parameter.kind, Kind::Optional(_));
        let required =
            self.parameters.iter().rposition(|parameter| !is_optional(parameter)).map_or(0, |at| at + 1);
        let mut letters = 'a'..='z';
        let parameters = self.parameters.iter().enumerate().map(|(at, Parameter { python, kind, .. })| {
            let default = if at >= required { "=None" } else { "" };
            let schema = kind.schema();
            let letter = if schema.contains('!') { letters.next().unwrap_or('z') } else { 'a' };
            format!("{} {python}{default}", schema.replace("(a!)", &format!("({letter}!)")))
        });
        let parameters: Vec<String> = parameters.collect();
        format!("{name}({}) -> {}", parameters.join(", "), self.returns.schema())
    }
}
