//! `#[kernel]`: reads a function by hand, and writes the entry point for the device and what the host needs for a launch.
//!
//! syn reads functions with its feature `full` only, which this crate must not need. The body is not looked at.

mod checksum;
mod expansion;
mod team_body;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Generics, LitStr, Path, Token, Type, Visibility, bracketed, parenthesized, parse_quote,
};

use crate::errors::Errors;

/// A function that is a kernel.
struct Kernel {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    /// `unsafe`, `const`, `async` or `extern "C"`, which a kernel has not.
    qualifiers: TokenStream,
    name: Ident,
    generics: Generics,
    parameters: Punctuated<Parameter, Token![,]>,
    /// `-> T` and `where …`, which a kernel has not.
    rest: TokenStream,
    body: Group,
}

/// `mut name: Type`.
#[derive(Clone)]
struct Parameter {
    attributes: Vec<Attribute>,
    mutability: Option<Token![mut]>,
    name: Ident,
    colon: Token![:],
    ty: Type,
}

impl Parse for Parameter {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        if input.peek(Token![self]) || input.peek(Token![&]) {
            return Err(
                input.error("found a method\n= help: a kernel is a function; write it outside of the `impl`")
            );
        }
        let mutability = input.parse()?;
        let Ok(name) = name(input) else {
            return Err(
                input.error("found a pattern\n= help: write a name: the host's functions have the same")
            );
        };
        Ok(Self { attributes, mutability, name, colon: input.parse()?, ty: input.parse()? })
    }
}

/// The name of a thread that nobody uses.
const NOBODY: &str = "__interop_thread";

/// Reads a name. `_` is one for the thread only.
fn name(input: ParseStream<'_>) -> syn::Result<Ident> {
    match input.parse::<Option<Token![_]>>()? {
        Some(nobody) => Ok(Ident::new(NOBODY, nobody.span)),
        None => input.parse(),
    }
}

impl ToTokens for Parameter {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attributes, mutability, name, colon, ty } = self;
        tokens.extend(quote!(#(#attributes)* #mutability #name #colon #ty));
    }
}

impl Parse for Kernel {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let visibility = input.parse()?;
        let mut qualifiers = TokenStream::new();
        while !input.peek(Token![fn]) {
            let Ok(token) = input.parse::<TokenTree>() else {
                return Err(input.error("found no function\n= help: write `#[kernel]` before a `fn`"));
            };
            qualifiers.extend([token]);
        }
        input.parse::<Token![fn]>()?;
        let (name, generics) = (input.parse()?, input.parse()?);
        let list;
        parenthesized!(list in input);
        let parameters = Punctuated::parse_terminated(&list)?;
        let mut rest = TokenStream::new();
        loop {
            match input.parse::<TokenTree>() {
                Ok(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                    return Ok(Self {
                        attributes,
                        visibility,
                        qualifiers,
                        name,
                        generics,
                        parameters,
                        rest,
                        body,
                    });
                }
                Ok(token) => rest.extend([token]),
                Err(_) => return Err(input.error("found no body\n= help: a kernel has one: `{ … }`")),
            }
        }
    }
}

/// What is compared of arrays: the words of the attribute, and the constants of the trait `Kernel`.
const COMPARED: [(&str, &str); 3] =
    [("same_shape", "SAME_SHAPE"), ("same_rows", "SAME_ROWS"), ("same_columns", "SAME_COLUMNS")];

/// What is written in the parentheses of the attribute.
enum Choice {
    /// `same_shape(a, b)`: the number of the word in [`COMPARED`], and the arrays.
    Same(usize, Punctuated<Ident, Token![,]>),
    /// `T = [f32, f64]`.
    Types(Ident, Punctuated<Type, Token![,]>),
    /// `crate = "path"`.
    Crate(Path),
}

impl Parse for Choice {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.parse::<Option<Token![crate]>>()?.is_some() {
            input.parse::<Token![=]>()?;
            return input.parse::<LitStr>()?.parse().map(Self::Crate);
        }
        let word: Ident = input.parse()?;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            let types;
            bracketed!(types in input);
            return Ok(Self::Types(word, Punctuated::parse_terminated(&types)?));
        }
        let Some(number) = COMPARED.iter().position(|(name, _)| word == name) else {
            let text = format!(
                "found `{word}`\n= help: `#[kernel]` knows `same_shape(a, b)`, `same_rows(a, b)` and `same_columns(a, b)`: arrays of which a \
                 launch compares the shapes, the first or the last extents; `T = [f32, f64]`: the types of a generic kernel; and \
                 `crate = \"path\"`: where `interop-kernel` is"
            );
            return Err(syn::Error::new(word.span(), text));
        };
        let list;
        parenthesized!(list in input);
        Ok(Self::Same(number, Punctuated::parse_terminated(&list)?))
    }
}

/// What the attribute says.
struct Options {
    krate: Path,
    /// The parameters of which something is compared, by number, for each of [`COMPARED`].
    groups: [Vec<Vec<usize>>; COMPARED.len()],
    /// The types of each generic parameter, in their order.
    types: Vec<(Ident, Vec<Type>)>,
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let read = |options, item| -> syn::Result<_> {
        let choices = Punctuated::<Choice, Token![,]>::parse_terminated.parse2(options)?;
        Ok((choices, syn::parse2::<Kernel>(item)?))
    };
    match read(options, item) {
        Err(error) => error.into_compile_error(),
        Ok((choices, kernel)) => {
            let mut errors = Errors::new();
            let options = kernel.options(choices, &mut errors);
            kernel.check(&mut errors);
            errors.finish().unwrap_or_else(|| kernel.expand(&options))
        }
    }
}

impl Kernel {
    /// The parameters after the thread.
    fn arguments(&self) -> impl Iterator<Item = &Parameter> + Clone {
        self.parameters.iter().skip(1)
    }

    fn options(&self, choices: Punctuated<Choice, Token![,]>, errors: &mut Errors) -> Options {
        let mut options =
            Options { krate: parse_quote!(::interop_kernel), groups: Default::default(), types: Vec::new() };
        let mut number = |name: &Ident| {
            let found = self.arguments().position(|parameter| parameter.name == *name);
            if found.is_none() {
                errors.push(
                    name,
                    format_args!("found no parameter `{name}`"),
                    "name parameters of the kernel",
                );
            }
            found.unwrap_or(0)
        };
        for choice in choices {
            match choice {
                Choice::Crate(path) => options.krate = path,
                Choice::Same(word, names) => {
                    options.groups[word].push(names.iter().map(&mut number).collect());
                }
                Choice::Types(name, types) => options.types.push((name, types.into_iter().collect())),
            }
        }
        self.order_types(&mut options.types, errors);
        options
    }

    /// Orders the lists of types as the generic parameters, of which each has one.
    fn order_types(&self, types: &mut Vec<(Ident, Vec<Type>)>, errors: &mut Errors) {
        let (mut lists, mut is_complete) = (core::mem::take(types), true);
        for parameter in self.generics.type_params() {
            let name = &parameter.ident;
            let found = lists.iter().position(|(listed, types)| listed == name && !types.is_empty());
            if let Some(number) = found {
                types.push(lists.swap_remove(number));
                continue;
            }
            is_complete = false;
            errors.push(
                parameter,
                format_args!("found the type `{name}` without a list: an entry point has one list of types"),
                format_args!(
                    "write `#[kernel({name} = [f32, f64])]`, with the types for which there shall be a kernel"
                ),
            );
        }
        // Else the list may be that of a type which has none.
        if !is_complete {
            return;
        }
        for (name, _) in lists {
            errors.push(
                &name,
                format_args!("found no generic type `{name}`"),
                "name each generic type of the kernel once, with its types",
            );
        }
    }

    /// Refuses a type without a bound in the types of the parameters. The compiler says it once for each use, and names no trait
    /// that the body needs.
    fn check_bounds(&self, errors: &mut Errors) {
        // `where` is refused as a whole, and may have the bound.
        if words(self.rest.clone()).iter().any(|word| word == "where") {
            return;
        }
        let used: Vec<_> =
            self.parameters.iter().flat_map(|parameter| words(parameter.ty.to_token_stream())).collect();
        let is_team = self.parameters.first().is_some_and(|first| is_path_to(&first.ty, &["Team"]));
        for parameter in self.generics.type_params() {
            let name = &parameter.ident;
            if !parameter.bounds.is_empty() || !used.iter().any(|word| name == word) {
                continue;
            }
            let help = if is_team {
                format!("write `{name}: Real`: a team computes with real numbers")
            } else {
                format!(
                    "write `{name}: KernelElement` for a kernel that moves elements, or `{name}: Real` for one that computes with \
                     real numbers"
                )
            };
            let found = format!("found the type `{name}` without a bound: not every type is an element");
            errors.push(parameter, found, help);
        }
    }

    fn check(&self, errors: &mut Errors) {
        if !self.qualifiers.is_empty() {
            let found = format!("found `{}`", self.qualifiers);
            errors.push(
                &self.qualifiers,
                found,
                "write `fn`: `#[kernel]` makes the entry point, and the function is safe",
            );
        }
        self.check_bounds(errors);
        self.check_team(errors);
        if let Some(number) = self.generics.const_params().next() {
            let help = "write one kernel for each number, and call a generic function in it";
            errors.push(number, "found a generic number: an entry point has one", help);
        }
        if let Some(lifetime) = self.generics.lifetimes().next() {
            errors.push(lifetime, "found a lifetime", "write `'_` in the types of the parameters");
        }
        if !self.rest.is_empty() {
            let found = format!("found `{}`", self.rest);
            let help = if words(self.rest.clone()).first().is_some_and(|word| word == "where") {
                "write bounds behind the name of the type, as in `<T: Real>`"
            } else {
                "a kernel returns nothing; let it write to a `ViewMut`"
            };
            errors.push(&self.rest, found, help);
        }
        let help =
            "write `thread: Thread<'_>` in the first place: it knows which elements the thread may write";
        let first = self.parameters.first().map(|thread| &thread.ty);
        let first_is_array = first.is_some_and(|ty| is_path_to(ty, &ARRAYS));
        match first {
            None => errors.push(&self.name, "found a kernel without its thread", help),
            Some(ty) if first_is_array => {
                errors.push(ty, "found an array in the place of the thread", help);
            }
            Some(Type::Reference(reference)) => {
                let help = "write `Thread<'_>`, `BlockThread<'_>` or `Team<'_>`: a kernel owns its thread";
                errors.push(reference, "found a reference in the place of the thread", help);
            }
            Some(_) => {}
        }
        if self.parameters.len() > 13 {
            errors.push(
                &self.name,
                format_args!("found {} parameters", self.parameters.len()),
                "at most 12 after the thread",
            );
        }
        for parameter in self.arguments() {
            if parameter.name == NOBODY {
                let help = "write a name: the host's functions have the same";
                errors.push(&parameter.name, "found `_`", help);
            }
            // A thread in the wrong place is one mistake.
            let is_reported = first_is_array && is_path_to(&parameter.ty, &THREADS);
            if let Some((found, help)) = refusal(&parameter.ty).filter(|_| !is_reported) {
                errors.push(&parameter.ty, format_args!("found {found} as `{}`", parameter.name), help);
            }
        }
    }
}

/// The name of an item or a parameter as PTX and messages have it.
fn text_of(name: &Ident) -> String {
    name.unraw().to_string()
}

/// Returns what a type is that no parameter has, and what to write instead. The compiler refuses all others with the message of
/// the trait `Parameter`.
fn refusal(ty: &Type) -> Option<(String, &'static str)> {
    let Type::Path(path) = ty else {
        return match ty {
            Type::Reference(_) | Type::Slice(_) => Some(("a reference".into(), OF_HOST)),
            Type::Ptr(_) => Some((
                "a pointer".into(),
                "write `View<'_, T, N>`: it knows its shape, and a launch waits for it",
            )),
            Type::Tuple(_) => Some(("a tuple".into(), "write one parameter for each of its members")),
            _ => None,
        };
    };
    let words = words(path.to_token_stream());
    let (word, help) = REFUSED.iter().find(|(word, _)| words.iter().any(|found| found == word))?;
    Some((format!("`{word}`"), help))
}

/// What to write for memory of the host's program.
const OF_HOST: &str = "write `View<'_, T, N>` to read an array, and `ViewMut<'_, T, N>` to write one; `scope.read` and `scope.write` of the \
                       host make them";

/// Types that are no parameters and no elements.
const REFUSED: [(&str, &str); 13] = [
    ("Thread", "write it in the first place"),
    ("BlockThread", "write it in the first place"),
    ("Team", "write it in the first place"),
    ("Vec", OF_HOST),
    ("HostVec", OF_HOST),
    ("Lease", OF_HOST),
    ("LeaseMut", OF_HOST),
    ("bool", "write `u8`: a launch passes bytes, and memory of another library may hold any byte"),
    ("usize", "write `u64`, which has one size on the host and on the device"),
    ("isize", "write `i64`, which has one size on the host and on the device"),
    ("char", "write `u32`: not every number is a `char`"),
    ("u128", "write two of 64 bits"),
    ("i128", "write two of 64 bits"),
];

/// Returns the words in a type, at any depth.
fn words(tokens: TokenStream) -> Vec<String> {
    let words = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => words(group.stream()),
        TokenTree::Ident(word) => vec![word.to_string()],
        _ => Vec::new(),
    });
    words.collect()
}

/// The names of the parameters with arrays.
const ARRAYS: [&str; 3] = ["View", "ViewMut", "Elementwise"];

/// The names of the first parameter.
const THREADS: [&str; 3] = ["Thread", "BlockThread", "Team"];

/// Those that are no team.
const SINGLE_THREADS: [&str; 2] = ["Thread", "BlockThread"];

/// Whether this is a path to one of these names.
fn is_path_to(ty: &Type, names: &[&str]) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

#[cfg(test)]
mod tests {
    use super::expand;
    use quote::quote;

    #[test]
    fn every_path_begins_with_that_of_the_crate() {
        let item = quote!(
            fn add(thread: Thread<'_>, to: ViewMut<'_, f32, 1>, from: View<'_, f32, 1>) {}
        );
        let text = expand(quote!(crate = "core::kernel", same_shape(to, from)), item.clone()).to_string();
        assert!(text.contains("core :: kernel :: Arguments") && !text.contains("interop_kernel"), "{text}");
        assert!(expand(quote!(), item).to_string().contains(":: interop_kernel :: Arguments"));
    }

    /// The path may lead to any module. A trait of another crate has no unsafe function of this name.
    #[test]
    fn the_only_unsafe_block_names_a_function_of_a_trait() {
        let text = expand(
            quote!(),
            quote!(
                fn add(thread: Thread<'_>, by: f32) {}
            ),
        )
        .to_string();
        let call = "unsafe { < Thread < '_ > as :: interop_kernel :: FirstParameter > :: __at_entry_point :: < (f32 ,) > () }";
        assert_eq!((text.matches("unsafe {").count(), text.matches(call).count()), (1, 1), "{text}");
    }

    #[test]
    fn a_device_finds_what_it_says_about_methods_of_std() {
        let text = expand(
            quote!(),
            quote!(
                fn add(thread: Thread<'_>) {}
            ),
        )
        .to_string();
        let (device, host) = text.split_once("cfg (not (target_arch").expect("both");
        let import = ":: interop_kernel :: __private :: MethodsOfStd as _ ;";
        assert!(device.contains(import) && !host.contains(import), "{text}");
    }

    /// `allow` is an error where the lint is forbidden.
    #[test]
    fn nothing_is_allowed_that_a_crate_may_forbid() {
        let text = expand(
            quote!(),
            quote!(
                fn add(thread: Thread<'_>, by: f32) {}
            ),
        )
        .to_string();
        for lint in ["unsafe_code", "missing_docs", "dead_code", "non_camel_case_types"] {
            assert!(!text.contains(lint), "{lint}: {text}");
        }
    }
}
