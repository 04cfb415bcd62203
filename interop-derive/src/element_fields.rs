//! The fields of an element, and the rules for each:
//!
//! 1. [`no_attributes`]: no attribute except `#[cuda_array(crate = "path")]` on the struct.
//! 2. [`no_pointers`]: an address has no meaning in another library.
//! 3. [`no_trait_objects`]: a trait object has no fixed layout.
//! 4. [`sized`]: elements have one size.
//! 5. [`arrays_are_valid`]: an array has items, and is nested at most four deep.
//! 6. [`has_counted_fields`]: there are fields that count, and no `bool` in a struct.
//!
//! The compiler checks that fields are elements, and that a newtype has one field.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{DeriveInput, Expr, ExprLit, Field, Lit, Member, Type, TypeArray};

use crate::attribute_syntax::ATTRIBUTE;
use crate::errors::Errors;
use crate::fields::{self, bare};
use crate::generics;
use crate::hygiene::own;
use crate::keywords::shown;
use crate::rejected_by_rustc;
use crate::repr::StableRepr;

/// A field of the struct.
pub(crate) struct ElementField<'a> {
    pub(crate) member: Member,
    pub(crate) field: &'a Field,
}

impl ElementField<'_> {
    /// Whether the field is named `PhantomData`. The expansion checks that it is the one of `core`.
    pub(crate) fn is_marker(&self) -> bool {
        match bare(&self.field.ty) {
            Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "PhantomData"),
            _ => false,
        }
    }

    /// The name as in NumPy: a field without a name is `f0`, `f1`, ….
    pub(crate) fn name(&self) -> String {
        match &self.member {
            Member::Named(name) => name.unraw().to_string(),
            Member::Unnamed(index) => format!("f{}", index.index),
        }
    }
}

/// The fields, or none and an error if the item is not a struct with fields.
pub(crate) fn read<'a>(input: &'a DeriveInput, derive: &str, errors: &mut Errors) -> Vec<ElementField<'a>> {
    let help = "write a struct with `#[repr(C)]`, or a newtype with `#[repr(transparent)]`";
    let fields = fields::of_struct(input, derive, help, errors);
    fields.into_iter().map(|(member, field)| ElementField { member, field }).collect()
}

/// A field takes no attributes, because its type determines the element.
pub(crate) fn no_attributes(parts: &[ElementField<'_>], errors: &mut Errors) {
    for attr in parts.iter().flat_map(|part| &part.field.attrs) {
        if attr.path().is_ident(ATTRIBUTE) {
            let found = format!("`#[{ATTRIBUTE}]` on a field of an element");
            errors.push(attr.path(), found, "remove it: the type of the field is enough");
        }
    }
}

/// Addresses are valid only in this process and on this device. References with a lifetime have been reported with the
/// lifetime.
pub(crate) fn no_pointers(parts: &[ElementField<'_>], errors: &mut Errors) -> bool {
    let mut found = false;
    for pointer in parts.iter().filter_map(|part| pointer_in(&part.field.ty)) {
        let message = format!("the pointer `{}` in an element", shown(pointer));
        errors.push(pointer, message, "write `u64` to store an address as a number");
        found = true;
    }
    found
}

/// The pointer type of a field, also inside an array or `Option`. The compiler would report such an element too,
/// because it is not `Send`.
fn pointer_in(ty: &Type) -> Option<&Type> {
    match bare(ty) {
        Type::Ptr(_) | Type::FnPtr(_) => Some(ty),
        Type::Reference(reference) => {
            reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static").map(|_| ty)
        }
        Type::Array(array) => pointer_in(&array.elem),
        Type::Path(path) => match path.path.segments.last()? {
            last if last.ident == "NonNull" => Some(ty),
            last if last.ident == "Option" => fields::arguments(&last.arguments).find_map(pointer_in),
            _ => None,
        },
        _ => None,
    }
}

/// For a trait object the compiler would report each supertrait of `Element`.
pub(crate) fn no_trait_objects(parts: &[ElementField<'_>], errors: &mut Errors) -> bool {
    let mut found = false;
    for ElementField { field, .. } in counting(parts) {
        let ty = &field.ty;
        if !has_dyn(ty.to_token_stream()) || pointer_in(ty).is_some() {
            continue;
        }
        let message = format!("a `{}` in an element, whose layout is known only at run time", shown(ty));
        errors.push(ty, message, LEGAL);
        found = true;
    }
    found
}

/// The valid field types.
const LEGAL: &str = "write a number type, an array of one, or a struct with `#[derive(Element)]`";

/// A slice at the end of the struct, or a `str`. In the middle the compiler rejects it.
pub(crate) fn sized(parts: &[ElementField<'_>], errors: &mut Errors) -> bool {
    let is_unsized = |ty: &&Type| rejected_by_rustc::is_unsized(ty) && !has_dyn(ty.to_token_stream());
    let Some(ty) = parts.last().map(|part| &part.field.ty).filter(is_unsized) else { return false };
    errors.push(ty, format_args!("a `{}` in an element, which has no size", shown(ty)), LEGAL);
    true
}

fn has_dyn(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has_dyn(group.stream()),
        TokenTree::Ident(word) => word == "dyn",
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The greatest nesting depth of arrays: `MAX_AXES` of `interop-core`.
const MAX_AXES: usize = 4;

/// Reports invalid arrays here, because the compiler would report them only when the element is used, with a span in
/// the runtime.
pub(crate) fn arrays_are_valid(parts: &[ElementField<'_>], errors: &mut Errors) {
    for part in parts {
        let (mut depth, mut inner) = (0, bare(&part.field.ty));
        while let Type::Array(array) = inner {
            if is_empty(array) {
                let found = format!("the array `{}` in an element has no items", shown(array));
                errors.push(array, found, "write a length of 1 or more, or remove the field");
                break;
            }
            (depth, inner) = (depth + 1, bare(&array.elem));
        }
        if depth > MAX_AXES {
            let found = format!("{depth} nested arrays in an element");
            errors.push(
                &part.field.ty,
                found,
                format_args!("nest at most {MAX_AXES}, such as `[[f32; 6]; 4]` for `[[[f32; 2]; 3]; 4]`"),
            );
        }
    }
}

fn is_empty(array: &TypeArray) -> bool {
    let Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) = &array.len else { return false };
    len.base10_parse::<u64>().is_ok_and(|len| len == 0)
}

/// The fields that are part of the element.
pub(crate) fn counting<'a, 'b>(parts: &'b [ElementField<'a>]) -> impl Iterator<Item = &'b ElementField<'a>> {
    parts.iter().filter(|part| !part.is_marker())
}

/// A function, never called, that destructures the struct, whose type is `own`.
///
/// It compiles only if the struct has exactly these fields and types, whatever an attribute macro below the derive
/// changed, and if each marker is that of `core`. So the generated description is correct.
pub(crate) fn destructure(own: &impl ToTokens, parts: &[ElementField<'_>]) -> TokenStream {
    let types = parts.iter().map(|part| {
        if part.is_marker() { own!(::core::marker::PhantomData<_>) } else { part.field.ty.to_token_stream() }
    });
    let members: Vec<&Member> = parts.iter().map(|part| &part.member).collect();
    // The spans are the types, so that the compiler's error points to the wrong one.
    let local = |(index, part): (usize, &ElementField<'_>)| {
        Ident::new(&format!("__field{index}"), generics::ends(&part.field.ty).0)
    };
    let locals: Vec<Ident> = parts.iter().enumerate().map(local).collect();
    own!(let _: fn(#own) -> (#(#types,)*) = |#own { #(#members: #locals),* }| (#(#locals,)*);)
}

/// An element has at least one field, and a struct has no field with invalid bit patterns.
pub(crate) fn has_counted_fields(
    input: &DeriveInput,
    repr: Option<StableRepr>,
    parts: &[ElementField<'_>],
    errors: &mut Errors,
) {
    if repr.is_some() && counting(parts).next().is_none() {
        errors.push(
            &input.ident,
            "an element without fields that count",
            "add a field of a number type, such as `f32`",
        );
    }
    for ElementField { field, .. } in parts.iter().filter(|_| repr == Some(StableRepr::C)) {
        if matches!(bare(&field.ty), Type::Path(path) if path.path.is_ident("bool")) {
            let found = "a `bool` in an element: another library may write bytes other than 0 and 1";
            errors.push(&field.ty, found, "write `u8`, and compare with 0");
        }
    }
}

/// Whether the compiler rejects the struct anyway: it contains itself, a reference has an undeclared lifetime, a field
/// is an `impl Trait`, a field in the middle has no size, or two fields have one name.
pub(crate) fn are_refused(input: &DeriveInput, parts: &[ElementField<'_>]) -> bool {
    let is_itself = |ident: &Ident| {
        let is_shadowed = input.generics.type_params().any(|parameter| parameter.ident == *ident);
        (*ident == input.ident || *ident == "Self") && !is_shadowed
    };
    let others = parts.split_last().map_or(&[][..], |(_, others)| others);
    let is_twice =
        |(at, part): (usize, &ElementField<'_>)| parts[..at].iter().any(|other| other.member == part.member);
    others.iter().any(|part| rejected_by_rustc::is_unsized(&part.field.ty))
        || parts.iter().enumerate().any(is_twice)
        || parts.iter().any(|part| {
            rejected_by_rustc::is_without_lifetime(&part.field.ty, &input.generics)
                || rejected_by_rustc::has_impl(&part.field.ty)
                || holds(&part.field.ty, &is_itself)
        })
}

/// Whether the type satisfies `is_itself`, also inside an array, a tuple or an `Option`.
fn holds(ty: &Type, is_itself: &impl Fn(&Ident) -> bool) -> bool {
    match bare(ty) {
        Type::Array(array) => holds(&array.elem, is_itself),
        Type::Tuple(tuple) => tuple.elems.iter().any(|ty| holds(ty, is_itself)),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            path.path.segments.len() == 1 && is_itself(&last.ident)
                || last.ident == "Option" && fields::arguments(&last.arguments).any(|ty| holds(ty, is_itself))
        }),
        _ => false,
    }
}
