//! Mistakes in the body of a kernel of a team of which the compiler says too little, or too much.
//!
//! Rows of `f64` are four errors. Of a closure without `move` it says only that a variable does not live long enough (E0597). Nothing may
//! be refused that the compiler accepts: a closure needs no `move` for constants, or for what is behind a reference. So refused is one
//! that names a parameter of the kernel, or a number that a row has returned. In a body with a `match` or a macro, which bind names in
//! other ways than `let` and `for`, nothing is refused.

use core::ops::Range;
use std::collections::HashSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::Type;

use super::{Kernel, is_path_to, words};
use crate::errors::Errors;

/// The methods of a row that take functions.
const COLLECTIVES: [&str; 7] = ["sum", "sums", "max", "argmax", "reduce", "write", "change"];

/// The methods of a row that return a number, and those of a number.
const NUMBERS: [&str; 3] = ["sum", "max", "columns"];
const OF_NUMBERS: [&str; 7] = ["sqrt", "exp", "ln", "recip", "abs", "max", "min"];

/// Elements of kernels that rows do not have.
const NO_ROWS: [&str; 8] = ["f64", "i8", "i16", "i32", "i64", "u16", "u32", "u64"];

impl Kernel {
    /// Refuses rows of other elements than a team computes with, and closures without `move` that borrow a variable.
    pub(super) fn check_team(&self, errors: &mut Errors) {
        let mut parameters = self.parameters.iter();
        let Some(team) = parameters.next().filter(|first| is_path_to(&first.ty, &["Team"])) else { return };
        let body = Body::read(self.body.stream());
        let team = team.name.to_string();
        let Some(bound) = body.bound_names(&team) else { return };
        self.check_rows(&body, &team, &bound, errors);
        let values = parameters.filter(|parameter| matches!(parameter.ty, Type::Path(_)));
        let mut values: HashSet<String> = values.map(|parameter| parameter.name.to_string()).collect();
        values.retain(|name| !bound.iter().any(|(bound, _)| bound == name));
        let (rows, others): (Vec<_>, Vec<_>) = bound.iter().partition(|(_, at)| body.is_rows(*at, &team));
        let rows: Vec<_> = rows.into_iter().map(|(name, _)| &**name).collect();
        if others.iter().any(|(name, _)| rows.contains(&&**name)) {
            return;
        }
        for (name, at) in &others {
            if others.iter().filter(|(other, _)| other == name).count() == 1
                && body.is_number(*at, &rows, &values)
            {
                values.insert(name.clone());
            }
        }
        for (closure, used) in body.closures(&rows, &values) {
            let found = format!("found a closure without `move` that uses `{used}`");
            let help =
                "write `move |…| …`: a function of the elements of a row borrows no variable of the kernel";
            errors.push(closure, found, help);
        }
    }

    fn check_rows(&self, body: &Body, team: &str, bound: &[(String, usize)], errors: &mut Errors) {
        for parameter in self.arguments() {
            let name = parameter.name.to_string();
            let is_rows = |at: usize| body.has(at, &[team, ".", "rows", "(", "&", &name, ")"]);
            let words = words(parameter.ty.to_token_stream());
            let Some(element) = words.iter().find(|word| NO_ROWS.iter().any(|no_rows| word == no_rows))
            else {
                continue;
            };
            if !bound.iter().any(|(bound, _)| *bound == name) && bound.iter().any(|(_, at)| is_rows(*at)) {
                let help = "rows have `f32`, `f16` or `bf16` of `interop_kernel::half`, or `u8` to read; convert others first";
                errors.push(&parameter.ty, format_args!("found rows of `{element}`"), help);
            }
        }
    }
}

/// The tokens of a body one after the other, with those that open and close groups.
struct Body(Vec<(String, TokenStream)>);

impl Body {
    fn read(tokens: TokenStream) -> Self {
        let mut words = Vec::new();
        for token in tokens {
            let TokenTree::Group(group) = token else {
                words.push((token.to_string(), token.into()));
                continue;
            };
            let (open, close) = match group.delimiter() {
                Delimiter::Parenthesis => ("(", ")"),
                Delimiter::Brace => ("{", "}"),
                Delimiter::Bracket => ("[", "]"),
                Delimiter::None => ("", ""),
            };
            words.push((open.to_owned(), TokenStream::new()));
            words.extend(Self::read(group.stream()).0);
            words.push((close.to_owned(), TokenStream::new()));
        }
        Self(words)
    }

    /// The word at an index, or nothing.
    fn word(&self, at: usize) -> &str {
        self.0.get(at).map_or("", |(word, _)| word)
    }

    /// Whether these words are there from an index on.
    fn has(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(number, word)| self.word(at + number) == *word)
    }

    /// Returns the end of what begins at an index: the first of these words in no group, or the end of the group around it.
    fn end(&self, from: usize, words: &[&str]) -> usize {
        let mut depth = 0_usize;
        for at in from..self.0.len() {
            match self.word(at) {
                word if depth == 0 && (words.contains(&word) || [")", "]", "}"].contains(&word)) => {
                    return at;
                }
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        self.0.len()
    }

    /// Returns each name that is bound, and where its value begins. `None` if the body binds names in a way that is not read here, or
    /// the name of the team.
    fn bound_names(&self, team: &str) -> Option<Vec<(String, usize)>> {
        let mut bound = Vec::new();
        for at in 0..self.0.len() {
            let name = at + 1 + usize::from(self.word(at + 1) == "mut");
            match self.word(at) {
                "!" if ["(", "[", "{"].contains(&self.word(at + 1)) => return None,
                // Neither a pattern nor the condition of an `if`.
                "let" if at == 0 || [";", "{", "}"].contains(&self.word(at - 1)) => {
                    let equals = self.end(name, &["=", ";"]);
                    let is_name = equals == name + 1 || self.word(name + 1) == ":";
                    // `move` is not the cure for a closure that changes a variable.
                    let is_value = self.word(equals) == "=" && name == at + 1;
                    let value = if is_value { equals + 1 } else { usize::MAX };
                    bound.push((is_name.then(|| self.word(name).to_owned())?, value));
                }
                "for" if self.word(name + 1) == "in" => bound.push((self.word(name).to_owned(), name + 2)),
                "let" | "for" | "match" | "fn" => return None,
                _ => {}
            }
        }
        bound.iter().all(|(name, _)| name != team).then_some(bound)
    }

    /// Whether a `for` takes the rows of the team here.
    fn is_rows(&self, at: usize, team: &str) -> bool {
        self.word(at.wrapping_sub(1)) == "in" && self.has(at, &[team, ".", "rows", "("])
    }

    /// Whether the value at an index is a number: a computation with values and with the results of rows.
    fn is_number(&self, from: usize, rows: &[&str], values: &HashSet<String>) -> bool {
        let (mut at, end) = (from, self.end(from, &[";"]));
        while at < end {
            let word = self.word(at);
            let is_known = match word {
                "+" | "-" | "*" | "/" | "(" | ")" | "." => true,
                _ if self.word(at - 1) == "." => OF_NUMBERS.contains(&word),
                _ if rows.contains(&word) && NUMBERS.contains(&self.word(at + 2)) => {
                    // The end of the call.
                    at = self.end(at + 4, &[]);
                    true
                }
                _ => values.contains(word) || word.starts_with(|first: char| first.is_ascii_digit()),
            };
            if !is_known {
                return false;
            }
            at += 1;
        }
        from < end
    }

    /// Returns the closures without `move` in the calls of rows, each with one of the values that it names.
    fn closures(&self, rows: &[&str], values: &HashSet<String>) -> Vec<(TokenStream, String)> {
        let mut found = Vec::new();
        for at in 0..self.0.len() {
            let is_call =
                rows.contains(&self.word(at)) && self.has(at + 1, &["."]) && self.has(at + 3, &["("]);
            if !is_call || !COLLECTIVES.contains(&self.word(at + 2)) {
                continue;
            }
            let (mut argument, call) = (at + 4, self.end(at + 4, &[]));
            while argument < call {
                let mut end = self.end(argument, &[","]);
                if self.word(argument) == "|" {
                    let body = self.end(argument + 1, &["|"]) + 1;
                    end = self.end(body, &[","]);
                    let used = self.used(argument..body, body..end, values);
                    found.extend(used.map(|name| (self.tokens(argument..body), name)));
                }
                argument = end + 1;
            }
        }
        found
    }

    /// Returns a value that a closure names, unless a `let` or a closure in it has names of its own.
    fn used(&self, parameters: Range<usize>, body: Range<usize>, values: &HashSet<String>) -> Option<String> {
        if body.clone().any(|at| ["|", "let"].contains(&self.word(at))) {
            return None;
        }
        let is_parameter = |name: &str| parameters.clone().any(|at| self.word(at) == name);
        let is_value = |at: &usize| {
            let (before, after) = (self.word(at - 1), self.word(at + 1));
            let is_path = [".", ":"].contains(&before) || after == ":";
            values.contains(self.word(*at)) && !is_parameter(self.word(*at)) && !is_path
        };
        body.clone().find(is_value).map(|at| self.word(at).to_owned())
    }

    fn tokens(&self, range: Range<usize>) -> TokenStream {
        self.0[range].iter().map(|(_, tokens)| tokens.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use crate::kernel::expand;

    fn message(body: &str) -> Option<String> {
        let body: proc_macro2::TokenStream = body.parse().expect("tokens");
        let item = quote!(fn k(mut team: Team<'_>, x: View<'_, f32, 2>, weight: View<'_, f32, 1>, eps: f32) { #body });
        let text = expand(quote!(), item).to_string();
        let (_, found) = text.split_once("found a closure without `move` that uses `")?;
        found.split('`').next().map(str::to_owned)
    }

    fn in_a_row(code: &str) -> String {
        format!("for row in team.rows(&x) {{ {code} }}")
    }

    #[test]
    fn a_closure_that_borrows_a_variable_is_refused() {
        for (code, used) in [
            ("row.sum(&x, |x| x + eps);", "eps"),
            ("let max = row.max(&x, |x| x); row.sum(&x, |x| (x - max).exp());", "max"),
            (
                "let mean = row.sum(&x, |x| x) / row.columns(); row.write(&mut out, (&x, &x), |(a, b)| a * b - mean);",
                "mean",
            ),
            (
                "let s = (row.sum(&x, move |x| x * eps) + eps).sqrt().recip(); row.change(&mut out, &x, |x, y| x * y * s);",
                "s",
            ),
            ("if eps > 0.0 { row.set(&mut out, row.sum(&x, |x| x * eps)); }", "eps"),
            ("row.reduce(&x, [0.0], move |[s], x| [s + x], |[a], [b]| [a + b * eps]);", "eps"),
            ("row.sum(&x, |y| y * weight.get([0]));", "weight"),
        ] {
            assert_eq!(message(&in_a_row(code)).as_deref(), Some(used), "{code}");
        }
    }

    #[test]
    fn rows_of_other_elements_are_refused() {
        let expanded = |ty: &str, body: &str| {
            let (ty, body): (proc_macro2::TokenStream, proc_macro2::TokenStream) =
                (ty.parse().expect("a type"), body.parse().expect("tokens"));
            expand(quote!(), quote!(fn k(mut team: Team<'_>, x: #ty, y: View<'_, f32, 2>) { #body }))
                .to_string()
        };
        let rows = "for row in team.rows(&x) { row.number(); }";
        assert!(expanded("View<'_, f64, 2>", rows).contains("found rows of `f64`"));
        for (ty, body) in [
            ("View<'_, f32, 2>", rows),
            ("View<'_, f64, 2>", "for row in team.rows(&y) { x.get([0, 0]); }"),
            ("View<'_, f64, 2>", "let x = &y; for row in team.rows(&x) { row.number(); }"),
        ] {
            assert!(!expanded(ty, body).contains("found rows"), "{ty}: {body}");
        }
    }

    #[test]
    fn what_the_compiler_accepts_is_not_refused() {
        for code in [
            "row.sum(&x, move |x| x + eps);",
            "row.sum(&x, |eps| eps);",
            "row.sum(&x, |x| x * EPS + self::eps(x) + point.eps);",
            "row.sum(&x, |x| { let eps = 2.0 * x; eps });",
            "let eps = &TABLE; row.sum(&x, |x| x * eps[0]);",
            "let max = &TABLE; let y = max; row.sum(&x, |x| x * y[0]);",
            "let y = table(eps); row.sum(&x, |x| x * y[0]);",
            "let mut last = 0.0; row.sum(&x, |x| { last = x; x });",
            "let y; y = &TABLE; row.sum(&x, |x| x * y[0]);",
            "let mean = row.sum(&x, |x| x); let mean = &TABLE[mean as usize]; row.sum(&x, |x| x - mean);",
            "let (eps, _) = (&TABLE, 0); row.sum(&x, |x| x * eps[0]);",
            "if let Some(eps) = TABLE.first() { row.sum(&x, |x| x * eps); }",
            "match TABLE.first() { Some(eps) => row.sum(&x, |x| x * eps), None => 0.0 };",
            "for eps in &TABLE { row.sum(&x, |x| x * eps); }",
            "bind!(eps); row.sum(&x, |x| x * eps);",
            "for row in other { row.sum(&x, |x| x * eps); }",
            "let row = Other; row.sum(&x, |x| x * eps);",
            "other.sum(&x, |x| x * eps);",
            "row.sum(&x, |x| (|eps| eps * x)(2.0));",
            "row.sum(&x, |x| Point { eps: x }.eps);",
        ] {
            assert_eq!(message(&in_a_row(code)), None, "{code}");
        }
        assert_eq!(
            message("let mut team = other; for row in team.rows(&x) { row.sum(&x, |x| x * eps); }"),
            None
        );
    }
}
