//! The fields of a struct with their attributes; what is no struct with fields is refused.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, GenericArgument, Member, PathArguments, Type};

use crate::attribute_syntax::ATTRIBUTE;
use crate::attributes::FieldAttrs;
use crate::errors::Errors;
use crate::model::Role;

/// A field with what its attributes say.
pub(crate) struct Field<'a> {
    pub(crate) member: Member,
    /// What messages call the field: `height`, or `1` in a tuple struct.
    pub(crate) name: String,
    pub(crate) ty: &'a Type,
    pub(crate) attrs: FieldAttrs,
    pub(crate) raw_attrs: &'a [Attribute],
}

impl<'a> Field<'a> {
    /// The tokens to blame when the whole field is meant: its name, or its type when it has none.
    pub(crate) fn blame(&self) -> TokenStream {
        match &self.member {
            Member::Named(name) => quote!(#name),
            Member::Unnamed(_) => self.ty.to_token_stream(),
        }
    }

    pub(crate) fn role(&'a self) -> Role<'a> {
        Role { member: &self.member, ty: self.ty, name: &self.name }
    }
}

/// What a field is called that is named so: without `r#`, and by its number in a tuple struct.
pub(crate) fn shown(member: &Member) -> String {
    match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// The type without parentheses and without the invisible groups that macro variables come in.
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

/// Reads the fields; none, and a report, when the item is not a struct that has some.
pub(crate) fn read<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Vec<Field<'a>> {
    let help = "write a struct with a field for the memory, `#[cuda_array(data)]`, and fields for its shape";
    refuse_on_parameters(input, errors);
    of_struct(input, "CudaArray", help, errors)
        .into_iter()
        .map(|(member, field)| {
            let attrs = FieldAttrs::read(&field.attrs, errors);
            Field { name: shown(&member), member, ty: &field.ty, attrs, raw_attrs: &field.attrs }
        })
        .collect()
}

/// The fields of a struct as they stand; none, and a report, when the item is not a struct that has some.
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
    errors.lose(None);
    Vec::new()
}

/// Refuses our attribute on generic parameters, where rustc accepts the attributes of a derive and nobody reads them.
pub(crate) fn refuse_on_parameters(input: &DeriveInput, errors: &mut Errors) {
    let attrs = input.generics.params.iter().flat_map(|parameter| match parameter {
        syn::GenericParam::Lifetime(lifetime) => &lifetime.attrs,
        syn::GenericParam::Type(ty) => &ty.attrs,
        syn::GenericParam::Const(constant) => &constant.attrs,
    });
    for attr in attrs.filter(|attr| attr.path().is_ident(ATTRIBUTE)) {
        let found = format!("`#[{ATTRIBUTE}]` on a generic parameter says nothing");
        errors.push(attr.path(), found, "move it to a field or to the struct");
        errors.lose(None);
    }
}
