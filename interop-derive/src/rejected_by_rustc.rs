//! Structs that rustc refuses whatever a derive says of them: one message is enough.

use syn::punctuated::Punctuated;
use syn::{DeriveInput, Generics, Path, Token, Type};

use crate::attribute_syntax::ATTRIBUTE;
use crate::fields::{Field, arguments, bare};
use crate::keywords::is_misspelt;

/// Whether rustc has something to say: a reference for no known lifetime, an `impl Trait`, a field in the middle that has no
/// size, a list of what has none, or two fields of one name.
pub(crate) fn is_refused(fields: &[Field<'_>], generics: &Generics) -> bool {
    let Some((_, others)) = fields.split_last() else { return false };
    let is_twice =
        |(at, field): (usize, &Field<'_>)| fields[..at].iter().any(|other| other.name == field.name);
    fields.iter().any(|field| {
        is_without_lifetime(field.ty, generics) || has_impl(field.ty) || is_unsized_inside(field.ty)
    }) || others.iter().any(|field| is_unsized(field.ty))
        || fields.iter().enumerate().any(is_twice)
}

/// Whether the type is a reference for no lifetime, or for one that is no parameter of the struct.
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

/// Whether values of the type have no size of their own, as far as its tokens tell.
pub(crate) fn is_unsized(ty: &Type) -> bool {
    match bare(ty) {
        Type::Slice(_) | Type::TraitObject(_) => true,
        Type::Path(path) => path.path.is_ident("str"),
        _ => false,
    }
}

/// Whether the type is one of those that hold values of one size, and of something without a size.
fn is_unsized_inside(ty: &Type) -> bool {
    let Type::Path(path) = bare(ty) else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    let holds_sized = ["HostVec", "Lease", "LeaseMut", "Option", "Vec"].iter().any(|name| last.ident == name);
    holds_sized && arguments(&last.arguments).any(is_unsized)
}

/// The second `CudaArray` of a struct with two, in a `#[derive]` below the first: the first sees it and leaves the struct to it.
///
/// In one `#[derive(CudaArray, CudaArray)]` neither sees the other, and rustc reports each of the two traits.
pub(crate) fn derived_again(input: &DeriveInput) -> Option<Path> {
    let derives = input.attrs.iter().filter(|attr| attr.path().is_ident("derive"));
    let paths =
        derives.filter_map(|attr| attr.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).ok());
    paths.flatten().find(|path| path.segments.last().is_some_and(|last| last.ident == "CudaArray"))
}

/// Whether an attribute on the struct or a field is a misspelling of ours, or ours with a path before it, of which rustc
/// says that there is no such attribute; or ours in `unsafe(...)`.
pub(crate) fn has_misspelt_attribute(input: &DeriveInput, fields: &[Field<'_>]) -> bool {
    let mut attrs = input.attrs.iter().chain(fields.iter().flat_map(|field| field.raw_attrs));
    attrs.any(|attr| {
        let segments = &attr.path().segments;
        let name = segments.last().map_or_else(String::new, |last| last.ident.to_string());
        is_misspelt(&name, ATTRIBUTE) || name == ATTRIBUTE && segments.len() > 1 || name == "unsafe"
    })
}
