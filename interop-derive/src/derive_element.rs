//! `#[derive(Element)]`: attributes, rules and code for element types.
//!
//! The rules:
//!
//! 1. The layout of the struct is fixed (`repr`).
//! 2. [`no_lifetimes`]: an element borrows nothing.
//! 3. The fields can be those of an element (`element_fields`).
//!
//! The compiler checks that the struct is `Copy`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{DeriveInput, Generics, Path, Type};

use crate::attributes;
use crate::element_fields::{self, ElementField};
use crate::errors::Errors;
use crate::hygiene::{self, own};
use crate::repr::{self, StableRepr};
use crate::{fields, generics, resolve, stub_impls};

/// A struct that is an element.
struct ElementModel<'a> {
    ident: &'a Ident,
    generics: Generics,
    krate: Path,
    lints: Option<TokenStream>,
    parts: Vec<ElementField<'a>>,
    repr: StableRepr,
}

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    let krate = attributes::read_crate(&input.attrs, &mut errors);
    fields::refuse_on_parameters(input, &mut errors);
    let parts = element_fields::read(input, "Element", &mut errors);
    let repr = if parts.is_empty() { None } else { repr::read(input, "Element", &mut errors) };
    element_fields::no_attributes(&parts, &mut errors);
    let has_no_stub = hygiene::refuse_own_name(input, &mut errors)
        | no_lifetimes(&input.generics, &mut errors)
        | element_fields::no_pointers(&parts, &mut errors)
        | element_fields::no_trait_objects(&parts, &mut errors)
        | element_fields::sized(&parts, &mut errors);
    element_fields::arrays_are_valid(&parts, &mut errors);
    element_fields::has_counted_fields(input, repr, &parts, &mut errors);
    let has_crate_path = errors.is_absent("crate");
    let krate = resolve::krate(krate.as_ref());
    match (errors.finish(), repr) {
        // Generated code would cause a second error, and a struct that is rejected anyway need not be an element.
        (None, _) if element_fields::are_refused(input, &parts) => TokenStream::new(),
        (None, Some(StableRepr::Transparent)) if element_fields::counting(&parts).nth(1).is_some() => {
            second_field_error(&krate, &input.generics, &parts)
        }
        (None, Some(repr)) => {
            let attrs = parts.iter().flat_map(|part| &part.field.attrs);
            let lints = generics::silenced(input.attrs.iter().chain(attrs));
            let generics = bounded(&generics::bare(&input.generics), &parts);
            expand(&ElementModel { ident: &input.ident, generics, krate, lints, parts, repr })
        }
        // An element must be `'static`, `Send` and `Sync`; otherwise the stub would add an error.
        (messages, _) if has_crate_path && !has_no_stub => {
            let generics = bounded(&generics::bare(&input.generics), &[]);
            let mut stub = stub_impls::element(&input.ident, &generics, &krate);
            stub.extend(messages);
            stub
        }
        (messages, _) => messages.unwrap_or_default(),
    }
}

/// Elements are in memory of other libraries, where a borrow has no meaning.
fn no_lifetimes(generics: &Generics, errors: &mut Errors) -> bool {
    let lifetime = generics.lifetimes().next();
    if let Some(parameter) = lifetime {
        let found = format!("an element that borrows for `{}`", parameter.lifetime);
        errors.push(parameter, found, "remove the lifetime: an element outlives every borrow");
    }
    lifetime.is_some()
}

/// The generics with these bounds: `T: __p::Element` for parameters that are fields, `T: 'static` for other parameters,
/// and `T::Scalar: __p::Element` for associated types that are fields.
///
/// For parameters that are not fields, the compiler checks on the struct whether it is `Copy`, `Send` and `Sync`.
fn bounded(generics: &Generics, parts: &[ElementField<'_>]) -> Generics {
    let types = || element_fields::counting(parts).map(|part| &part.field.ty);
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
fn expand(model: &ElementModel<'_>) -> TokenStream {
    let ElementModel { ident, generics, krate, lints, .. } = model;
    let (parameters, arguments, clause) = generics::split(generics);
    let (fields, ty) = match model.repr {
        StableRepr::C => (Some(struct_fields(model)), own!(__p::ElementType::of_struct::<Self>())),
        StableRepr::Transparent => (None, inner_type(model)),
    };
    let destructure = element_fields::destructure(&own!(Self), &model.parts);
    let runtime = hygiene::runtime(krate);
    let is_probed = |part: &ElementField<'_>| !generics::is_generic(&part.field.ty, generics);
    let unreached = element_fields::counting(&model.parts).any(is_probed).then(|| {
        own!(
            use __p::NeverCalled as _;
        )
    });
    own! {
        const _: () = {
            #runtime
            #unreached
            #[automatically_derived]
            #lints
            unsafe impl #parameters __p::Element for #ident #arguments #clause {
                #fields
                const TYPE: __p::ElementType = {
                    #destructure
                    #ty
                };
            }
        };
    }
}

/// The fields of a struct element, each with name, offset and type.
fn struct_fields(model: &ElementModel<'_>) -> TokenStream {
    let fields = element_fields::counting(&model.parts).map(|part| {
        let (name, member, ty) = (part.name(), &part.member, &part.field.ty);
        let offset = own!(::core::mem::offset_of!(Self, #member));
        let element = element(ty, &model.generics);
        // The span is the type, so that the compiler's error points to it.
        quote_spanned!(generics::ends(ty).0=> __p::Field::new(#name, #offset, #element))
    });
    own!(const FIELDS: &'static [__p::Field] = &[#(#fields),*];)
}

/// The element type of the only field of a newtype.
fn inner_type(model: &ElementModel<'_>) -> TokenStream {
    let inner = element_fields::counting(&model.parts).map(|part| {
        let element = element(&part.field.ty, &model.generics);
        own!(__p::ElementType::newtype::<Self>(#element))
    });
    inner.collect()
}

/// The element type of a field. It goes through `FieldProbe`, so that a type that is not `Copy` causes only the
/// compiler's error about the struct.
fn element(ty: &Type, generics: &Generics) -> TokenStream {
    if generics::is_generic(ty, generics) {
        return own!(__p::ElementType::of::<#ty>());
    }
    let (start, end) = generics::ends(ty);
    let mut part = quote_spanned!(start=> <__p::FieldProbe<);
    ty.to_tokens(&mut part);
    part.extend(quote_spanned!(end=> >>::FIELD));
    quote_spanned!(start=> __p::ElementType::of_field::<#ty, _>(#part))
}

/// The expansion for a transparent struct with a second field: only the error about it.
///
/// If both fields have a footprint, the compiler reports it. This error is for a second field without one, which only
/// the compiler can determine.
fn second_field_error(krate: &Path, generics: &Generics, parts: &[ElementField<'_>]) -> TokenStream {
    let runtime = hygiene::runtime(krate);
    let footprints = element_fields::counting(parts).map(|ElementField { field, .. }| {
        let ty = &field.ty;
        // The compiler counts a generic type as one with a footprint.
        if generics::is_generic(ty, generics) { own!(1) } else { own!(__p::ElementType::footprint::<#ty>()) }
    });
    let span = element_fields::counting(parts)
        .nth(1)
        .map_or_else(Span::mixed_site, |part| generics::ends(&part.field.ty).0);
    let check = quote_spanned!(span=> __p::ElementType::refuse_second(&[#(#footprints),*]));
    own! {
        const _: () = {
            #runtime
            #check
        };
    }
}
