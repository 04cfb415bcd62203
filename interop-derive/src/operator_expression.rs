//! Expressions in the rules of operators, which become expressions of Python: there an extent may be a symbol.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Error, Result, Token};

/// The names that Python keeps for itself.
const KEYWORDS: &str = " and as assert async await break class continue def del elif else except finally for from global if import in is \
    lambda nonlocal not or pass raise return try while with yield None True False ";

/// The name of a parameter in Python: with `_` at its end, if Python keeps the name.
pub(crate) fn python_name(name: &Ident) -> String {
    let name = name.unraw().to_string();
    if KEYWORDS.contains(&format!(" {name} ")) { name + "_" } else { name }
}

/// The names that an expression may use.
pub(crate) struct Scope<'a> {
    pub(crate) parameters: &'a Punctuated<Ident, Token![,]>,
}

impl Scope<'_> {
    /// The name in Python of a parameter.
    pub(crate) fn parameter(&self, name: &Ident) -> Result<String> {
        if self.parameters.iter().any(|parameter| parameter.unraw() == name.unraw()) {
            return Ok(python_name(name));
        }
        let all: Vec<String> = self.parameters.iter().map(|parameter| format!("`{parameter}`")).collect();
        Err(Error::new(name.span(), format!("found `{name}`, allowed: the parameters {}", all.join(", "))))
    }
}

/// The extents of a result, `a.0, 2 * b.1, ..c`, as the items of a tuple.
pub(crate) fn list(tokens: TokenStream, scope: &Scope<'_>) -> Result<String> {
    let mut text = String::new();
    for item in split(tokens) {
        let rest = match item.as_slice() {
            [TokenTree::Punct(first), TokenTree::Punct(second), rest @ ..]
                if first.as_char() == '.' && second.as_char() == '.' =>
            {
                text += &all_extents(rest, scope)?;
                text += ", ";
                continue;
            }
            rest => rest,
        };
        text += &Writer { scope, of: Kind::Extent, uses: Vec::new() }.expression(rest, Span::call_site())?;
        text += ", ";
    }
    Ok(format!("({text})"))
}

/// `a`, or `a[1..]`, as items of a tuple.
fn all_extents(tokens: &[TokenTree], scope: &Scope<'_>) -> Result<String> {
    match tokens {
        [TokenTree::Ident(name)] => Ok(format!("*{}.shape", scope.parameter(name)?)),
        [TokenTree::Ident(name), TokenTree::Group(range)] if range.delimiter() == Delimiter::Bracket => {
            let text = range.stream().to_string().replace(' ', "");
            let is_number =
                |text: &str| text.is_empty() || text.trim_start_matches('-').parse::<u32>().is_ok();
            match text.split_once("..") {
                Some((start, end)) if is_number(start) && is_number(end) => {
                    Ok(format!("*{}.shape[{start}:{end}]", scope.parameter(name)?))
                }
                _ => Err(Error::new(
                    range.span(),
                    format!("found `[{text}]`, allowed: a range of axes, such as `[1..]` or `[..-1]`"),
                )),
            }
        }
        _ => Err(Error::new(
            span(tokens),
            "allowed after `..`: a parameter, or some of its axes, such as `a[1..]`",
        )),
    }
}

/// A gradient as an expression, and the names of parameters, `gradient` and `result` that it uses.
pub(crate) fn gradient(
    tokens: &[TokenTree],
    place: Span,
    scope: &Scope<'_>,
) -> Result<(String, Vec<String>)> {
    let mut writer = Writer { scope, of: Kind::Gradient, uses: Vec::new() };
    let text = writer.expression(tokens, place)?;
    Ok((text, writer.uses))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Extent,
    Gradient,
}

impl Kind {
    const fn allowed(self) -> &'static str {
        match self {
            Self::Extent => {
                "an extent such as `a.0` or `a.-1`, an integer parameter, a number, `max(…)`, `min(…)`, `+ - * / %`, and parentheses"
            }
            Self::Gradient => {
                "an operator of this namespace with arguments, a parameter, `gradient`, `result`, a number, `+ - * /`, and parentheses"
            }
        }
    }
}

/// Writes an expression of Python.
struct Writer<'a> {
    scope: &'a Scope<'a>,
    of: Kind,
    uses: Vec<String>,
}

impl Writer<'_> {
    /// Operands with operators between them.
    fn expression(&mut self, tokens: &[TokenTree], place: Span) -> Result<String> {
        let mut text = String::new();
        let mut rest = tokens;
        loop {
            while let [TokenTree::Punct(sign), after @ ..] = rest {
                if sign.as_char() != '-' {
                    break;
                }
                text.push('-');
                rest = after;
            }
            let Some(operand) = self.operand(&mut rest)? else {
                let place = rest.first().map_or(place, TokenTree::span);
                return Err(Error::new(place, format!("allowed here: {}", self.of.allowed())));
            };
            text += &operand;
            let [TokenTree::Punct(operator), after @ ..] = rest else { break };
            text += match (operator.as_char(), self.of) {
                ('+', _) => " + ",
                ('-', _) => " - ",
                ('*', _) => " * ",
                ('%', Kind::Extent) => " % ",
                ('/', Kind::Extent) => " // ",
                ('/', Kind::Gradient) => " / ",
                _ => break,
            };
            rest = after;
        }
        match rest.first() {
            None => Ok(text),
            Some(token) => {
                Err(Error::new(token.span(), format!("found `{token}`, allowed: {}", self.of.allowed())))
            }
        }
    }

    /// Takes an operand off the front.
    fn operand(&mut self, tokens: &mut &[TokenTree]) -> Result<Option<String>> {
        let (text, rest) = match *tokens {
            [TokenTree::Ident(name), TokenTree::Group(arguments), rest @ ..]
                if arguments.delimiter() == Delimiter::Parenthesis =>
            {
                (self.call(name, arguments)?, rest)
            }
            [TokenTree::Ident(name), TokenTree::Punct(dot), rest @ ..]
                if dot.as_char() == '.' && self.of == Kind::Extent =>
            {
                let (sign, rest) = match rest {
                    [TokenTree::Punct(sign), rest @ ..] if sign.as_char() == '-' => ("-", rest),
                    rest => ("", rest),
                };
                let Some((TokenTree::Literal(axis), rest)) = rest.split_first() else { return Ok(None) };
                (format!("{}.shape[{sign}{axis}]", self.scope.parameter(name)?), rest)
            }
            [TokenTree::Ident(name), rest @ ..] => (self.name(name)?, rest),
            [TokenTree::Literal(number), rest @ ..] => (number.to_string(), rest),
            [TokenTree::Group(group), rest @ ..] if group.delimiter() == Delimiter::Parenthesis => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                (format!("({})", self.expression(&tokens, group.span())?), rest)
            }
            _ => return Ok(None),
        };
        *tokens = rest;
        Ok(Some(text))
    }

    fn call(&mut self, name: &Ident, arguments: &Group) -> Result<String> {
        let is_known = self.of == Kind::Gradient || name == "max" || name == "min";
        if !is_known {
            return Err(Error::new(
                name.span(),
                format!("found `{name}(…)`, allowed: {}", self.of.allowed()),
            ));
        }
        let of = if self.of == Kind::Gradient { "_operators." } else { "_" };
        let items = split(arguments.stream());
        let items: Result<Vec<String>> =
            items.iter().map(|item| self.expression(item, arguments.span())).collect();
        Ok(format!("{of}{}({})", name.unraw(), items?.join(", ")))
    }

    fn name(&mut self, name: &Ident) -> Result<String> {
        let is_own = self.of == Kind::Gradient && (name == "gradient" || name == "result");
        let text = if is_own { name.to_string() } else { self.scope.parameter(name)? };
        if !self.uses.contains(&text) {
            self.uses.push(text.clone());
        }
        Ok(text)
    }
}

/// The tokens between commas. A comma at the end is allowed.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',');
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut items: Vec<Vec<TokenTree>> = tokens.split(is_comma).map(<[TokenTree]>::to_vec).collect();
    if items.last().is_some_and(Vec::is_empty) {
        items.pop();
    }
    items
}

fn span(tokens: &[TokenTree]) -> Span {
    tokens.first().map_or_else(Span::call_site, TokenTree::span)
}
