//! The struct as its attributes describe it: which field has which role, and which roles the type of a field suggests.

use syn::{DeriveInput, Generics, Type};

use crate::attribute_syntax::Set;
use crate::attributes::{ContainerAttrs, FieldAttrs};
use crate::errors::Errors;
use crate::fields::{FieldSpec, bare};
use crate::shape_list::WrittenExtent;

/// The parsed attributes and fields of a struct.
pub(crate) struct StructSpec<'a> {
    pub(crate) input: &'a DeriveInput,
    pub(crate) attrs: &'a ContainerAttrs,
    pub(crate) fields: &'a [FieldSpec<'a>],
}

impl<'a> StructSpec<'a> {
    pub(crate) fn generics(&self) -> &'a Generics {
        &self.input.generics
    }

    pub(crate) fn is_imported(&self) -> bool {
        self.attrs.export.is_none()
    }

    /// The first field with this keyword.
    pub(crate) fn with(&self, has: impl Fn(&FieldAttrs) -> bool) -> Option<&'a FieldSpec<'a>> {
        self.fields.iter().find(|field| has(&field.attrs))
    }

    /// The first field with this keyword, unless the field has another role too.
    pub(crate) fn only(&self, has: impl Fn(&FieldAttrs) -> bool) -> Option<&'a FieldSpec<'a>> {
        self.with(has).filter(|field| self.has_one_use(field))
    }

    /// Whether the field has at most one use: no two roles, and no role together with an extent.
    pub(crate) fn has_one_use(&self, field: &FieldSpec<'_>) -> bool {
        let mut roles = field.attrs.roles();
        roles.next().is_none() || roles.next().is_none() && !self.is_extent(field)
    }

    pub(crate) fn data(&self) -> Option<&'a FieldSpec<'a>> {
        self.with(|attrs| attrs.data.is_some())
    }

    pub(crate) fn inner(&self) -> Option<&'a FieldSpec<'a>> {
        self.with(|attrs| attrs.inner.is_some())
    }

    /// Whether the memory is behind a raw pointer, and not in a storage.
    pub(crate) fn is_raw(&self) -> bool {
        let data = self.data().and_then(|field| field.attrs.data.as_ref());
        data.is_some_and(|data| data.value.unsafe_raw.is_some())
    }

    /// Whether `shape = [...]` names the field.
    pub(crate) fn is_extent(&self, field: &FieldSpec<'_>) -> bool {
        self.extents().any(|named| std::ptr::eq(named, field))
    }

    /// The fields that `shape = [...]` names. With two lists it is not known which one is intended; beside `inner`, none is, unless
    /// there is a `data` field too.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &'a FieldSpec<'a>> {
        let is_meant =
            |shape: &&Set<_>| !shape.is_reported && (self.inner().is_none() || self.data().is_some());
        let list = self.attrs.shape.iter().filter(is_meant).flat_map(|shape| &shape.value);
        list.filter_map(|extent| field_of(extent, self.fields))
    }

    /// The fields that an import cannot fill, as far as the keywords are certain. They include an owner next to a storage
    /// if there are others.
    pub(crate) fn unfilled(&self, errors: &Errors) -> Vec<&'a FieldSpec<'a>> {
        if !self.is_imported() || !["default", "export"].iter().all(|word| errors.is_absent(word)) {
            return Vec::new();
        }
        let uncertain = || FILLING.iter().filter(|word| !errors.is_absent(word));
        let may_be_filled = |field: &FieldSpec<'_>| {
            errors.is_meant(&field.name) || uncertain().any(|role| can_have_role(field.ty, role))
        };
        let is_open = |field: &&FieldSpec<'_>| {
            field.attrs.default.is_none() && !self.is_extent(field) && !may_be_filled(field)
        };
        let open = || self.fields.iter().filter(is_open);
        if open().all(|field| field.attrs.roles().next().is_some()) {
            return Vec::new();
        }
        let is_filled = |role: &str| role != "owner" || self.is_raw();
        open().filter(|field| !field.attrs.roles().any(|(role, _)| is_filled(role))).collect()
    }
}

/// The keywords that give a field a role. One that could not be read may belong to a field that seems to have none.
const FILLING: [&str; 8] = ["data", "inner", "unsafe_raw", "shape", "strides", "stream", "device", "owner"];

/// The field that an extent names.
pub(crate) fn field_of<'a>(extent: &WrittenExtent, fields: &'a [FieldSpec<'a>]) -> Option<&'a FieldSpec<'a>> {
    let name = extent.name.as_ref()?;
    fields.iter().find(|field| field.name == *name)
}

/// Types of the standard library that are neither memory nor a part of its description.
const NO_ROLE: [&str; 12] = [
    "String",
    "str",
    "char",
    "bool",
    "f32",
    "f64",
    "PhantomData",
    "PathBuf",
    "OsString",
    "Duration",
    "Instant",
    "SystemTime",
];

const INTEGERS: [&str; 12] =
    ["usize", "isize", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128"];

/// Whether a field of this type can have the role. A type that is not known here can have any.
pub(crate) fn can_have_role(ty: &Type, role: &str) -> bool {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last().is_none_or(|last| {
            let is_in = |names: &[&str]| names.iter().any(|name| last.ident == name);
            // An integer is an extent or an address, or names a device.
            let is_number = is_in(&INTEGERS) && matches!(role, "strides" | "stream" | "owner");
            !is_in(&NO_ROLE) && !is_number
        }),
        Type::Reference(reference) => match bare(&reference.elem) {
            Type::Path(path) => !path.path.is_ident("str"),
            _ => true,
        },
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        _ => true,
    }
}
