//! The syntax of an attribute: `keyword`, `keyword = value`, `keyword(...)`, separated by commas.
//!
//! This module knows no keyword's meaning, except where its value ends.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::token::Bracket;
use syn::{Attribute, Lit, MacroDelimiter, Meta, Token, Type, Variant};

use crate::errors::Errors;
use crate::keywords;
use crate::model::MemoryType;

/// The name of the attribute.
pub(crate) const ATTRIBUTE: &str = "cuda_array";

/// One keyword and what follows it.
pub(crate) struct KeywordEntry {
    pub(crate) word: Ident,
    pub(crate) value: Value,
}

/// The value of a keyword.
pub(crate) enum Value {
    /// No value.
    None,
    /// `= value`: the tokens of the value, at least one.
    Given(TokenStream),
    /// `(...)`.
    List(Group),
}

/// A value and the keyword that set it.
pub(crate) struct Set<T> {
    pub(crate) word: Ident,
    pub(crate) value: T,
    /// Whether the keyword itself already has an error, so that no second one is reported.
    pub(crate) is_reported: bool,
}

/// The entries of all `#[cuda_array(...)]` in `attrs`. `example` is a valid content for this position, for messages.
///
/// `#[cuda_array()]` has no entries and is valid, because a macro may emit it.
pub(crate) fn read(attrs: &[Attribute], example: &str, errors: &mut Errors) -> Vec<KeywordEntry> {
    let ours = attrs.iter().filter(|attr| attr.path().is_ident(ATTRIBUTE));
    ours.flat_map(|attr| entries_of(attr, example, errors)).collect()
}

fn entries_of(attr: &Attribute, example: &str, errors: &mut Errors) -> Vec<KeywordEntry> {
    let help = format!("write `#[{ATTRIBUTE}({example})]`");
    let found = match &attr.meta {
        Meta::List(list) if matches!(list.delimiter, MacroDelimiter::Paren(_)) => {
            return entries(list.tokens.clone(), errors);
        }
        Meta::List(list) => {
            let help = format!("write `#[{ATTRIBUTE}({})]`", keywords::shown(&list.tokens));
            errors.push(&list.path, "the keywords of the attribute go in parentheses", help);
            errors.mark_uncertain(None);
            return Vec::new();
        }
        Meta::Path(_) => "the attribute has no keywords",
        Meta::NameValue(_) => "the attribute takes keywords in parentheses, not a value",
    };
    errors.push(&attr.meta, found, help);
    errors.mark_uncertain(None);
    Vec::new()
}

/// The entries in the parentheses of an attribute, or of a keyword with options.
pub(crate) fn entries(tokens: TokenStream, errors: &mut Errors) -> Vec<KeywordEntry> {
    let mut entries = Vec::new();
    let parser = |input: ParseStream| {
        while !input.is_empty() {
            match entry(input) {
                Ok(entry) => entries.push(entry),
                Err(slip) => slip.report(input, errors),
            }
            separator(input, errors);
        }
        Ok(())
    };
    // The parser consumes every token and reports what it cannot read, so it never returns an error.
    let _: syn::Result<()> = parser.parse2(tokens);
    entries
}

/// A syntax error that ends an entry.
struct SyntaxError {
    at: TokenStream,
    found: String,
    help: String,
    word: Option<Ident>,
}

impl SyntaxError {
    /// Reports the error and skips to the next possible keyword.
    fn report(self, input: ParseStream, errors: &mut Errors) {
        errors.push(self.at, self.found, self.help);
        let word = self.word.map(|word| word.to_string());
        errors.mark_uncertain(word.and_then(|word| keywords::legal_name(&word)));
        skip_to_next_word(input);
    }
}

fn skip_to_next_word(input: ParseStream) {
    while !input.is_empty() && !at_next_word(input) {
        let _: syn::Result<TokenTree> = input.parse();
    }
}

/// Whether the input is at a comma that must end an entry: the last one, or one before a valid keyword.
///
/// Another comma may belong to the value that could not be read.
fn at_next_word(input: ParseStream) -> bool {
    let ahead = input.fork();
    if ahead.parse::<Token![,]>().is_err() {
        return false;
    }
    ahead.is_empty()
        || ahead.call(Ident::parse_any).is_ok_and(|word| keywords::legal_name(&word.to_string()).is_some())
}

/// Consumes the comma between two entries.
fn separator(input: ParseStream, errors: &mut Errors) {
    if input.is_empty() || input.parse::<Token![,]>().is_ok() {
        return;
    }
    if let Ok(semicolon) = input.parse::<Token![;]>() {
        errors.push(semicolon, "`;` between two keywords", "write `,`");
        return;
    }
    let next = input.fork().parse::<TokenTree>().map(ToTokens::into_token_stream).unwrap_or_default();
    if input.peek(Ident::peek_any) {
        errors.push(&next, format_args!("no comma before `{next}`"), format_args!("write `, {next}`"));
        return;
    }
    let help = "write a comma and the next keyword, or remove it";
    errors.push(&next, format_args!("`{next}` after a complete value"), help);
    skip_to_next_word(input);
    let _: syn::Result<Token![,]> = input.parse();
}

fn entry(input: ParseStream) -> Result<KeywordEntry, SyntaxError> {
    let Ok(word) = input.call(Ident::parse_any) else {
        return Err(no_word(input));
    };
    if input.is_empty() || input.peek(Token![,]) || input.peek(Token![;]) {
        return Ok(KeywordEntry { word, value: Value::None });
    }
    let is_operator = input.peek(Token![==]) || input.peek(Token![=>]);
    if !is_operator && input.parse::<Token![=]>().is_ok() {
        return match value(&word, input) {
            Some(value) => Ok(KeywordEntry { word, value: Value::Given(value) }),
            None => Err(no_value(word, input)),
        };
    }
    match input.parse::<TokenTree>() {
        Ok(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            Ok(KeywordEntry { word, value: Value::List(group) })
        }
        next => Err(unexpected_token(word, next.ok().as_ref())),
    }
}

/// The error of an entry that ends with `=`, or has an unreadable value.
fn no_value(word: Ident, input: ParseStream) -> SyntaxError {
    if let Some(Lit::Str(quoted)) = input.fork().parse().ok().filter(|_| word == "element") {
        let help = format!("write `element = {}`, without quotes", quoted.value());
        let found = format!("`element` takes a type, found `{}`", quoted.to_token_stream());
        return SyntaxError { at: quoted.into_token_stream(), found, help, word: Some(word) };
    }
    let example = keywords::example(&word.to_string());
    let until = if !input.is_empty() && word == "default" { ": one expression, up to a comma" } else { "" };
    SyntaxError {
        at: word.to_token_stream(),
        found: format!("`{word} =` is not followed by a valid value"),
        help: format!("write `{word} = {example}`{until}"),
        word: Some(word),
    }
}

/// The error of an entry with an unexpected token after the keyword.
fn unexpected_token(word: Ident, next: Option<&TokenTree>) -> SyntaxError {
    let shown = keywords::shown(next);
    let (at, found, help) = match next {
        Some(TokenTree::Ident(_)) => (
            quote!(#next),
            format!("no comma between `{word}` and `{shown}`"),
            format!("write `{word}, {shown}`"),
        ),
        Some(TokenTree::Group(group)) => {
            let inner = keywords::shown(group.stream());
            let help = match word.to_string().as_str() {
                "data" | "strides" => format!("write `{word}({inner})`"),
                "shape" => format!("write `shape = [{inner}]`"),
                _ => format!("write `{word}`"),
            };
            (quote!(#next), format!("no `=` and no parentheses after `{word}`"), help)
        }
        Some(TokenTree::Punct(colon)) if colon.as_char() == ':' && colon.spacing() == Spacing::Joint => {
            let help = "write `data`, `shape` or another keyword of the attribute".to_string();
            (quote!(#word), format!("expected a keyword, found a path that starts with `{word}`"), help)
        }
        Some(TokenTree::Punct(sign)) if matches!(sign.as_char(), ':' | '=') => {
            let sign = if sign.as_char() == ':' { "`:`" } else { "an operator that begins with `=`" };
            let found = format!("`{word}` is followed by {sign}");
            (quote!(#next), found, format!("write `{word} = {}`", keywords::example(&word.to_string())))
        }
        Some(TokenTree::Punct(dash)) if dash.as_char() == '-' => {
            (quote!(#next), format!("`{word}` is followed by `-`"), "write `_` in a keyword".to_string())
        }
        _ => {
            let help = format!("write `{word}`, `{word} = value` or `{word}(...)`, then a comma");
            (quote!(#next), format!("`{word}` is followed by `{shown}`"), help)
        }
    };
    SyntaxError { at, found, help, word: Some(word) }
}

/// The error of an entry that does not start with a keyword.
fn no_word(input: ParseStream) -> SyntaxError {
    let at = input.parse::<TokenTree>().map(ToTokens::into_token_stream).unwrap_or_default();
    let shown = at.to_string();
    if shown == "#" && is_doc(input) {
        let found = "expected a keyword, found a doc comment".to_string();
        return SyntaxError { at, found, help: "write `//` for a comment".to_string(), word: None };
    }
    let bare = shown.trim_matches('"');
    let help = match keywords::legal_name(bare) {
        Some(word) => format!("write `{word}`, without quotes"),
        None if shown == "," => "remove the comma".to_string(),
        None if MemoryType::from_name(bare).is_some() => {
            "write several devices in brackets, `device = [\"cuda\", \"cuda_managed\"]`".to_string()
        }
        None => "the attribute takes keywords, such as `data` or `shape = [height, width]`".to_string(),
    };
    SyntaxError { at, found: format!("expected a keyword, found `{shown}`"), help, word: None }
}

/// Whether the input is at the rest of `#[doc = "..."]`, which is the form of a doc comment.
fn is_doc(input: ParseStream) -> bool {
    let Ok(TokenTree::Group(group)) = input.fork().parse() else { return false };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// The value after `keyword =`, if there is one.
fn value(word: &Ident, input: ParseStream) -> Option<TokenStream> {
    if word == "element" {
        return input.parse().ok().map(|ty: Type| ty.into_token_stream());
    }
    if word == "default" {
        return expression(input);
    }
    if input.peek(Lit) || input.peek(Bracket) {
        // The value is complete; a following token without a comma is the next keyword.
        return input.parse::<TokenTree>().ok().map(ToTokens::into_token_stream);
    }
    let mut value = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        value.extend(input.parse::<TokenTree>());
    }
    (!value.is_empty()).then_some(value)
}

/// The expression after `default =`.
///
/// The end of an expression is hard to find (`f::<A, B>()?`, `|a, b| a`). Without its feature `full`, which would
/// double everyone's build time, syn reads only some expressions. As the discriminant of an enum variant, syn finds the
/// end of any expression that starts with one that it cannot read: so `return` is put in front.
fn expression(input: ParseStream) -> Option<TokenStream> {
    // syn would read `let` as a condition, and some punctuation after `return` as an operator.
    if input.peek(Token![let]) || !begins_value(input) {
        return None;
    }
    let rest: TokenStream = input.fork().parse().ok()?;
    let parser = |input: ParseStream| {
        let variant: Variant = input.parse()?;
        input.parse::<TokenStream>().map(|_| variant)
    };
    let (_, found) = parser.parse2(quote!(Variant = return #rest)).ok()?.discriminant?;
    let tokens = found.into_token_stream().into_iter().skip(1);
    let value: TokenStream = tokens.map_while(|_| input.parse::<TokenTree>().ok()).collect();
    (!value.is_empty()).then_some(value)
}

/// Whether an expression can begin with the next punctuation.
fn begins_value(input: ParseStream) -> bool {
    match input.fork().parse() {
        Ok(TokenTree::Punct(sign)) => match sign.as_char() {
            '.' => input.peek(Token![..]),
            ':' => input.peek(Token![::]),
            sign => "-!*&|<#'".contains(sign),
        },
        _ => true,
    }
}

/// Fills a slot, or reports once that it is already filled.
pub(crate) fn set<T>(slot: &mut Option<Set<T>>, word: Ident, value: Option<T>, errors: &mut Errors) {
    if let Some(first) = slot {
        // The other value already has an error.
        if !first.is_reported && value.is_some() {
            errors.push(&word, format_args!("`{word}` is written twice"), "remove one of the two");
            // The other value may be the intended one.
            errors.mark_uncertain(keywords::legal_name(&word.to_string()));
        }
        first.is_reported = true;
    } else if let Some(value) = value {
        *slot = Some(Set { word, value, is_reported: false });
    }
}

/// A keyword without a value. With a value it is reported but still counts, unless the value is `false`.
pub(crate) fn flag(slot: &mut Option<Set<()>>, entry: KeywordEntry, errors: &mut Errors) {
    let KeywordEntry { word, value } = entry;
    let found = match value {
        Value::None => return set(slot, word, Some(()), errors),
        Value::Given(value) if value.to_string() == "false" => {
            let help = format!("remove it: leave out `{word}` to turn it off");
            errors.push(&word, format_args!("`{word}` takes no value"), help);
            return errors.mark_uncertain(keywords::legal_name(&word.to_string()));
        }
        Value::Given(_) => "value",
        Value::List(_) => "options",
    };
    errors.push(&word, format_args!("`{word}` takes no {found}"), format_args!("write `{word}`"));
    slot.get_or_insert(Set { word, value: (), is_reported: true }).is_reported = true;
}
