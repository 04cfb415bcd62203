//! Generic parameters and where-clauses of generated code.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{
    Attribute, GenericParam, Generics, Lifetime, LifetimeParam, Path, Token, Type, WhereClause,
    WherePredicate,
};

use crate::fields;
use crate::hygiene::own;
use crate::model::{ArrayModel, Data, Initial, Shape, ShapeEntry, With};

/// The generics of the struct without attributes, which belong to other macros.
pub(crate) fn bare(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) => lifetime.attrs.clear(),
            GenericParam::Type(ty) => ty.attrs.clear(),
            GenericParam::Const(constant) => constant.attrs.clear(),
        }
    }
    generics
}

/// The parameters of an impl, the arguments of the struct, and the where-clause.
///
/// The brackets have the macro's span, not the user's. clippy then treats bounds that repeat the user's as generated
/// code.
pub(crate) fn split(generics: &Generics) -> (Option<TokenStream>, Option<TokenStream>, Option<&WhereClause>) {
    let parameters = (!generics.params.is_empty()).then(|| {
        let mut own = generics.clone();
        own.lt_token = Some(Token![<](Span::mixed_site()));
        own.gt_token = Some(Token![>](Span::mixed_site()));
        own.split_for_impl().0.to_token_stream()
    });
    (parameters, arguments(generics), generics.where_clause.as_ref())
}

/// The parameters as arguments of the struct, or `None` without parameters.
///
/// A const generic is put in braces, because a type of the same name would otherwise be taken for it.
pub(crate) fn arguments(generics: &Generics) -> Option<TokenStream> {
    if generics.params.is_empty() {
        return None;
    }
    let arguments = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Lifetime(lifetime) => lifetime.lifetime.to_token_stream(),
        GenericParam::Type(ty) => ty.ident.to_token_stream(),
        GenericParam::Const(constant) => {
            let name = &constant.ident;
            quote!({ #name })
        }
    });
    // The user's brackets, so that the compiler underlines the whole type.
    let (open, close) = (generics.lt_token, generics.gt_token);
    Some(quote!(#open #(#arguments),* #close))
}

/// The names of type and const parameters.
pub(crate) fn names(generics: &Generics) -> impl Iterator<Item = &Ident> {
    generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Lifetime(_) => None,
        GenericParam::Type(ty) => Some(&ty.ident),
        GenericParam::Const(constant) => Some(&constant.ident),
    })
}

/// Whether a type depends on a type or const parameter of the struct.
///
/// This compares tokens. A false positive, such as `module::T`, only adds a bound that holds anyway.
pub(crate) fn is_generic(ty: &Type, generics: &Generics) -> bool {
    let names: Vec<&Ident> = names(generics).collect();
    !names.is_empty() && mentions(ty.to_token_stream(), &names)
}

/// Whether one of the names, or `Self`, is among the tokens. `r#T` and `T` are the same name.
pub(crate) fn mentions(tokens: TokenStream, names: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), names),
        TokenTree::Ident(ident) => ident == "Self" || names.iter().any(|name| name.unraw() == ident.unraw()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// How a type uses a parameter.
#[derive(Clone, Copy, Default)]
pub(crate) struct ParameterUses {
    /// As a type: `T`, `[T; 3]`.
    pub(crate) itself: bool,
    /// In a path to another type: `T::Scalar`, `<T as Format>::Scalar`.
    pub(crate) to_name: bool,
}

/// How the tokens of a type use the parameter `name`.
pub(crate) fn uses(tokens: TokenStream, name: &Ident) -> ParameterUses {
    let mut uses = ParameterUses::default();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let inner = self::uses(group.stream(), name);
                uses = ParameterUses {
                    itself: uses.itself | inner.itself,
                    to_name: uses.to_name | inner.to_name,
                };
            }
            TokenTree::Ident(ident) if ident.unraw() == name.unraw() => match tokens.peek() {
                Some(TokenTree::Punct(colon)) if colon.as_char() == ':' => uses.to_name = true,
                Some(TokenTree::Ident(word)) if word == "as" => uses.to_name = true,
                _ => uses.itself = true,
            },
            _ => {}
        }
    }
    uses
}

/// A bound of a generic type: the type, and the trait in `__private`.
pub(crate) type Bound<'a> = (&'a Type, &'static str);

/// The bounds of the export half on field types.
pub(crate) fn export_bounds<'a>(model: &ArrayModel<'a>) -> Vec<Bound<'a>> {
    let mut bounds = data_bounds(&model.data, ["Storage", "CudaArray"]);
    bounds.extend(shape_bounds(&model.shape));
    bounds.extend(model.strides.iter().map(|(field, _)| (field.ty, "StridesField")));
    bounds.extend(model.stream.iter().map(|field| (field.ty, "AsStream")));
    bounds
}

/// The bounds of the import half on field types.
pub(crate) fn import_bounds<'a>(model: &ArrayModel<'a>) -> Vec<Bound<'a>> {
    let mut bounds = data_bounds(&model.data, ["FromImport", "FromArray"]);
    for fill in &model.fills {
        bounds.extend(fill_bounds(&fill.with));
    }
    bounds
}

fn data_bounds<'a>(data: &Data<'a>, [storage_role, array_role]: [&'static str; 2]) -> Vec<Bound<'a>> {
    match data {
        Data::Storage(field, _) => {
            let element = element_of(field.ty).map(|element| (element, "Element"));
            element.into_iter().chain([(field.ty, storage_role)]).collect()
        }
        Data::Inner(field, _) => vec![(field.ty, array_role)],
        Data::Raw { pointer, element: None, device, .. } => {
            vec![(pointer.ty, "RawPointer"), (device.ty, "DeviceField")]
        }
        Data::Raw { pointer, element: Some(element), device, .. } => {
            vec![(pointer.ty, "RawAddress"), (*element, "Element"), (device.ty, "DeviceField")]
        }
    }
}

/// The element type of a storage by its name. With a bound on it, the compiler advises `T: Element` where the bound is missing.
fn element_of(ty: &Type) -> Option<&Type> {
    match fields::bare(ty) {
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let first = fields::arguments(&last.arguments).next()?;
            match last.ident.to_string().as_str() {
                "Borrowed" | "BorrowedMut" | "HostVec" | "Lease" | "LeaseMut" | "Vec" => Some(first),
                "Arc" | "Box" => element_of(first),
                _ => None,
            }
        }
        Type::Reference(reference) => element_of(&reference.elem),
        Type::Slice(slice) => Some(&slice.elem),
        _ => None,
    }
}

fn shape_bounds<'a>(shape: &Shape<'a>) -> Vec<Bound<'a>> {
    let axes = match shape {
        Shape::Field(field) => return vec![(field.ty, "ShapeField")],
        Shape::Extents(axes) => axes.iter(),
        Shape::OfInner => return Vec::new(),
    };
    let fields = axes.filter_map(|axis| match axis {
        ShapeEntry::Field(field) => Some((field.ty, "Extent")),
        ShapeEntry::Const(_) | ShapeEntry::Known(_) | ShapeEntry::Literal(_) | ShapeEntry::Computed(..) => {
            None
        }
    });
    fields.collect()
}

fn fill_bounds<'a>(with: &With<'a>) -> Vec<Bound<'a>> {
    match with {
        With::Extent(field, _) => vec![(field.ty, "Extent")],
        With::Shape(field) => vec![(field.ty, "ShapeField")],
        With::Strides(field, _) => vec![(field.ty, "StridesField")],
        With::Stream(field, _) => vec![(field.ty, "FromStream")],
        With::OwnStream(field, Initial::Default(_)) => vec![(field.ty, "AsStream"), (field.ty, "Default")],
        With::OwnStream(field, Initial::Expression(_)) => vec![(field.ty, "AsStream")],
        With::Initial(Initial::Default(ty)) => vec![(*ty, "Default")],
        With::Owner(field) => vec![(field.ty, "FromOwner")],
        With::Device(_)
        | With::Storage
        | With::Inner(..)
        | With::Pointer(..)
        | With::Initial(Initial::Expression(_)) => Vec::new(),
    }
}

/// The generics with `Type: __p::Role` for each pair with a generic type.
///
/// Other types get no bound, because the compiler would report a wrong one here and at every use of the struct. They
/// are checked in the function bodies, which name them as `<Type as __p::Role>`.
pub(crate) fn bounded(generics: &Generics, bounds: &[Bound<'_>]) -> Generics {
    let mut bounded = generics.clone();
    let mut seen = Vec::new();
    for (ty, role) in bounds.iter().filter(|(ty, _)| is_generic(ty, generics)) {
        let predicate = predicate(ty, role);
        let text = predicate.to_token_stream().to_string();
        if !seen.contains(&text) {
            seen.push(text);
            bounded.make_where_clause().predicates.push(predicate);
        }
    }
    bounded
}

/// The generics with the lifetime `'__borrow`, for which the type of the data keeps its memory.
pub(crate) fn borrowed(generics: &Generics, data: &Type) -> Generics {
    let mut borrowed = generics.clone();
    let lifetime = Lifetime::new("'__borrow", Span::mixed_site());
    borrowed.params.insert(0, GenericParam::Lifetime(LifetimeParam::new(lifetime.clone())));
    let mut predicate = predicate(data, "BorrowedFor");
    if let WherePredicate::Type(bound) = &mut predicate {
        let role = own!(__p::BorrowedFor<#lifetime>);
        bound.bounds = syn::parse_quote!(#role);
    }
    borrowed.make_where_clause().predicates.push(predicate);
    borrowed
}

/// The first and the last span of a type or constant, so that the compiler underlines all of it.
pub(crate) fn ends(item: impl ToTokens) -> (Span, Span) {
    let spans: Vec<Span> = item.to_token_stream().into_iter().map(|token| token.span()).collect();
    let place =
        |span: Option<&Span>| span.map_or_else(Span::mixed_site, |span| Span::mixed_site().located_at(*span));
    (place(spans.first()), place(spans.last()))
}

/// `Type: __p::Role`, with the span of the type.
fn predicate(ty: &Type, role: &str) -> WherePredicate {
    let (span, _) = ends(ty);
    let role = Ident::new(role, span);
    syn::parse_quote_spanned!(span=> #ty: __p::#role)
}

/// An `#[allow]` of the lints that the user allowed on the struct or a field, as the standard derives repeat them.
///
/// An `#[allow]` on the struct does not apply to the impls. They name deprecated items of the user, contain the
/// `unsafe` of `unsafe_raw`, and repeat the user's names. No other lint is allowed, because under `#![forbid]` an
/// `#[allow]` is itself an error.
pub(crate) fn silenced<'a>(attrs: impl IntoIterator<Item = &'a Attribute>) -> Option<TokenStream> {
    let lints: Vec<Path> = attrs.into_iter().flat_map(silenced_by).collect();
    (!lints.is_empty()).then(|| own!(#[allow(#(#lints),*)]))
}

fn silenced_by(attr: &Attribute) -> Vec<Path> {
    if attr.path().is_ident("deprecated") {
        return vec![attr.path().clone()];
    }
    if !attr.path().is_ident("allow") && !attr.path().is_ident("expect") {
        return Vec::new();
    }
    let mut lints = Vec::new();
    // `reason = "..."` is not a lint and ends the list; the compiler accepts it only there.
    let _: syn::Result<()> = attr.parse_nested_meta(|lint| {
        if !lint.path.is_ident("reason") {
            lints.push(lint.path);
        }
        Ok(())
    });
    lints
}

/// The parameters without bounds and defaults, as the Python macros take them.
pub(crate) fn parameters(generics: &Generics) -> TokenStream {
    let parameters = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Lifetime(lifetime) => lifetime.lifetime.to_token_stream(),
        GenericParam::Type(ty) => ty.ident.to_token_stream(),
        GenericParam::Const(constant) => {
            let (name, ty) = (&constant.ident, &constant.ty);
            quote_spanned!(name.span()=> const #name: #ty)
        }
    });
    quote!(#(#parameters),*)
}

/// The user's bounds as predicates, each followed by a comma, then Python's bounds on the struct if it is generic.
pub(crate) fn python_bounds(ident: &Ident, generics: &Generics) -> TokenStream {
    let arguments = arguments(generics);
    let own = generics.type_params().filter(|ty| !ty.bounds.is_empty()).map(|ty| {
        let (name, bounds) = (&ty.ident, &ty.bounds);
        quote!(#name: #bounds,)
    });
    let clause = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let is_generic = generics.type_params().next().is_some();
    let needed = is_generic.then(|| own!(#ident #arguments: 'static + __p::Send + __p::Sync,));
    quote!(#(#own)* #(#clause,)* #needed)
}
