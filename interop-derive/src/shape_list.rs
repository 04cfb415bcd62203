//! The list of `shape = [height, width, 3]`.

use proc_macro2::{Delimiter, Ident, Literal, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprIndex, Lit, LitInt, Member, Token, UnOp};

use crate::errors::Errors;
use crate::keywords::{member_name, shown};

/// One extent as written. Whether a name is that of a field is not known here.
pub(crate) struct WrittenExtent {
    pub(crate) at: TokenStream,
    pub(crate) kind: Kind,
    /// The name of the field that may be intended.
    pub(crate) name: Option<String>,
}

/// The forms of an extent.
pub(crate) enum Kind {
    /// `height`, `CHANNELS`: a field, a const generic or a constant.
    Name(Ident),
    /// `self.0` or `self.height`: a field.
    Field(Member),
    /// `3`.
    Literal(u64),
    /// `Self::CHANNELS`, `sizes::CHANNELS`: a constant.
    Path(TokenStream),
    /// `self.rows()`, `1 << self.bits`: an expression, which only an export can use. The texts are the error for an import.
    Computed(Refusal),
}

/// The valid forms, for messages.
const TAKES: &str =
    "an extent is the name of an integer field, an integer literal, a constant or a const generic";

/// Reads the tokens after `shape =`, or returns `None` if they are not a list.
///
/// Invalid extents are reported and left out.
pub(crate) fn read(tokens: &TokenStream, errors: &mut Errors) -> Option<Vec<WrittenExtent>> {
    if let Some(list) = bracketed(tokens.clone()) {
        return Some(split(list, errors).into_iter().filter_map(|tokens| extent(tokens, errors)).collect());
    }
    let mut parts = tokens.clone().into_iter();
    let help = match (parts.next(), parts.next()) {
        (Some(TokenTree::Group(group)), None) => format!("write `shape = [{}]`", shown(group.stream())),
        (Some(TokenTree::Ident(name)), None) => {
            format!(
                "write `shape = [{name}]`, or mark `{name}` with `#[cuda_array(shape)]` if it holds all extents"
            )
        }
        (Some(TokenTree::Literal(text)), None) if is_list(&text) => {
            format!("write `shape = [{}]`", text.to_string().trim_matches('"'))
        }
        _ => "write `shape = [height, width, 3]`; for any rank, mark a field such as a `Vec<usize>` with \
              `#[cuda_array(shape)]`"
            .to_string(),
    };
    errors.push(tokens, "the extents are not in brackets", help);
    errors.mark_uncertain(Some("shape"));
    None
}

/// Whether this literal is a number or a string of names.
fn is_list(text: &Literal) -> bool {
    let text = text.to_string();
    let names = text.trim_matches('"');
    !names.is_empty() && names.chars().all(|part| part.is_alphanumeric() || "_, ".contains(part))
}

/// The content of the brackets, which may be in the invisible group of a macro variable.
fn bracketed(tokens: TokenStream) -> Option<TokenStream> {
    let mut tokens = tokens.into_iter();
    let (Some(TokenTree::Group(group)), None) = (tokens.next(), tokens.next()) else { return None };
    match group.delimiter() {
        Delimiter::Bracket => Some(group.stream()),
        Delimiter::None => bracketed(group.stream()),
        Delimiter::Parenthesis | Delimiter::Brace => None,
    }
}

/// Splits at commas. A comma after the last part is allowed; any other needs a part before it.
fn split(list: TokenStream, errors: &mut Errors) -> Vec<TokenStream> {
    let mut parts = Vec::new();
    let mut part = TokenStream::new();
    for token in list {
        match token {
            TokenTree::Punct(comma) if comma.as_char() == ',' && part.is_empty() => {
                errors.push(comma, "expected an extent, found `,`", "remove the comma");
                errors.mark_uncertain(Some("shape"));
            }
            TokenTree::Punct(comma) if comma.as_char() == ',' => parts.push(std::mem::take(&mut part)),
            token => part.extend([token]),
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn extent(tokens: TokenStream, errors: &mut Errors) -> Option<WrittenExtent> {
    // Most extents are a name, which is faster to parse than an expression.
    if let Ok(name) = syn::parse2::<Ident>(tokens.clone()) {
        return Some(WrittenExtent {
            at: tokens,
            name: Some(name.unraw().to_string()),
            kind: Kind::Name(name),
        });
    }
    if let Some((of, keyword)) = keyword.parse2(tokens.clone()).ok().flatten() {
        errors.push(
            tokens,
            format_args!("`{keyword}` is a keyword"),
            format_args!("write `{of}r#{keyword}`"),
        );
        errors.mark_uncertain(Some("shape"));
        return None;
    }
    let computed = |found, advice| Ok(Kind::Computed((found, format!("{TAKES}; {advice}"))));
    let read = syn::parse2::<Expr>(tokens.clone()).map_or_else(
        // Which expressions can be parsed depends on the features of `syn`, which other crates turn on.
        |_| computed(format!("`{}` is not an extent", shown(&tokens)), "separate extents by commas"),
        |expression| {
            let advice = "store the result in a field or a constant, or write `export` on a struct that is never imported";
            classify(bare(expression)).unwrap_or_else(|| {
                computed(format!("`{}` is an expression, which an import cannot fill", shown(&tokens)), advice)
            })
        },
    );
    match read {
        Ok(kind) => Some(WrittenExtent { at: tokens, name: name(&kind), kind }),
        Err((found, help)) => {
            errors.push(tokens, found, help);
            errors.mark_uncertain(Some("shape"));
            None
        }
    }
}

/// A Rust keyword that can be a field name in its raw form, and the prefix before it.
fn keyword(input: ParseStream<'_>) -> syn::Result<Option<(&'static str, Ident)>> {
    let is_of_self = input.peek(Token![self]) && input.peek2(Token![.]);
    if is_of_self {
        input.parse::<Token![self]>()?;
        input.parse::<Token![.]>()?;
    }
    if input.peek(syn::Ident) {
        return Ok(None);
    }
    let word = input.call(Ident::parse_any)?;
    let never_raw =
        ["_", "true", "false", "self", "Self", "super", "crate"].iter().any(|other| word == other);
    Ok((!never_raw).then_some((if is_of_self { "self." } else { "" }, word)))
}

fn name(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Name(name) => Some(name.unraw().to_string()),
        Kind::Field(member) => Some(member_name(member)),
        Kind::Literal(_) | Kind::Path(_) | Kind::Computed(_) => None,
    }
}

/// The expression without parentheses and without the invisible groups of macro variables.
fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => bare(*group.expr),
        Expr::Paren(paren) => bare(*paren.expr),
        other => other,
    }
}

/// The item that was found, and the form to write.
pub(crate) type Refusal = (String, String);

/// The extent that an expression is, or the reason if it is a common mistake. `None` for any other expression.
fn classify(expression: Expr) -> Option<Result<Kind, Refusal>> {
    match expression {
        Expr::Path(path) if path.path.is_ident("self") => None,
        Expr::Path(path) => {
            let constant = || Kind::Path(path.to_token_stream());
            Some(Ok(path.path.get_ident().map_or_else(constant, |name| Kind::Name(name.clone()))))
        }
        Expr::Field(field) => match bare(*field.base) {
            Expr::Path(base) if base.path.is_ident("self") => Some(Ok(Kind::Field(field.member))),
            base @ (Expr::Path(_) | Expr::Field(_)) => {
                Some(Ok(Kind::Computed(nested_field(&base, &field.member))))
            }
            _ => None,
        },
        Expr::Lit(literal) => Some(self::literal(&literal.lit)),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => match bare(*unary.expr) {
            Expr::Lit(literal) => {
                let found = format!("the extent `-{}` is negative", literal.lit.to_token_stream());
                Some(Err((
                    found,
                    "an extent is 0 or greater; use a negative stride to reverse an axis".to_string(),
                )))
            }
            _ => None,
        },
        Expr::Cast(cast) if matches!(*cast.expr, Expr::Path(_)) => Some(Ok(Kind::Computed((
            format!("the extent `{}` is converted", shown(&cast.expr)),
            format!("write `{}`; an extent can have any integer type", shown(&cast.expr)),
        )))),
        Expr::Index(index) => Some(Ok(Kind::Computed(item(&index)))),
        _ => None,
    }
}

/// An import could not fill a field of another struct, so an extent is a field of the struct itself.
fn nested_field(base: &Expr, member: &Member) -> Refusal {
    let copy = match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(_) => "extent".to_string(),
    };
    let found = format!("the extent `{}.{}` is a field of another struct", shown(base), member_name(member));
    (found, format!("copy it into an integer field, such as `{copy}: usize`, and write `{copy}`"))
}

fn item(ExprIndex { expr, index, .. }: &ExprIndex) -> Refusal {
    let help = match (&**expr, &**index) {
        (Expr::Path(of), Expr::Lit(number)) if of.path.is_ident("self") => {
            format!("write `self.{}`", number.lit.to_token_stream())
        }
        _ => "write `#[cuda_array(shape)]` on that field, to use all of its items".to_string(),
    };
    (format!("the extent is an item of `{}`", shown(expr)), help)
}

fn literal(literal: &Lit) -> Result<Kind, Refusal> {
    let shown = literal.to_token_stream().to_string();
    match literal {
        Lit::Int(integer) => self::integer(integer),
        Lit::Str(text) if syn::parse_str::<Ident>(&text.value()).is_ok() => Err((
            format!("the extent {shown} is a string"),
            format!("write `{}`, without quotes", text.value()),
        )),
        Lit::Float(float) if float.base10_digits().ends_with(".0") && float.suffix().is_empty() => {
            let help = format!("write `{}`", float.base10_digits().trim_end_matches(".0"));
            Err((format!("the extent `{shown}` is not an integer"), help))
        }
        _ => Err((format!("the extent `{shown}` is not an integer"), TAKES.to_string())),
    }
}

fn integer(integer: &LitInt) -> Result<Kind, Refusal> {
    let suffix = integer.suffix();
    if !matches!(suffix, "" | "usize") {
        let help = format!("write `{}`", integer.base10_digits());
        return Err((format!("the extent `{integer}` has the suffix `{suffix}`"), help));
    }
    // Both protocols store extents as signed 64-bit integers.
    match integer.base10_parse::<u64>() {
        Ok(extent) if i64::try_from(extent).is_ok() => Ok(Kind::Literal(extent)),
        _ => Err((format!("the extent `{integer}` is too big"), format!("write at most `{}`", i64::MAX))),
    }
}
