//! The checked model of a struct: every default is chosen, every conflict is rejected.
//!
//! `expand` turns it into code. The types cannot represent an open option or an invalid combination.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Generics, Member, Path, Type};

/// A struct that is an array.
pub(crate) struct ArrayModel<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) generics: Generics,
    pub(crate) krate: Path,
    /// `#[allow]` for the lints that the user allowed on the struct; see `generics::silenced`.
    pub(crate) lints: Option<TokenStream>,
    /// Whether the export half is generated.
    pub(crate) exports: bool,
    /// Whether the import half is generated.
    pub(crate) imports: bool,
    pub(crate) data: Data<'a>,
    /// The types of the fields that are neither the memory, nor its layout, nor a stream.
    pub(crate) others: Vec<&'a Type>,
    pub(crate) shape: Shape<'a>,
    /// The field with the strides, and whether they are in bytes. Without one the array is contiguous.
    pub(crate) strides: Option<(RoleField<'a>, bool)>,
    /// The keyword `order`.
    pub(crate) order: Option<MemoryOrder>,
    /// The devices from which an import is accepted, or `None` for all that the storage supports.
    pub(crate) devices: Option<Vec<MemoryType>>,
    /// The field with the stream of pending work.
    pub(crate) stream: Option<RoleField<'a>>,
    pub(crate) is_readonly: bool,
    /// The field that owns the memory besides the data.
    pub(crate) owner: Option<RoleField<'a>>,
    /// How an import fills the fields, in the necessary order. Empty without an import.
    pub(crate) fills: Vec<Fill<'a>>,
    pub(crate) python: Python,
}

/// A field with a role.
#[derive(Clone)]
pub(crate) struct RoleField<'a> {
    pub(crate) member: &'a Member,
    pub(crate) ty: &'a Type,
    /// The name in runtime messages.
    pub(crate) name: &'a str,
}

/// The location of the memory.
pub(crate) enum Data<'a> {
    /// In a storage, which knows its address, size, element type and device.
    Storage(RoleField<'a>, TraitAccess),
    /// In a field that is an array struct itself.
    Inner(RoleField<'a>, TraitAccess),
    /// Behind a raw pointer, for which the user guarantees the safety rules. `element` is that of an integer address; a
    /// pointer has a type of its own.
    Raw { pointer: RoleField<'a>, element: Option<&'a Type>, device: RoleField<'a>, unsafe_raw: Span },
}

/// How the import half names the import trait of a type that also needs the export trait.
///
/// A type that implements neither should cause one error, that of the export half.
#[derive(Clone, Copy)]
pub(crate) enum TraitAccess {
    /// `<Type as Role>`: there is no export half, or the type is generic and has the trait as a bound.
    Directly,
    /// Through `FieldProbe`, which requires nothing if the export half has an error.
    ThroughProbe,
}

/// The location of the extents.
pub(crate) enum Shape<'a> {
    Field(RoleField<'a>),
    Extents(Vec<ShapeEntry<'a>>),
    /// That of the inner struct.
    OfInner,
}

/// One entry of `shape = [...]`.
pub(crate) enum ShapeEntry<'a> {
    Field(RoleField<'a>),
    /// A const generic, or a constant that depends on the parameters of the struct.
    Const(TokenStream),
    /// Any other constant, by a path that does not begin with `Self`.
    Known(TokenStream),
    /// An expression, and how it is written. Only without an import.
    Computed(TokenStream, String),
    Literal(u64),
}

/// A memory order.
#[derive(Clone, Copy)]
pub(crate) enum MemoryOrder {
    /// The last axis is contiguous.
    C,
    /// The first axis is contiguous.
    F,
}

/// A memory type, by its name in `device = ...`.
#[derive(Clone, Copy)]
pub(crate) enum MemoryType {
    Cpu,
    Cuda,
    CudaHost,
    CudaManaged,
}

impl MemoryType {
    /// The names that Python uses.
    pub(crate) const NAMES: [(&str, Self); 4] = [
        ("cpu", Self::Cpu),
        ("cuda", Self::Cuda),
        ("cuda_host", Self::CudaHost),
        ("cuda_managed", Self::CudaManaged),
    ];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, device)| *device)
    }
}

impl ArrayModel<'_> {
    /// The order that an import must have. `None` if any strides are accepted.
    pub(crate) fn required_order(&self) -> Option<MemoryOrder> {
        self.order.or_else(|| self.strides.is_none().then_some(MemoryOrder::C))
    }

    /// Whether an import uses `FieldProbe`.
    pub(crate) fn needs_probe(&self) -> bool {
        let probed = |fill: &Fill<'_>| match fill.with {
            With::Stream(_, access) | With::Inner(_, access) => matches!(access, TraitAccess::ThroughProbe),
            With::Storage => matches!(self.data, Data::Storage(_, TraitAccess::ThroughProbe)),
            _ => false,
        };
        self.fills.iter().any(probed)
    }

    /// Whether an import evaluates user code for a field. A rejected import should not do so.
    pub(crate) fn runs_user_code(&self) -> bool {
        self.fills.iter().any(|fill| matches!(fill.with, With::OwnStream(..) | With::Initial(_)))
    }
}

/// How an import fills one field.
pub(crate) struct Fill<'a> {
    pub(crate) member: &'a Member,
    pub(crate) with: With<'a>,
}

/// The value with which an import fills a field.
pub(crate) enum With<'a> {
    Extent(RoleField<'a>, usize),
    Shape(RoleField<'a>),
    /// Whether the strides are in bytes.
    Strides(RoleField<'a>, bool),
    /// The caller's stream.
    Stream(RoleField<'a>, TraitAccess),
    /// The struct's own stream, which is made to wait for the import.
    OwnStream(RoleField<'a>, Initial<'a>),
    Device(RoleField<'a>),
    /// A value that does not depend on the import.
    Initial(Initial<'a>),
    Storage,
    /// The inner struct, from the whole import.
    Inner(RoleField<'a>, TraitAccess),
    Pointer(RoleField<'a>, Option<&'a Type>),
    Owner(RoleField<'a>),
}

impl With<'_> {
    /// Storage and owner take the memory, so nothing that can fail may follow them; a raw pointer is only read.
    pub(crate) fn fill_order(&self) -> u8 {
        match self {
            Self::Owner(_) => 3,
            Self::Storage | Self::Inner(..) => 2,
            Self::Pointer(..) => 1,
            _ => 0,
        }
    }
}

/// The keywords `default` and `default = expression`.
pub(crate) enum Initial<'a> {
    /// `Default::default()` of the type.
    Default(&'a Type),
    Expression(TokenStream),
}

/// The generated code for Python.
///
/// Each span is that of the user's keyword, where a missing feature is reported.
pub(crate) struct Python {
    pub(crate) conversions: Option<Span>,
    pub(crate) class: Option<Span>,
    /// Whether the keyword already has an error, so that a missing feature is not reported as well.
    pub(crate) is_reported: bool,
}
