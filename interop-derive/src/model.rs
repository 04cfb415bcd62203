//! The checked model: what the struct is, with every default chosen and every conflict refused.
//!
//! `expand` prints it. An option that is still open, or a combination that has no meaning, cannot be written here.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Generics, Member, Path, Type};

pub(crate) use crate::attributes::Unit;

/// A struct that is an array.
pub(crate) struct Model<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) generics: Generics,
    pub(crate) krate: Path,
    /// What silences the lints that the user silenced for the struct; see `generics::silenced`.
    pub(crate) lints: Option<TokenStream>,
    pub(crate) directions: Directions,
    pub(crate) data: Data<'a>,
    pub(crate) shape: Shape<'a>,
    pub(crate) strides: Strides<'a>,
    pub(crate) order: OrderWord,
    pub(crate) devices: Devices,
    pub(crate) stream: Stream<'a>,
    pub(crate) access: Access,
    pub(crate) owner: Owner<'a>,
    /// How an import fills the fields, in the order in which it must happen; empty when there is no import.
    pub(crate) fills: Vec<Fill<'a>>,
    pub(crate) python: Python,
}

/// Which halves are generated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directions {
    Both,
    Export,
    Import,
}

impl Directions {
    pub(crate) fn exports(self) -> bool {
        self != Self::Import
    }

    pub(crate) fn imports(self) -> bool {
        self != Self::Export
    }
}

/// A field that has a role.
#[derive(Clone)]
pub(crate) struct Role<'a> {
    pub(crate) member: &'a Member,
    pub(crate) ty: &'a Type,
    /// What messages at run time call it.
    pub(crate) name: &'a str,
}

/// Where the memory is.
pub(crate) enum Data<'a> {
    /// In a storage, which knows its address, size, element type and device.
    Storage(Role<'a>, Asks),
    /// Behind a pointer that the user vouches for.
    Raw { pointer: Role<'a>, pointee: Pointee<'a>, device: Role<'a>, vouched: Span },
}

/// How the import half asks for the import role of a type that needs an export role too.
///
/// A type that has neither should be one message, that of the export half.
#[derive(Clone, Copy)]
pub(crate) enum Asks {
    /// `<Type as Role>`: there is no export half, or the type is generic, so that its roles are bounds of the impl.
    Directly,
    /// Through the gate of the runtime, which asks for nothing where the export half has complained.
    ThroughGate,
}

/// What a raw pointer points to.
#[derive(Clone, Copy)]
pub(crate) enum Pointee<'a> {
    /// The type of the pointer says it.
    Typed,
    /// `element = T` says it: the field is an address.
    Element(&'a Type),
}

/// Where the extents are.
pub(crate) enum Shape<'a> {
    Field(Role<'a>),
    Extents(Vec<Axis<'a>>),
}

/// One entry of `shape = [...]`.
pub(crate) enum Axis<'a> {
    Field(Role<'a>),
    /// A const generic, or a constant that depends on the parameters of the struct.
    Const(TokenStream),
    /// Any other constant, by a path that does not begin with `Self`.
    Known(TokenStream),
    Literal(u64),
}

/// Where the strides are.
pub(crate) enum Strides<'a> {
    /// Nowhere: the array is compact.
    Contiguous,
    Field(Role<'a>, Unit),
}

/// An order of axes.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The last axis is contiguous.
    C,
    /// The first axis is contiguous.
    F,
}

/// A kind of memory, by its name in `device = ...`.
#[derive(Clone, Copy)]
pub(crate) enum Device {
    Cpu,
    Cuda,
    CudaHost,
    CudaManaged,
}

/// Where an import may be.
pub(crate) enum Devices {
    /// Wherever the storage can use it.
    AsStorage,
    /// On one of these.
    Listed(Vec<Device>),
}

/// The word `order`.
pub(crate) enum OrderWord {
    /// Absent: an export is in C order, or as the strides field says.
    Unwritten,
    Written(Order),
}

/// What an import demands of the strides.
pub(crate) enum Demand {
    Order(Order),
    /// Anything: there is a field for them.
    Any,
}

impl Model<'_> {
    /// What an import demands of the strides.
    pub(crate) fn demand(&self) -> Demand {
        match (&self.order, &self.strides) {
            (OrderWord::Written(order), _) => Demand::Order(*order),
            (OrderWord::Unwritten, Strides::Contiguous) => Demand::Order(Order::C),
            (OrderWord::Unwritten, Strides::Field(..)) => Demand::Any,
        }
    }

    /// Whether an import asks for a role through the gate.
    pub(crate) fn needs_probe(&self) -> bool {
        let probed = |fill: &Fill<'_>| match fill.with {
            With::Stream(_, asks) => matches!(asks, Asks::ThroughGate),
            With::Storage => matches!(self.data, Data::Storage(_, Asks::ThroughGate)),
            _ => false,
        };
        self.fills.iter().any(probed)
    }

    /// Whether an import calls for a value that has nothing to do with it, which a refused import should not.
    pub(crate) fn runs_user_code(&self) -> bool {
        self.fills.iter().any(|fill| matches!(fill.with, With::OwnStream(..) | With::Initial(_)))
    }
}

/// Where work on the data is pending.
pub(crate) enum Stream<'a> {
    /// Nowhere: no field says otherwise.
    Unsaid,
    Field(Role<'a>),
}

/// Who may write to an export.
pub(crate) enum Access {
    /// As the storage says.
    AsStorage,
    Readonly,
}

/// Who keeps the memory alive beside the data.
pub(crate) enum Owner<'a> {
    Nobody,
    Field(Role<'a>),
}

/// How an import fills one field.
pub(crate) struct Fill<'a> {
    pub(crate) member: &'a Member,
    pub(crate) with: With<'a>,
}

/// What an import fills a field with.
pub(crate) enum With<'a> {
    Extent(Role<'a>, usize),
    Shape(Role<'a>),
    Strides(Role<'a>, Unit),
    /// The stream of the caller.
    Stream(Role<'a>, Asks),
    /// A stream of the struct's own, on which the import is ordered.
    OwnStream(Role<'a>, Initial<'a>),
    Device(Role<'a>),
    /// A value that has nothing to do with what arrives.
    Initial(Initial<'a>),
    Storage,
    Pointer(Role<'a>, Pointee<'a>),
    Owner(Role<'a>),
}

impl With<'_> {
    /// Storage and owner take the memory over, so nothing that can fail may come after them; a raw pointer is only read.
    pub(crate) fn fill_order(&self) -> u8 {
        match self {
            Self::Owner(_) => 3,
            Self::Storage => 2,
            Self::Pointer(..) => 1,
            _ => 0,
        }
    }
}

/// The words `default` and `default = expression`.
pub(crate) enum Initial<'a> {
    /// `Default::default()` of the type.
    Default(&'a Type),
    Expression(TokenStream),
}

/// What is generated for Python.
///
/// Each is the place of the user's word, where a missing feature is reported.
pub(crate) struct Python {
    pub(crate) conversions: Option<Span>,
    pub(crate) class: Option<Span>,
    /// Whether the word had a message, beside which a missing feature is not worth another.
    pub(crate) is_reported: bool,
}
