//! `#[kernel]`: reads a function by hand, and writes the entry point for the device and what the host needs for a launch.
//!
//! syn reads functions with its feature `full` only, which this crate must not need. The body is not looked at.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, GenericArgument, Generics, Index, Lifetime, LitStr, Path, PathArguments, Token, Type,
    Visibility, bracketed, parenthesized, parse_quote,
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

/// A kernel for one choice of types.
struct Entry<'k> {
    name: String,
    /// A type for each generic parameter.
    types: Vec<(&'k Ident, &'k Type)>,
}

impl Options {
    /// Returns the entry points of a kernel: one for each choice of types.
    fn entries<'k>(&'k self, name: &Ident) -> Vec<Entry<'k>> {
        let mut entries = vec![Entry { name: text_of(name), types: Vec::new() }];
        for (parameter, types) in &self.types {
            let with = |entry: &Entry<'k>, ty: &'k Type| -> Entry<'k> {
                Entry {
                    name: format!("{}_{}", entry.name, type_in_name(ty)),
                    types: entry.types.iter().copied().chain([(parameter, ty)]).collect(),
                }
            };
            entries = entries
                .iter()
                .flat_map(|entry| types.iter().map(|ty| with(entry, ty)).collect::<Vec<_>>())
                .collect();
        }
        entries
    }
}

/// Returns a type as the name of an entry point has it: `bf16` of `half::bf16`.
fn type_in_name(ty: &Type) -> String {
    if let Type::Path(path) = ty {
        if let Some(last) = path.path.segments.last().filter(|last| last.arguments.is_none()) {
            return text_of(&last.ident);
        }
    }
    let text: String = ty
        .to_token_stream()
        .to_string()
        .chars()
        .map(|letter| if letter.is_alphanumeric() { letter } else { ' ' })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join("_")
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

    fn check(&self, errors: &mut Errors) {
        if !self.qualifiers.is_empty() {
            let found = format!("found `{}`", self.qualifiers);
            errors.push(
                &self.qualifiers,
                found,
                "write `fn`: `#[kernel]` makes the entry point, and the function is safe",
            );
        }
        if let Some(number) = self.generics.const_params().next() {
            let help = "write one kernel for each number, and call a generic function in it";
            errors.push(number, "found a generic number: an entry point has one", help);
        }
        if let Some(lifetime) = self.generics.lifetimes().next() {
            errors.push(lifetime, "found a lifetime", "write `'_` in the types of the parameters");
        }
        if !self.rest.is_empty() {
            let found = format!("found `{}`", self.rest);
            errors.push(&self.rest, found, "a kernel returns nothing; let it write to a `ViewMut`");
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

    /// All functions of the host are `#[inline]`, so that only a crate that runs kernels on the CPU compiles them: that takes
    /// seconds.
    fn expand(&self, options: &Options) -> TokenStream {
        let Self { attributes, visibility, name, generics, parameters, body, .. } = self;
        let (device, host) = (self.for_device(options), self.for_host(options));
        quote! {
            #device
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments, clippy::type_complexity, clippy::used_underscore_binding)]
            #(#attributes)*
            #[inline]
            #visibility fn #name #generics(#parameters) #body
            #host
        }
    }

    /// The entry points.
    fn for_device(&self, options: &Options) -> TokenStream {
        let Self { attributes, name, generics, parameters, body, .. } = self;
        let entries = options.entries(name);
        let entries = entries.iter().map(|entry| self.entry(entry, &options.krate));
        let krate = &options.krate;
        quote! {
            #[cfg(target_arch = "nvptx64")]
            const _: () = {
                use #krate::__private::MethodsOfStd as _;

                #[allow(clippy::used_underscore_binding, clippy::needless_pass_by_value, clippy::too_many_arguments)]
                #(#attributes)*
                #[inline(always)]
                fn #name #generics(#parameters) #body
                #(#entries)*
            };
        }
    }

    /// An entry point, and the text of its parameters.
    fn entry(&self, entry: &Entry<'_>, krate: &Path) -> TokenStream {
        // A parameter may have the name of the kernel.
        let own = |index| Ident::new(&format!("__interop_parameter_{index}"), Span::mixed_site());
        let names: Vec<_> = (1..self.parameters.len()).map(own).collect();
        let types: Vec<_> = self.arguments().map(|parameter| &parameter.ty).collect();
        let (thread, name) = (self.parameters.first().map(|thread| &thread.ty), &self.name);
        let (layout, export) = (format!("interop_layout_{}", entry.name), &entry.name);
        let texts = self.arguments().map(|parameter| text_of(&parameter.name));
        let aliases = entry.aliases();
        quote! {
            const _: () = {
                #aliases
                const __INTEROP_LAYOUT: #krate::__private::Layout =
                    #krate::__private::Layout::of_kernel::<(#(#types,)*)>(&[#(#texts),*]);
                #[unsafe(export_name = #layout)]
                static __INTEROP_TEXT: [::core::primitive::u8; __INTEROP_LAYOUT.len()] = __INTEROP_LAYOUT.to_bytes();

                #[doc = "The entry point."]
                #[allow(improper_ctypes_definitions, clippy::used_underscore_binding)]
                #[unsafe(export_name = #export)]
                extern "ptx-kernel" fn __interop_entry(#(#names: #types),*) {
                    // SAFETY: each thread of a launch runs the entry point once. The trait is that of `interop-kernel`, whatever the
                    // path leads to: no other has an unsafe function of this name.
                    #name(unsafe { <#thread as #krate::FirstParameter>::__at_entry_point::<(#(#types,)*)>() }, #(#names),*)
                }
            };
        }
    }

    /// The type of the kernel's name, and for which types there is an entry point.
    fn declared(&self, options: &Options) -> TokenStream {
        let (Self { visibility, name, .. }, krate) = (self, &options.krate);
        // Written by the macro, so that no lint is about its style. An `allow` would be an error where the lint is forbidden.
        let mut type_name = name.clone();
        type_name.set_span(name.span().resolved_at(Span::call_site()));
        let docs = format!(
            "The kernel [`{name}`](fn@{name}) for the host: [`run`](Self::run) on the CPU, and [`with`](Self::with) for a launch."
        );
        let types: Vec<_> = options.types.iter().map(|(ty, _)| ty).collect();
        let (list, variant) = if types.is_empty() {
            (None, None)
        } else {
            let never =
                quote!(::core::convert::Infallible, ::core::marker::PhantomData<fn() -> (#(#types,)*)>);
            (Some(quote!(<#(#types),*>)), Some(quote!(#[doc(hidden)] __Types(#never))))
        };
        let entries = options.entries(name);
        let entries = entries.iter().map(|entry| {
            let (aliases, text) = (entry.aliases(), &entry.name);
            // The aliases have the names of the types.
            let compiled = list.as_ref().map(|list| {
                quote! {
                    unsafe impl #krate::Compiled for #name #list {
                        const NAME: &'static ::core::primitive::str = #text;
                    }
                }
            });
            quote! {
                #[cfg(not(target_arch = "nvptx64"))]
                const _: () = {
                    #aliases
                    #compiled
                    const _: () = #krate::__private::assert_beside::<#name #list>();
                };
            }
        });
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            #[doc = #docs]
            #[derive(Debug)]
            #visibility enum #type_name #list {
                #variant
            }

            #(#entries)*
        }
    }

    /// What the host calls and launches.
    fn for_host(&self, options: &Options) -> TokenStream {
        let Options { krate, groups, .. } = options;
        let Self { visibility, name, generics, parameters, .. } = self;
        let names: Vec<_> = self.arguments().map(|parameter| &parameter.name).collect();
        let types: Vec<_> = self.arguments().map(|parameter| with_lifetime(&parameter.ty)).collect();
        let launched =
            types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #krate::Parameter>::Launched));
        let thread = parameters.first().map(|thread| &thread.ty);
        let views = groups.iter().flatten().flatten().filter_map(|number| self.arguments().nth(*number));
        let views = views.map(|view| &view.ty);
        let compared = COMPARED.iter().zip(groups).filter(|(_, groups)| !groups.is_empty()).map(
            |((_, constant), groups)| {
                let constant = Ident::new(constant, Span::call_site());
                quote! {
                    const #constant: &'static [&'static [::core::primitive::usize]] = &[#(&[#(#groups),*]),*];
                }
            },
        );
        // A parameter may have the name of the kernel. A constant of this name would be a pattern, in spite of the span.
        let [own_thread, own, size, error] =
            ["__interop_thread", "__interop_parameters", "__interop_size", "InteropError"]
                .map(|name| Ident::new(name, Span::mixed_site()));
        let numbers = (0..names.len()).map(Index::from);
        let texts = names.iter().map(|name| text_of(name));
        let tried =
            types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #krate::Parameter>::Tried<#error>));
        let (all, of_types, _) = generics.split_for_impl();
        let turbofish = of_types.as_turbofish();
        let (entry, bound) = if options.types.is_empty() {
            (text_of(name).into_token_stream(), None)
        } else {
            (quote!(<Self as #krate::Compiled>::NAME), Some(quote!(where Self: #krate::Compiled)))
        };
        let declared = self.declared(options);
        quote! {
            #declared

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::used_underscore_binding)]
            unsafe impl #all #krate::Kernel for #name #of_types #bound {
                const NAME: &'static ::core::primitive::str = #entry;
                const PARAMETERS: &'static [&'static ::core::primitive::str] = &[#(#texts),*];
                #(#compared)*
                const NEEDS_BLOCK: ::core::primitive::bool = {
                    #(#krate::__private::assert_view::<#views>();)*
                    #krate::__private::needs_block::<#thread>()
                };
                const IS_TEAM: ::core::primitive::bool = #krate::__private::is_team::<#thread>();
                type Parameters<'a> = (#(#types,)*);

                #[inline]
                fn call(#own_thread: #krate::Thread<'_>, #own: Self::Parameters<'_>) {
                    #name #turbofish(#krate::__private::first_parameter(#own_thread), #(#own.#numbers),*)
                }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::extra_unused_lifetimes, clippy::too_many_arguments, clippy::type_complexity, clippy::used_underscore_binding)]
            impl #all #name #of_types {
                /// Runs the kernel on the CPU, one thread of the launch after the other. The threads of a block run at the same time if
                /// the kernel has a `BlockThread`.
                #[inline]
                #visibility fn run<'a>(#size: #krate::LaunchSize, #(#names: #types),*) #bound {
                    #krate::__private::run::<Self>(#size, (#(#names,)*));
                }

                /// Runs the kernel on the CPU with one thread of the system for each thread of a block, block after block. Miri
                /// then finds races between them.
                #[inline]
                #visibility fn run_in_threads<'a>(#size: #krate::LaunchSize, #(#names: #types),*) #bound {
                    #krate::__private::run_in_threads::<Self>(#size, (#(#names,)*));
                }

                /// Returns the arguments of a launch.
                #[inline]
                #visibility fn with<'a>(#(#names: #launched),*) -> #krate::Arguments<'a, Self> #bound {
                    #krate::Arguments::new((#(#names,)*))
                }

                /// Returns the arguments of a launch, of the results that a scope returns for arrays.
                ///
                /// # Errors
                ///
                /// That of the first array with one. It names the parameter.
                #[inline]
                #visibility fn try_with<'a, #error: #krate::OfArgument>(
                    #(#names: #tried),*
                ) -> ::core::result::Result<#krate::Arguments<'a, Self>, #error> #bound {
                    #krate::Arguments::try_new((#(#names,)*))
                }
            }
        }
    }
}

impl Entry<'_> {
    /// Names the types as the kernel does.
    fn aliases(&self) -> TokenStream {
        let aliases = self.types.iter().map(|(name, ty)| quote!(#[allow(dead_code)] type #name = #ty;));
        quote!(#(#aliases)*)
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
const REFUSED: [(&str, &str); 9] = [
    ("Thread", "write it in the first place"),
    ("BlockThread", "write it in the first place"),
    ("Team", "write it in the first place"),
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

/// Whether this is a path to one of these names.
fn is_path_to(ty: &Type, names: &[&str]) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

/// Names the lifetime of the arguments `'a`, also where a view has none: a type outside of a function needs one.
fn with_lifetime(ty: &Type) -> Type {
    let (mut ty, is_array) = (ty.clone(), is_path_to(ty, &ARRAYS));
    if let Type::Path(path) = &mut ty {
        if let Some(last) = path.path.segments.last_mut() {
            if let PathArguments::AngleBracketed(list) = &mut last.arguments {
                let has_lifetime =
                    list.args.iter().any(|argument| matches!(argument, GenericArgument::Lifetime(_)));
                if is_array && !has_lifetime {
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
