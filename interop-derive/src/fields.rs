//! The fields of a struct with their attributes. Items without fields are rejected.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Data, DeriveInput, GenericArgument, Member, PathArguments, Type};

use crate::attribute_syntax::ATTRIBUTE;
use crate::attributes::FieldAttrs;
use crate::errors::Errors;
use crate::keywords::member_name;
use crate::model::RoleField;

/// A field and its attributes.
pub(crate) struct FieldSpec<'a> {
    pub(crate) member: Member,
    /// The name in messages: `height`, or `1` in a tuple struct.
    pub(crate) name: String,
    pub(crate) ty: &'a Type,
    pub(crate) attrs: FieldAttrs,
    pub(crate) raw_attrs: &'a [Attribute],
}

impl<'a> FieldSpec<'a> {
    /// The tokens for an error about the whole field: its name, or its type if it has no name.
    pub(crate) fn blame(&self) -> TokenStream {
        match &self.member {
            Member::Named(name) => quote!(#name),
            Member::Unnamed(_) => self.ty.to_token_stream(),
        }
    }

    pub(crate) fn role(&'a self) -> RoleField<'a> {
        RoleField { member: &self.member, ty: self.ty, name: &self.name }
    }
}

/// The type without parentheses and without the invisible groups of macro variables.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// The types among the arguments of a path.
pub(crate) fn arguments(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let list = match arguments {
        PathArguments::AngleBracketed(list) => Some(&list.args),
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    };
    list.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Reads the fields. If the item is not a struct with fields, reports an error and returns none.
pub(crate) fn read<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Vec<FieldSpec<'a>> {
    let help = "write a struct with a field for the memory, `#[cuda_array(data)]`, and fields for its shape";
    refuse_on_parameters(input, errors);
    of_struct(input, "CudaArray", help, errors)
        .into_iter()
        .map(|(member, field)| {
            let attrs = FieldAttrs::read(&field.attrs, errors);
            FieldSpec { name: member_name(&member), member, ty: &field.ty, attrs, raw_attrs: &field.attrs }
        })
        .collect()
}

/// Returns the fields of a struct as written. If the item is not a struct with fields, reports an error and returns
/// none.
pub(crate) fn of_struct<'a>(
    input: &'a DeriveInput,
    derive: &str,
    help: &str,
    errors: &mut Errors,
) -> Vec<(Member, &'a syn::Field)> {
    let (at, found) = match &input.data {
        Data::Struct(data) if !data.fields.is_empty() => {
            return data.fields.members().zip(&data.fields).collect();
        }
        Data::Struct(_) => (input.ident.to_token_stream(), "a struct without fields"),
        Data::Enum(data) => (data.enum_token.to_token_stream(), "an enum"),
        Data::Union(data) => (data.union_token.to_token_stream(), "a union"),
    };
    errors.push(at, format_args!("`#[derive({derive})]` on {found}"), help);
    errors.mark_uncertain(None);
    Vec::new()
}

/// Rejects `#[cuda_array]` on generic parameters, where the compiler accepts it but no derive reads it.
pub(crate) fn refuse_on_parameters(input: &DeriveInput, errors: &mut Errors) {
    let attrs = input.generics.params.iter().flat_map(|parameter| match parameter {
        syn::GenericParam::Lifetime(lifetime) => &lifetime.attrs,
        syn::GenericParam::Type(ty) => &ty.attrs,
        syn::GenericParam::Const(constant) => &constant.attrs,
    });
    for attr in attrs.filter(|attr| attr.path().is_ident(ATTRIBUTE)) {
        let found = format!("`#[{ATTRIBUTE}]` on a generic parameter has no effect");
        errors.push(attr.path(), found, "move it to a field or to the struct");
        errors.mark_uncertain(None);
    }
}
