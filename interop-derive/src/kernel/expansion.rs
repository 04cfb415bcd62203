//! What a kernel expands to: entry points for the device, and a type for launches on the host.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    GenericArgument, GenericParam, Generics, Index, Lifetime, LifetimeParam, Path, PathArguments, Token,
    Type, parse_quote,
};

use super::{ARRAYS, COMPARED, Kernel, Options, Parameter, SINGLE_THREADS, THREADS, is_path_to, text_of};

/// A kernel for one choice of types.
struct KernelInstance<'k> {
    name: String,
    /// A type for each generic parameter.
    types: Vec<(&'k Ident, &'k Type)>,
}

impl Options {
    /// Returns the entry points of a kernel: one for each choice of types.
    fn entries<'k>(&'k self, name: &Ident) -> Vec<KernelInstance<'k>> {
        let mut entries = vec![KernelInstance { name: text_of(name), types: Vec::new() }];
        for (parameter, types) in &self.types {
            let with = |entry: &KernelInstance<'k>, ty: &'k Type| -> KernelInstance<'k> {
                KernelInstance {
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

impl Kernel {
    /// All functions of the host are `#[inline]`, so that only a crate that runs kernels on the CPU compiles them: that takes
    /// seconds. The kernel itself is always inlined: a launch on the CPU compiles it for several processors.
    pub(super) fn expand(&self, options: &Options) -> TokenStream {
        let Self { attributes, visibility, name, body, .. } = self;
        let (device, host) = (self.for_device(options), self.for_host(options));
        let (generics, parameters) = self.of_one_lifetime();
        quote! {
            #device
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::inline_always, clippy::needless_pass_by_value, clippy::too_many_arguments, clippy::type_complexity, clippy::used_underscore_binding)]
            #(#attributes)*
            #[inline(always)]
            #visibility fn #name #generics(#parameters) #body
            #host
        }
    }

    /// The generics and the parameters of the function. Those of a team have one lifetime: a function of elements, which borrows
    /// nothing that lives shorter, may hold views.
    fn of_one_lifetime(&self) -> (Generics, Punctuated<Parameter, Token![,]>) {
        let (mut generics, mut parameters) = (self.generics.clone(), self.parameters.clone());
        let first = parameters.first().map(|first| &first.ty);
        if first.is_some_and(|ty| !is_path_to(ty, &SINGLE_THREADS)) {
            let lifetime = Lifetime::new("'kernel", Span::mixed_site());
            for parameter in &mut parameters {
                parameter.ty = with_lifetime(&parameter.ty, &lifetime);
            }
            generics.params.insert(0, GenericParam::Lifetime(LifetimeParam::new(lifetime)));
        }
        (generics, parameters)
    }

    /// The entry points.
    fn for_device(&self, options: &Options) -> TokenStream {
        let Self { attributes, name, body, .. } = self;
        let (generics, parameters) = self.of_one_lifetime();
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
    fn entry(&self, entry: &KernelInstance<'_>, krate: &Path) -> TokenStream {
        // A parameter may have the name of the kernel.
        let own = |index| Ident::new(&format!("__interop_parameter_{index}"), Span::mixed_site());
        let names: Vec<_> = (1..self.parameters.len()).map(own).collect();
        let types: Vec<_> = self.arguments().map(|parameter| &parameter.ty).collect();
        let (thread, name) = (self.parameters.first().map(|thread| &thread.ty), &self.name);
        let (layout, export) = (format!("interop_layout_{}", entry.name), &entry.name);
        let texts = self.arguments().map(|parameter| text_of(&parameter.name));
        let (aliases, code) = (entry.aliases(), self.checksum());
        quote! {
            const _: () = {
                #aliases
                const __INTEROP_LAYOUT: #krate::__private::Layout =
                    #krate::__private::Layout::of_kernel::<(#(#types,)*)>(&[#(#texts),*], #code);
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
        let [of_call, of_first] = ["'a", "'t"].map(|name| Lifetime::new(name, Span::call_site()));
        let types: Vec<_> =
            self.arguments().map(|parameter| with_lifetime(&parameter.ty, &of_call)).collect();
        let launched =
            types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #krate::Parameter>::Launched));
        let thread = parameters.first().map(|thread| &thread.ty);
        let first = thread.map(|ty| with_lifetime(ty, &of_first));
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
        let (declared, code) = (self.declared(options), self.checksum());
        quote! {
            #declared

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::inline_always, clippy::used_underscore_binding)]
            unsafe impl #all #krate::Kernel for #name #of_types #bound {
                const NAME: &'static ::core::primitive::str = #entry;
                const PARAMETERS: &'static [&'static ::core::primitive::str] = &[#(#texts),*];
                const CODE: &'static ::core::primitive::str = #code;
                #(#compared)*
                const NEEDS_BLOCK: ::core::primitive::bool = {
                    #(#krate::__private::assert_view::<#views>();)*
                    #krate::__private::needs_block::<#thread>()
                };
                const IS_TEAM: ::core::primitive::bool = #krate::__private::is_team::<#thread>();
                type Parameters<'a> = (#(#types,)*);
                type First<'t> = #first;

                #[inline(always)]
                fn call<'t, 'a: 't>(#own_thread: Self::First<'t>, #own: Self::Parameters<'a>) {
                    #name #turbofish(#own_thread, #(#own.#numbers),*)
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
                /// then finds races between them, and the threads of a team panic if they make different calls.
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

impl KernelInstance<'_> {
    /// Names the types as the kernel does.
    fn aliases(&self) -> TokenStream {
        let aliases = self.types.iter().map(|(name, ty)| quote!(#[allow(dead_code)] type #name = #ty;));
        quote!(#(#aliases)*)
    }
}

/// Names the lifetime in the type of a parameter, also where a view or a thread has none: a type outside of a function needs one.
fn with_lifetime(ty: &Type, lifetime: &Lifetime) -> Type {
    let (mut ty, needs_one) = (ty.clone(), is_path_to(ty, &ARRAYS) || is_path_to(ty, &THREADS));
    if let Type::Path(path) = &mut ty {
        if let Some(last) = path.path.segments.last_mut().filter(|_| needs_one) {
            match &mut last.arguments {
                PathArguments::AngleBracketed(list) => {
                    let is_lifetime =
                        |argument: &GenericArgument| matches!(argument, GenericArgument::Lifetime(_));
                    if !list.args.iter().any(is_lifetime) {
                        list.args.insert(0, GenericArgument::Lifetime(lifetime.clone()));
                    }
                }
                none => *none = PathArguments::AngleBracketed(parse_quote!(<#lifetime>)),
            }
        }
    }
    let tokens = rename(ty.to_token_stream(), lifetime);
    syn::parse2(tokens).unwrap_or(ty)
}

/// Replaces `'_` everywhere.
fn rename(tokens: TokenStream, lifetime: &Lifetime) -> TokenStream {
    let mut is_lifetime = false;
    let renamed = tokens.into_iter().map(|token| {
        let was_lifetime = core::mem::replace(
            &mut is_lifetime,
            matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '\''),
        );
        match token {
            TokenTree::Ident(name) if was_lifetime && name == "_" => lifetime.ident.clone().into(),
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), rename(group.stream(), lifetime));
                inner.set_span(group.span());
                inner.into()
            }
            token => token,
        }
    });
    renamed.collect()
}
