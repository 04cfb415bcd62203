//! `#[kernel]`: reads a function by hand, and writes the entry point for the device and what the host needs for a launch.
//!
//! syn reads functions with its feature `full` only, which this crate must not need. The body is not looked at.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, GenericArgument, Generics, Index, Lifetime, LitInt, PathArguments, Token, Type, Visibility,
    parenthesized,
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

/// `same_shape(a, b)`.
struct SameShape(Punctuated<Ident, Token![,]>);

impl Parse for SameShape {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let word: Ident = input.parse()?;
        if word != "same_shape" {
            let text = format!(
                "found `{word}`\n= help: `#[kernel]` knows `same_shape(a, b)`: arrays of which a launch compares the shapes"
            );
            return Err(syn::Error::new(word.span(), text));
        }
        let list;
        parenthesized!(list in input);
        Punctuated::parse_terminated(&list).map(Self)
    }
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let read = |options, item| -> syn::Result<_> {
        let options = Punctuated::<SameShape, Token![,]>::parse_terminated.parse2(options)?;
        Ok((options, syn::parse2::<Kernel>(item)?))
    };
    match read(options, item) {
        Err(error) => error.into_compile_error(),
        Ok((options, kernel)) => {
            let mut errors = Errors::new();
            let groups = kernel.groups(&options, &mut errors);
            kernel.check(&mut errors);
            errors.finish().unwrap_or_else(|| kernel.expand(&groups))
        }
    }
}

impl Kernel {
    /// The parameters after the thread.
    fn arguments(&self) -> impl Iterator<Item = &Parameter> + Clone {
        self.parameters.iter().skip(1)
    }

    /// Returns the parameters that must have one shape, by number.
    fn groups(&self, options: &Punctuated<SameShape, Token![,]>, errors: &mut Errors) -> Vec<Vec<LitInt>> {
        let mut number = |name: &Ident| {
            let found = self.arguments().position(|parameter| parameter.name == *name);
            if found.is_none() {
                errors.push(
                    name,
                    format_args!("found no parameter `{name}`"),
                    "name parameters of the kernel",
                );
            }
            LitInt::new(&found.unwrap_or(0).to_string(), name.span())
        };
        options.iter().map(|SameShape(names)| names.iter().map(&mut number).collect()).collect()
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
        if self.generics.type_params().next().is_some() || self.generics.const_params().next().is_some() {
            let help = "write one kernel for each type, and call a generic function in it";
            errors.push(&self.generics.params, "found generics: an entry point has one list of types", help);
        } else if !self.generics.params.is_empty() {
            errors.push(
                &self.generics.params,
                "found a lifetime",
                "write `'_` in the types of the parameters",
            );
        }
        if !self.rest.is_empty() {
            let found = format!("found `{}`", self.rest);
            errors.push(&self.rest, found, "a kernel returns nothing; let it write to a `ViewMut`");
        }
        if self.parameters.is_empty() {
            let help =
                "write `thread: Thread<'_>` in the first place: it knows which elements the thread may write";
            errors.push(&self.name, "found a kernel without its thread", help);
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
            if let Some((found, help)) = refusal(&parameter.ty) {
                errors.push(&parameter.ty, format_args!("found {found} as `{}`", parameter.name), help);
            }
        }
    }

    fn expand(&self, groups: &[Vec<LitInt>]) -> TokenStream {
        let Self { attributes, visibility, name, parameters, body, .. } = self;
        let (device, host) = (self.for_device(), self.for_host(groups));
        quote! {
            #device
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::needless_pass_by_value, clippy::type_complexity, clippy::used_underscore_binding)]
            #(#attributes)*
            #visibility fn #name(#parameters) #body
            #host
        }
    }

    /// The entry point.
    fn for_device(&self) -> TokenStream {
        let Self { attributes, visibility, name, parameters, body, .. } = self;
        // A parameter may have the name of the kernel.
        let own = |index| Ident::new(&format!("__interop_parameter_{index}"), Span::mixed_site());
        let names: Vec<_> = (1..parameters.len()).map(own).collect();
        let types = self.arguments().map(|parameter| &parameter.ty);
        let thread = Ident::new("__interop_thread", Span::mixed_site());
        quote! {
            #[cfg(target_arch = "nvptx64")]
            #[allow(missing_docs, unsafe_code, unreachable_pub, improper_ctypes_definitions, clippy::used_underscore_binding)]
            #[unsafe(no_mangle)]
            #visibility extern "ptx-kernel" fn #name(#(#names: #types),*) {
                #(#attributes)*
                #[inline(always)]
                fn #name(#parameters) #body
                // SAFETY: each thread of a launch runs the entry point once.
                let #thread = unsafe { ::interop_kernel::__private::this_thread() };
                #name(::interop_kernel::__private::first_parameter(#thread), #(#names),*)
            }
        }
    }

    /// The type of the kernel's name.
    fn for_host(&self, groups: &[Vec<LitInt>]) -> TokenStream {
        let Self { visibility, name, parameters, .. } = self;
        let names: Vec<_> = self.arguments().map(|parameter| &parameter.name).collect();
        let types: Vec<_> = self.arguments().map(|parameter| with_lifetime(&parameter.ty)).collect();
        let launched =
            types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as ::interop_kernel::Parameter>::Launched));
        let thread = parameters.first().map(|thread| &thread.ty);
        // A parameter may have the name of the kernel. A constant of this name would be a pattern, in spite of the span.
        let [own_thread, own, size] = ["__interop_thread", "__interop_parameters", "__interop_size"]
            .map(|name| Ident::new(name, Span::mixed_site()));
        let numbers = (0..names.len()).map(Index::from);
        let texts = names.iter().map(|name| name.to_string().trim_start_matches("r#").to_owned());
        let entry = name.to_string().trim_start_matches("r#").to_owned();
        let docs = format!(
            "The kernel [`{name}`](fn@{name}) for the host: [`run`](Self::run) on the CPU, and [`with`](Self::with) for a launch."
        );
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            #[doc = #docs]
            #[allow(non_camel_case_types)]
            #[derive(Debug)]
            #visibility enum #name {}

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(unsafe_code, clippy::used_underscore_binding)]
            unsafe impl ::interop_kernel::Kernel for #name {
                const NAME: &'static ::core::primitive::str = #entry;
                const PARAMETERS: &'static [&'static ::core::primitive::str] = &[#(#texts),*];
                const SAME_SHAPE: &'static [&'static [::core::primitive::usize]] = &[#(&[#(#groups),*]),*];
                const NEEDS_BLOCK: ::core::primitive::bool = ::interop_kernel::__private::needs_block::<#thread>();
                type Parameters<'a> = (#(#types,)*);

                fn call(#own_thread: ::interop_kernel::Thread<'_>, #own: Self::Parameters<'_>) {
                    #name(::interop_kernel::__private::first_parameter(#own_thread), #(#own.#numbers),*)
                }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(dead_code, clippy::extra_unused_lifetimes, clippy::too_many_arguments, clippy::type_complexity, clippy::used_underscore_binding)]
            impl #name {
                /// Runs the kernel on the CPU, one thread of the launch after the other. The threads of a block run at the same time if
                /// the kernel has a `BlockThread`.
                #visibility fn run<'a>(#size: ::interop_kernel::LaunchSize, #(#names: #types),*) {
                    ::interop_kernel::__private::run::<Self>(#size, (#(#names,)*));
                }

                /// Runs the kernel on the CPU with one thread of the system for each thread of a block, block after block. Miri
                /// then finds races between them.
                #visibility fn run_in_threads<'a>(#size: ::interop_kernel::LaunchSize, #(#names: #types),*) {
                    ::interop_kernel::__private::run_in_threads::<Self>(#size, (#(#names,)*));
                }

                /// Returns the arguments of a launch.
                #visibility fn with<'a>(#(#names: #launched),*) -> ::interop_kernel::Arguments<'a, Self> {
                    ::interop_kernel::Arguments::new((#(#names,)*))
                }
            }
        }
    }
}

/// Returns what a type is that no parameter has, and what to write instead. The compiler refuses all others with the message of
/// the trait `Parameter`.
fn refusal(ty: &Type) -> Option<(String, &'static str)> {
    let Type::Path(path) = ty else {
        return match ty {
            Type::Reference(_) | Type::Slice(_) => Some((
                "a reference".into(),
                "write `View<'_, T, N>` to read an array, and `ViewMut<'_, T, N>` to write one",
            )),
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

/// Types that are no parameters and no elements.
const REFUSED: [(&str, &str); 6] = [
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

/// Names the lifetime of the arguments `'a`, also where a view has none: a type outside of a function needs one.
fn with_lifetime(ty: &Type) -> Type {
    let mut ty = ty.clone();
    if let Type::Path(path) = &mut ty {
        if let Some(last) = path.path.segments.last_mut() {
            let is_view = ["View", "ViewMut", "Elementwise"].iter().any(|view| last.ident == view);
            if let PathArguments::AngleBracketed(list) = &mut last.arguments {
                let has_lifetime =
                    list.args.iter().any(|argument| matches!(argument, GenericArgument::Lifetime(_)));
                if is_view && !has_lifetime {
                    let own = Lifetime::new("'_", Span::call_site());
                    list.args.insert(0, GenericArgument::Lifetime(own));
                }
            }
        }
    }
    let tokens = rename(ty.to_token_stream());
    syn::parse2(tokens).unwrap_or(ty)
}

/// Replaces `'_` by `'a` everywhere.
fn rename(tokens: TokenStream) -> TokenStream {
    let mut is_lifetime = false;
    let renamed = tokens.into_iter().map(|token| {
        let was_lifetime = core::mem::replace(
            &mut is_lifetime,
            matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '\''),
        );
        match token {
            TokenTree::Ident(name) if was_lifetime && name == "_" => Ident::new("a", name.span()).into(),
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), rename(group.stream()));
                inner.set_span(group.span());
                inner.into()
            }
            token => token,
        }
    });
    renamed.collect()
}
