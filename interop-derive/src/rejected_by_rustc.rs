//! Structs that the compiler rejects anyway, for which the derive adds no error.

use syn::punctuated::Punctuated;
use syn::{DeriveInput, Generics, Path, Token, Type};

use crate::attribute_syntax::ATTRIBUTE;
use crate::fields::{FieldSpec, arguments, bare};
use crate::keywords::is_misspelt;

/// Whether the compiler rejects the struct: an undeclared lifetime, an `impl Trait`, an unsized field in the middle, an
/// array of unsized items, or two fields of one name.
pub(crate) fn is_refused(fields: &[FieldSpec<'_>], generics: &Generics) -> bool {
    let Some((_, others)) = fields.split_last() else { return false };
    let is_twice =
        |(at, field): (usize, &FieldSpec<'_>)| fields[..at].iter().any(|other| other.name == field.name);
    fields.iter().any(|field| {
        is_without_lifetime(field.ty, generics) || has_impl(field.ty) || is_unsized_inside(field.ty)
    }) || others.iter().any(|field| is_unsized(field.ty))
        || fields.iter().enumerate().any(is_twice)
}

/// Whether the type is a reference without a lifetime, or with one that the struct does not declare.
pub(crate) fn is_without_lifetime(ty: &Type, generics: &Generics) -> bool {
    let Type::Reference(reference) = bare(ty) else { return false };
    reference.lifetime.as_ref().is_none_or(|lifetime| {
        lifetime.ident != "static" && !generics.lifetimes().any(|known| known.lifetime == *lifetime)
    })
}

/// Whether the type is an `impl Trait`, or one of its arguments is.
pub(crate) fn has_impl(ty: &Type) -> bool {
    match bare(ty) {
        Type::ImplTrait(_) => true,
        Type::Path(path) => {
            path.path.segments.iter().flat_map(|part| arguments(&part.arguments)).any(has_impl)
        }
        _ => false,
    }
}

/// Whether the type is unsized, judged by its tokens.
pub(crate) fn is_unsized(ty: &Type) -> bool {
    match bare(ty) {
        Type::Slice(_) | Type::TraitObject(_) => true,
        Type::Path(path) => path.path.is_ident("str"),
        _ => false,
    }
}

/// Whether the type is a container of sized values around an unsized type.
fn is_unsized_inside(ty: &Type) -> bool {
    let Type::Path(path) = bare(ty) else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    let holds_sized = ["HostVec", "Lease", "LeaseMut", "Option", "Vec"].iter().any(|name| last.ident == name);
    holds_sized && arguments(&last.arguments).any(is_unsized)
}

/// The second `CudaArray` in a `#[derive]` below the first. The first derive sees it and generates nothing.
///
/// In one `#[derive(CudaArray, CudaArray)]` neither sees the other, and the compiler reports each trait.
pub(crate) fn derived_again(input: &DeriveInput) -> Option<Path> {
    let derives = input.attrs.iter().filter(|attr| attr.path().is_ident("derive"));
    let paths =
        derives.filter_map(|attr| attr.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).ok());
    paths.flatten().find(|path| path.segments.last().is_some_and(|last| last.ident == "CudaArray"))
}

/// Whether an attribute is a misspelling of `#[cuda_array]`, has a path in front of that name, or is `unsafe(...)`. The
/// compiler reports that no such attribute exists.
pub(crate) fn has_misspelt_attribute(input: &DeriveInput, fields: &[FieldSpec<'_>]) -> bool {
    let mut attrs = input.attrs.iter().chain(fields.iter().flat_map(|field| field.raw_attrs));
    attrs.any(|attr| {
        let segments = &attr.path().segments;
        let name = segments.last().map_or_else(String::new, |last| last.ident.to_string());
        is_misspelt(&name, ATTRIBUTE) || name == ATTRIBUTE && segments.len() > 1 || name == "unsafe"
    })
}
