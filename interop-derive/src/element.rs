//! `#[derive(Element)]`: attributes, rules and code for the types of array elements.
//!
//! The rules:
//!
//! 1. A struct with fields, whose layout is fixed (`repr`).
//! 2. [`no_attributes`]: no attribute but `#[cuda_array(crate = "path")]` on the struct.
//! 3. [`no_lifetimes`]: an element borrows nothing.
//! 4. [`newtype_of_one`]: a transparent struct has one field that counts.
//! 5. [`record_of_some`]: a `#[repr(C)]` struct has fields that count, and no `bool`.
//! 6. [`no_pointers`]: an address means nothing where the element goes.
//!
//! That fields are elements, and that the struct is `Copy`, rustc checks.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::{DeriveInput, Field, GenericArgument, Generics, Member, Path, PathArguments, Type};

use crate::attrs;
use crate::entries::ATTRIBUTE;
use crate::errors::Errors;
use crate::fields::bare;
use crate::hygiene::own;
use crate::repr::{self, Repr};
use crate::words::shown;
use crate::{decide, fallback, fields, generics};

/// A field of the struct.
struct Part<'a> {
    member: Member,
    field: &'a Field,
}

impl Part<'_> {
    /// Whether the field is a `PhantomData`, going by its name. The expansion makes sure that it is the one of `core`.
    fn is_marker(&self) -> bool {
        match bare(&self.field.ty) {
            Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "PhantomData"),
            _ => false,
        }
    }

    /// The name as NumPy has it: a field without one is called by its number, `f0`.
    fn name(&self) -> String {
        match &self.member {
            Member::Named(name) => name.unraw().to_string(),
            Member::Unnamed(index) => format!("f{}", index.index),
        }
    }
}

/// A struct that is an element.
struct Model<'a> {
    ident: &'a Ident,
    generics: Generics,
    krate: Path,
    lints: Option<TokenStream>,
    parts: Vec<Part<'a>>,
    repr: Repr,
}

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    let krate = attrs::read_crate(&input.attrs, &mut errors);
    fields::refuse_on_parameters(input, &mut errors);
    let parts = parts(input, &mut errors);
    let repr = if parts.is_empty() { None } else { repr::read(input, &mut errors) };
    no_attributes(&parts, &mut errors);
    let borrows = no_lifetimes(&input.generics, &mut errors) | no_pointers(&parts, &mut errors);
    match repr {
        Some(Repr::Transparent) => newtype_of_one(input, &parts, &mut errors),
        Some(Repr::C) => record_of_some(input, &parts, &mut errors),
        None => {}
    }
    let krate_is_known = errors.is_absent("crate");
    let krate = decide::krate(krate.as_ref());
    match (errors.finish(), repr) {
        (None, Some(repr)) => {
            let attrs = parts.iter().flat_map(|part| &part.field.attrs);
            let lints = generics::silenced(input.attrs.iter().chain(attrs));
            let generics = bounded(&generics::bare(&input.generics), &parts);
            expand(&Model { ident: &input.ident, generics, krate, lints, parts, repr })
        }
        (None, None) => unreachable!("a layout that is not fixed was reported"),
        // An element is `'static`, `Send` and `Sync`: without that, the stub would add an error.
        (Some(messages), _) if krate_is_known && !borrows => {
            let generics = bounded(&generics::bare(&input.generics), &[]);
            let mut stub = fallback::element(&input.ident, &generics, &krate);
            stub.extend(messages);
            stub
        }
        (Some(messages), _) => messages,
    }
}

fn parts<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Vec<Part<'a>> {
    let help = "write a struct with `#[repr(C)]`, or a newtype with `#[repr(transparent)]`";
    let fields = fields::of_struct(input, "Element", help, errors);
    fields.into_iter().map(|(member, field)| Part { member, field }).collect()
}

/// A field of an element is what its type says.
fn no_attributes(parts: &[Part<'_>], errors: &mut Errors) {
    for attr in parts.iter().flat_map(|part| &part.field.attrs) {
        if attr.path().is_ident(ATTRIBUTE) {
            let found = format!("`#[{ATTRIBUTE}]` on a field of an element");
            errors.push(attr.path(), found, "remove it: a field of an element is what its type says");
        }
    }
}

/// Elements lie in foreign memory, where a borrow means nothing.
fn no_lifetimes(generics: &Generics, errors: &mut Errors) -> bool {
    let lifetime = generics.lifetimes().next();
    if let Some(parameter) = lifetime {
        let found = format!("an element that borrows for `{}`", parameter.lifetime);
        errors.push(
            parameter,
            found,
            "remove the lifetime: an element holds numbers, and outlives every borrow",
        );
    }
    lifetime.is_some()
}

/// Addresses are those of this process and this device. References with a lifetime were reported with the lifetime.
fn no_pointers(parts: &[Part<'_>], errors: &mut Errors) -> bool {
    let mut found = false;
    for pointer in parts.iter().filter_map(|part| pointer_in(&part.field.ty)) {
        let message = format!("the pointer `{}` in an element", shown(pointer));
        errors.push(pointer, message, "write `u64` for an address that somebody else reads");
        found = true;
    }
    found
}

/// The pointer that the type is, is a list of, or is if it is not null. rustc would say more of an element with one, which is
/// not `Send`.
fn pointer_in(ty: &Type) -> Option<&Type> {
    match bare(ty) {
        Type::Ptr(_) | Type::FnPtr(_) => Some(ty),
        Type::Reference(reference) => {
            reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static").map(|_| ty)
        }
        Type::Array(array) => pointer_in(&array.elem),
        Type::Path(path) => match path.path.segments.last()? {
            last if last.ident == "NonNull" => Some(ty),
            last if last.ident == "Option" => arguments(&last.arguments).find_map(pointer_in),
            _ => None,
        },
        _ => None,
    }
}

/// The types among the arguments of a path.
fn arguments(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let list = match arguments {
        PathArguments::AngleBracketed(list) => Some(&list.args),
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    };
    list.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// The newtype is what its one field is.
fn newtype_of_one(input: &DeriveInput, parts: &[Part<'_>], errors: &mut Errors) {
    let mut counting = parts.iter().filter(|part| !part.is_marker());
    match (counting.next(), counting.next()) {
        (Some(_), None) => {}
        (Some(_), Some(second)) => {
            errors.push(
                &second.field.ty,
                "a transparent element with a second field",
                "keep one field, or write `#[repr(C)]`; `PhantomData` does not count",
            );
        }
        (None, _) => {
            let found = "a transparent element with nothing in it";
            errors.push(&input.ident, found, "add a field of the type that the element is, such as `f32`");
        }
    }
}

/// A struct has a part at least, and none that bytes can make invalid.
fn record_of_some(input: &DeriveInput, parts: &[Part<'_>], errors: &mut Errors) {
    if parts.iter().all(Part::is_marker) {
        errors.push(&input.ident, "an element with nothing in it", "add a field, such as `value: f32`");
    }
    for Part { field, .. } in parts {
        if matches!(bare(&field.ty), Type::Path(path) if path.path.is_ident("bool")) {
            let found = "a `bool` in an element: bytes that arrive may be neither 0 nor 1";
            errors.push(&field.ty, found, "write `u8`, and compare with 0");
        }
    }
}

/// The generics with `T: __p::Element` for parameters that are parts, `T: 'static` for those that only mark or name, and
/// `T::Scalar: __p::Element` for the parts that those name.
///
/// With those that are no parts, whether the struct is `Copy`, `Send` and `Sync` is left to the struct.
fn bounded(generics: &Generics, parts: &[Part<'_>]) -> Generics {
    let types = || parts.iter().filter(|part| !part.is_marker()).map(|part| &part.field.ty);
    let uses = |ty: &Type, name| generics::uses(ty.to_token_stream(), name);
    let named =
        types().filter(|ty| generics.type_params().any(|parameter| uses(ty, &parameter.ident).to_name));
    let mut bounded = generics::bounded(generics, &named.map(|ty| (ty, "Element")).collect::<Vec<_>>());
    let mut marks = false;
    for parameter in generics.type_params() {
        let name = &parameter.ident;
        let is_part = types().any(|ty| uses(ty, name).itself);
        let bound = if is_part { own!(__p::Element) } else { own!('static) };
        marks |= !is_part;
        bounded.make_where_clause().predicates.push(syn::parse_quote!(#name: #bound));
    }
    if marks {
        let copies = syn::parse_quote_spanned!(Span::mixed_site()=> Self: __p::Copy + __p::Send + __p::Sync);
        bounded.make_where_clause().predicates.push(copies);
    }
    bounded
}

/// `unsafe impl Element`.
fn expand(model: &Model<'_>) -> TokenStream {
    let Model { ident, generics, krate, lints, .. } = model;
    let (parameters, arguments, clause) = generics::split(generics);
    let (fields, ty) = match model.repr {
        Repr::C => (Some(record_fields(&model.parts)), own!(__p::ElementType::record::<Self>())),
        Repr::Transparent => (None, inner_type(&model.parts)),
    };
    let whole = whole(&model.parts);
    own! {
        const _: () = {
            use #krate::__private as __p;
            #[automatically_derived]
            #lints
            unsafe impl #parameters __p::Element for #ident #arguments #clause {
                #fields
                const TYPE: __p::ElementType = {
                    #whole
                    #ty
                };
            }
        };
    }
}

/// The parts of a record, each with its name, its offset and what it is.
fn record_fields(parts: &[Part<'_>]) -> TokenStream {
    let fields = parts.iter().filter(|part| !part.is_marker()).map(|part| {
        let (name, member, ty) = (part.name(), &part.member, &part.field.ty);
        let offset = own!(::core::mem::offset_of!(Self, #member));
        // Placed on the type, so that rustc blames it for what no field may be.
        quote_spanned!(generics::ends(ty).0=> __p::Field::new(#name, #offset, <#ty as __p::Element>::TYPE))
    });
    own!(const FIELDS: &'static [__p::Field] = &[#(#fields),*];)
}

/// What the one part of a newtype is.
fn inner_type(parts: &[Part<'_>]) -> TokenStream {
    let inner = parts.iter().filter(|part| !part.is_marker()).map(|part| {
        let ty = &part.field.ty;
        own!(__p::ElementType::newtype::<Self>(<#ty as __p::Element>::TYPE))
    });
    inner.collect()
}

/// A function, never called, that takes the struct apart.
///
/// It compiles only if the struct has these fields of these types and no others, so what is said here is true of it,
/// whatever an attribute macro below the derive made of the struct; and only if each marker is that of `core`.
fn whole(parts: &[Part<'_>]) -> TokenStream {
    let types = parts.iter().map(|part| {
        if part.is_marker() { own!(__p::PhantomData<_>) } else { part.field.ty.to_token_stream() }
    });
    let members: Vec<&Member> = parts.iter().map(|part| &part.member).collect();
    // Placed on the types, so that rustc blames the one that is not what it says.
    let local = |(index, part): (usize, &Part<'_>)| {
        Ident::new(&format!("__f{index}"), generics::ends(&part.field.ty).0)
    };
    let locals: Vec<Ident> = parts.iter().enumerate().map(local).collect();
    own!(let _: fn(Self) -> (#(#types,)*) = |Self { #(#members: #locals),* }| (#(#locals,)*);)
}
