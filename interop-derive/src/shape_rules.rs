//! The rules about `shape = [...]`:
//!
//! 1. [`resolve`]: a name is a field of the struct, a const generic or a constant.
//! 2. [`extents_have_no_role`]: a field that is an extent has no role.
//! 3. [`axes_are_few`], [`strides_fit`]: the number of axes, if the tokens tell it.
//!
//! The compiler checks that a constant exists and is an integer.

use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, ExprLit, Lit, LitInt, Member, Path, Type};

use crate::errors::Errors;
use crate::fields::{self, FieldSpec, bare};
use crate::generics;
use crate::keywords::{self, join};
use crate::model::ShapeEntry;
use crate::shape_list::{Kind, WrittenExtent};
use crate::struct_spec::{StructSpec, can_have_role, field_of};

pub(crate) fn rules(spec: &StructSpec<'_>, errors: &mut Errors) {
    // An item without fields has been reported, and has no names to compare with. So has a shape beside `inner`.
    if spec.fields.is_empty() || has_two_shapes(spec) || spec.inner().is_some() {
        return;
    }
    for extent in spec.attrs.shape.iter().flat_map(|shape| &shape.value) {
        if let Some(name) = field_as_constant(extent, spec) {
            let found = format!("`{}` is a constant, and `{name}` is a field", keywords::shown(&extent.at));
            errors.push(&extent.at, found, format_args!("write `{name}`"));
            errors.mark_uncertain(Some("shape"));
        } else if let Kind::Computed((found, help)) = &extent.kind {
            // With `export` any expression is an extent.
            if spec.is_imported() && errors.is_absent("export") {
                errors.push(&extent.at, found, help);
                errors.mark_uncertain(Some("shape"));
            }
        } else if axis(extent, spec).is_none() {
            resolve(extent, spec, errors);
        }
    }
    extents_have_no_role(spec, errors);
    if let Some((count, word)) = count(spec).filter(|_| errors.is_absent("shape")) {
        axes_are_few(count, word, errors);
        strides_fit(count, spec, errors);
    }
}

/// Whether there is a second shape, which has been reported. It is then not known which one is intended.
fn has_two_shapes(spec: &StructSpec<'_>) -> bool {
    let list = spec.attrs.shape.as_ref();
    list.is_some_and(|list| list.is_reported || spec.only(|attrs| attrs.shape.is_some()).is_some())
}

/// Whether a name is a const generic, or looks like a constant and is not similar to a field name. A field with a role,
/// or in the list itself (`[n, N]`), does not count.
fn is_constant(name: &str, spec: &StructSpec<'_>) -> bool {
    let is_upper = name.contains(char::is_uppercase) && !name.contains(char::is_lowercase);
    let is_meant = |field: &FieldSpec<'_>| {
        field.name.eq_ignore_ascii_case(name) && is_free(field) && !spec.is_extent(field)
    };
    let is_own = || spec.fields.iter().any(is_meant) || is_type_parameter(name, spec);
    spec.generics().const_params().any(|constant| constant.ident.unraw() == name) || is_upper && !is_own()
}

fn is_type_parameter(name: &str, spec: &StructSpec<'_>) -> bool {
    spec.generics().type_params().any(|ty| ty.ident.unraw() == name)
}

/// Whether the field could be an extent, according to its attributes.
fn is_free(field: &FieldSpec<'_>) -> bool {
    field.attrs.roles().next().is_none() && field.attrs.default.is_none()
}

/// The axis of an extent, or `None` if the name is unknown.
pub(crate) fn axis<'a>(extent: &WrittenExtent, spec: &StructSpec<'a>) -> Option<ShapeEntry<'a>> {
    let field = field_of(extent, spec.fields).map(|field| ShapeEntry::Field(field.role()));
    field.or_else(|| match &extent.kind {
        Kind::Literal(value) => Some(ShapeEntry::Literal(*value)),
        Kind::Path(path) => Some(constant(path.clone(), spec)),
        Kind::Name(name) if is_constant(extent.name.as_ref()?, spec) => {
            Some(constant(name.to_token_stream(), spec))
        }
        Kind::Computed(_) if !spec.is_imported() => {
            let expression = with_sized_shift(with_own_self(extent.at.clone()));
            Some(ShapeEntry::Computed(expression, keywords::shown(&extent.at)))
        }
        Kind::Name(_) | Kind::Field(_) | Kind::Computed(_) => None,
    })
}

/// The constant with the user's tokens, so that the compiler's error points to them.
fn constant(path: TokenStream, spec: &StructSpec<'_>) -> ShapeEntry<'static> {
    let names: Vec<&Ident> = generics::names(spec.generics()).collect();
    match spec.generics().params.is_empty() {
        true => ShapeEntry::Known(without_self(path, &spec.input.ident)),
        false if generics::mentions(path.clone(), &names) => ShapeEntry::Const(path),
        false => ShapeEntry::Known(path),
    }
}

/// The path with the struct's name in place of `Self`, which is valid only in an impl.
fn without_self(path: TokenStream, name: &Ident) -> TokenStream {
    let named = path.into_iter().map(|token| match token {
        TokenTree::Ident(word) if word == "Self" => {
            let mut name = name.clone();
            name.set_span(word.span());
            name.into()
        }
        other => other,
    });
    named.collect()
}

/// The expression with the `self` of the generated method, which hides the user's.
fn with_own_self(expression: TokenStream) -> TokenStream {
    let own = expression.into_iter().map(|token| match token {
        TokenTree::Ident(word) if word == "self" => {
            TokenTree::Ident(Ident::new("self", Span::mixed_site().located_at(word.span())))
        }
        TokenTree::Group(group) => regrouped(&group, with_own_self(group.stream())),
        other => other,
    });
    own.collect()
}

/// The group with other tokens in it.
fn regrouped(group: &Group, tokens: TokenStream) -> TokenTree {
    let mut other = Group::new(group.delimiter(), tokens);
    other.set_span(group.span());
    other.into()
}

/// The expression with the type `usize` for the `1` of `1 << self.bits`, which would be an `i32`: nothing else in such an
/// expression tells the type. The same in parentheses, if all beside them are numbers.
fn with_sized_shift(expression: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = expression.into_iter().collect();
    if let [TokenTree::Literal(first), TokenTree::Punct(one), TokenTree::Punct(two), ..] = &tokens[..] {
        let is_shift = matches!((one.as_char(), two.as_char()), ('<', '<') | ('>', '>'));
        let sized = syn::parse2::<LitInt>(first.to_token_stream())
            .ok()
            .filter(|int| is_shift && int.suffix().is_empty());
        if let Some(int) = sized {
            let mut sized = Literal::usize_suffixed(int.base10_parse().unwrap_or(usize::MAX));
            sized.set_span(first.span());
            tokens[0] = sized.into();
        }
        return tokens.into_iter().collect();
    }
    if tokens.iter().any(|token| matches!(token, TokenTree::Ident(_))) {
        return tokens.into_iter().collect();
    }
    let inner = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => regrouped(&group, with_sized_shift(group.stream())),
        other => other,
    });
    inner.collect()
}

/// The field that `Self::height` probably means: the name is a field's and not in the case of a constant.
fn field_as_constant(extent: &WrittenExtent, spec: &StructSpec<'_>) -> Option<String> {
    let Kind::Path(path) = &extent.kind else { return None };
    let path: Path = syn::parse2(path.clone()).ok()?;
    let names: Vec<&Ident> = path.segments.iter().map(|segment| &segment.ident).collect();
    let [of, name] = names[..] else { return None };
    let name = name.unraw().to_string();
    let is_field = spec.fields.iter().any(|field| field.name == name);
    let is_own = *of == "Self" || *of == spec.input.ident;
    (is_own && is_field && name.contains(char::is_lowercase)).then_some(name)
}

/// Reports an unknown name, with the names that are possible.
fn resolve(extent: &WrittenExtent, spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some(name) = &extent.name else { return };
    let is_tuple = spec.fields.iter().any(|field| matches!(field.member, Member::Unnamed(_)));
    let consts = spec.generics().const_params().map(|constant| constant.ident.to_string());
    let prefix = if is_tuple { "self." } else { "" };
    let can_be_extent = |field: &&FieldSpec<'_>| is_free(field) && can_have_role(field.ty, "shape");
    let fields = spec.fields.iter().filter(can_be_extent);
    let legal: Vec<String> = fields.map(|field| format!("{prefix}{}", field.name)).chain(consts).collect();
    let legal = || legal.iter().map(String::as_str);
    let constant = match &extent.kind {
        Kind::Name(name) if !is_type_parameter(&name.to_string(), spec) => {
            format!(", or `self::{name}` for a constant")
        }
        _ => String::new(),
    };
    let intended = keywords::nearest(name, legal()).filter(|_| !is_tuple);
    match intended {
        Some(field) => errors.mark_meant(field),
        // Any field may be meant that seems to have no role.
        None => errors.mark_uncertain(Some("shape")),
    }
    let help = match intended {
        Some(intended) if matches!(extent.kind, Kind::Field(_)) => format!("write `self.{intended}`"),
        Some(intended) if intended.eq_ignore_ascii_case(name) => format!("write `{intended}`{constant}"),
        Some(intended) => format!("write `{intended}`"),
        None if legal().next().is_none() => "add an integer field with the extent to the struct".to_string(),
        None => format!("write {}, or an integer literal{constant}", keywords::list(legal())),
    };
    errors.push(&extent.at, format_args!("the struct has no field `{name}`"), help);
}

/// An additional hint if a field of a tuple struct is named by its index alone, which is a literal.
pub(crate) fn hint_about_index(spec: &StructSpec<'_>, field: &FieldSpec<'_>) -> String {
    let Member::Unnamed(index) = &field.member else { return String::new() };
    let mut list = spec.attrs.shape.iter().flat_map(|shape| &shape.value);
    let is_index = |extent: &WrittenExtent| matches!(extent.kind, Kind::Literal(value) if value == u64::from(index.index));
    let hint = list.find(|extent| is_index(extent));
    hint.map_or_else(String::new, |_| {
        format!("; for the field itself as an extent, write `self.{}`", index.index)
    })
}

/// A field that an import fills with an extent cannot have another value.
fn extents_have_no_role(spec: &StructSpec<'_>, errors: &mut Errors) {
    for field in spec.fields.iter().filter(|field| spec.is_extent(field)) {
        let Some((role, word)) = field.attrs.roles().next() else { continue };
        let name = &field.name;
        let roles = join(["shape = [...]", role].into_iter(), "and");
        let found = format!("the field `{name}` is in {roles}");
        errors.push(word, found, format_args!("remove `{role}`, or take `{name}` out of `shape = [...]`"));
        // The intended field may be another one, which seems to have no role.
        errors.mark_uncertain(Some("shape"));
        errors.mark_uncertain(Some(role));
    }
}

/// The greatest number of axes: `interop_core::protocols::MAX_NDIM`.
const MAX_NDIM: usize = 64;

/// The number of axes and the keyword that gives it: the length of the list, or of the field's array type.
fn count<'a>(spec: &StructSpec<'a>) -> Option<(usize, &'a Ident)> {
    let by_list = spec.attrs.shape.as_ref().map(|list| (list.value.len(), &list.word));
    let field = spec.with(|attrs| attrs.shape.is_some());
    let by_field = field.and_then(|field| Some((len(field.ty)?, field.attrs.role("shape")?)));
    by_list.xor(by_field)
}

/// The length of a `[T; 3]`, or of an `Option` of one, if it is a literal.
fn len(ty: &Type) -> Option<usize> {
    match bare(ty) {
        Type::Array(array) => match &array.len {
            Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) => len.base10_parse().ok(),
            _ => None,
        },
        Type::Path(path) => {
            let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
            fields::arguments(&last.arguments).find_map(len)
        }
        _ => None,
    }
}

fn axes_are_few(count: usize, word: &Ident, errors: &mut Errors) {
    if count > MAX_NDIM {
        let found = format!("a shape of {count} axes");
        errors.push(word, found, format_args!("write at most {MAX_NDIM} extents"));
    }
}

fn strides_fit(count: usize, spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some(field) = spec.only(|attrs| attrs.strides.is_some()) else { return };
    if let Some(strides) = len(field.ty).filter(|strides| *strides != count) {
        let counted = |number, one, more| format!("{number} {}", if number == 1 { one } else { more });
        let (strides, axes) = (counted(strides, "stride", "strides"), counted(count, "axis", "axes"));
        let found = format!("{strides} for a shape of {axes}");
        errors.push(field.ty, found, format_args!("write a list of {count}, one stride for each axis"));
    }
}
