//! Builds the model from attributes that passed every rule. Every default is chosen here and nowhere else.

use std::iter;

use proc_macro2::{Ident, Span};
use syn::{Path, PathSegment, Token, Type};

use crate::attribute_syntax::Set;
use crate::fields::FieldSpec;
use crate::generics;
use crate::keyword_options::DataOptions;
use crate::model::{
    ArrayModel, Data, Fill, Initial, Python, RoleField, Shape, ShapeEntry, TraitAccess, With,
};
use crate::shape_rules;
use crate::struct_spec::{StructSpec, field_of};

/// The model, or `None` if a rule was broken.
pub(crate) fn model<'a>(spec: &StructSpec<'a>) -> Option<ArrayModel<'a>> {
    let attrs = spec.attrs;
    let imports = attrs.export.is_none();
    let fills = if imports { fills(spec)? } else { Vec::new() };
    let raw_attrs = spec.fields.iter().flat_map(|field| field.raw_attrs);
    Some(ArrayModel {
        ident: &spec.input.ident,
        generics: generics::bare(spec.generics()),
        krate: krate(attrs.krate.as_ref().map(|set| &set.value)),
        lints: generics::silenced(spec.input.attrs.iter().chain(raw_attrs)),
        exports: attrs.import.is_none(),
        imports,
        data: data(spec)?,
        others: others(spec),
        shape: shape(spec)?,
        strides: spec
            .fields
            .iter()
            .find_map(|field| Some((field.role(), field.attrs.strides.as_ref()?.value))),
        order: attrs.order.as_ref().map(|set| set.value),
        devices: attrs.devices.as_ref().map(|set| set.value.clone()),
        stream: spec.with(|attrs| attrs.stream.is_some()).map(FieldSpec::role),
        is_readonly: attrs.readonly.is_some(),
        owner: spec.with(|attrs| attrs.owner.is_some()).map(FieldSpec::role),
        fills,
        python: Python {
            conversions: attrs.python.as_ref().map(keyword_span),
            class: attrs.pyclass.as_ref().map(keyword_span),
            is_reported: false,
        },
    })
}

/// The span of a keyword.
pub(crate) fn keyword_span(set: &Set<()>) -> Span {
    set.word.span()
}

/// The path of the runtime.
pub(crate) fn krate(written: Option<&Path>) -> Path {
    written.cloned().unwrap_or_else(|| Path {
        leading_colon: Some(<Token![::]>::default()),
        segments: iter::once(PathSegment::from(Ident::new("interop_core", Span::call_site()))).collect(),
    })
}

fn data<'a>(spec: &StructSpec<'a>) -> Option<Data<'a>> {
    if let Some(inner) = spec.inner() {
        return Some(Data::Inner(inner.role(), trait_access(inner, spec)));
    }
    let field = spec.data()?;
    let word = &field.attrs.data.as_ref()?.value;
    let Some(raw) = &word.unsafe_raw else {
        return Some(Data::Storage(field.role(), trait_access(field, spec)));
    };
    let device = spec.with(|attrs| attrs.device.is_some())?.role();
    Some(Data::Raw { pointer: field.role(), element: element(word), device, unsafe_raw: raw.word.span() })
}

/// Generic types must not use `FieldProbe`, which would require nothing without a bound for the export trait.
fn trait_access(field: &FieldSpec<'_>, spec: &StructSpec<'_>) -> TraitAccess {
    let has_export_half = spec.attrs.import.is_none();
    if has_export_half && !generics::is_generic(field.ty, spec.generics()) {
        TraitAccess::ThroughProbe
    } else {
        TraitAccess::Directly
    }
}

fn element(word: &DataOptions) -> Option<&Type> {
    word.element.as_ref().map(|element| &element.value)
}

fn shape<'a>(spec: &StructSpec<'a>) -> Option<Shape<'a>> {
    if spec.inner().is_some() {
        return Some(Shape::OfInner);
    }
    if let Some(field) = spec.with(|attrs| attrs.shape.is_some()) {
        return Some(Shape::Field(field.role()));
    }
    let list = &spec.attrs.shape.as_ref()?.value;
    let axes: Option<Vec<ShapeEntry<'a>>> =
        list.iter().map(|extent| shape_rules::axis(extent, spec)).collect();
    axes.map(Shape::Extents)
}

/// The types of the fields that are neither the memory, nor its layout, nor a stream. To destroy a stream needs no
/// current context.
fn others<'a>(spec: &StructSpec<'a>) -> Vec<&'a Type> {
    let is_other = |field: &&FieldSpec<'a>| {
        field.attrs.roles().all(|(role, _)| role == "owner") && extent(field, field.role(), spec).is_none()
    };
    spec.fields.iter().filter(is_other).map(|field| field.ty).collect()
}

/// How an import fills each field; those that take the memory come last.
fn fills<'a>(spec: &StructSpec<'a>) -> Option<Vec<Fill<'a>>> {
    let fills: Option<Vec<Fill<'a>>> = spec
        .fields
        .iter()
        .map(|field| Some(Fill { member: &field.member, with: with(field, spec)? }))
        .collect();
    let mut fills = fills?;
    fills.sort_by_key(|fill| fill.with.fill_order());
    Some(fills)
}

fn with<'a>(field: &'a FieldSpec<'a>, spec: &StructSpec<'a>) -> Option<With<'a>> {
    let role = field.role();
    let attrs = &field.attrs;
    if let Some(data) = &attrs.data {
        let raw = data.value.unsafe_raw.is_some();
        return Some(if raw { With::Pointer(role, element(&data.value)) } else { With::Storage });
    }
    if attrs.inner.is_some() {
        return Some(With::Inner(role, trait_access(field, spec)));
    }
    if attrs.shape.is_some() {
        return Some(With::Shape(role));
    }
    if let Some(strides) = &attrs.strides {
        return Some(With::Strides(role, strides.value));
    }
    if attrs.device.is_some() {
        return Some(With::Device(role));
    }
    let initial = attrs.default.as_ref().map(|default| match &default.value {
        None => Initial::Default(field.ty),
        Some(expression) => Initial::Expression(expression.clone()),
    });
    match initial {
        Some(initial) if attrs.stream.is_some() => Some(With::OwnStream(role, initial)),
        Some(initial) => Some(With::Initial(initial)),
        None if attrs.stream.is_some() => Some(With::Stream(role, trait_access(field, spec))),
        None if attrs.owner.is_some() => Some(With::Owner(role)),
        None => extent(field, role, spec),
    }
}

/// The first axis that names the field.
fn extent<'a>(field: &FieldSpec<'a>, role: RoleField<'a>, spec: &StructSpec<'a>) -> Option<With<'a>> {
    let list = &spec.attrs.shape.as_ref()?.value;
    let named = |extent| field_of(extent, spec.fields).is_some_and(|other| std::ptr::eq(other, field));
    list.iter().position(named).map(|axis| With::Extent(role, axis))
}
