//! The body of a function of `export!` of `interop-tvm-ffi`. The compiler underlines all of a `macro_rules!`; here it underlines
//! the name of the parameter or of the function.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Token, parenthesized};

/// `name(parameter, …)`.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) parameters: Punctuated<Ident, Token![,]>,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = input.parse()?;
        let parameters;
        parenthesized!(parameters in input);
        Ok(Self { name, parameters: Punctuated::parse_terminated(&parameters)? })
    }
}

impl Function {
    /// The closure that reads the arguments and calls the function. The message for a result that borrows
    /// an argument names `lent_for_the_call`.
    pub(crate) fn body(&self) -> TokenStream {
        let Self { name, parameters } = self;
        let reads = parameters.iter().map(|parameter| {
            let text = text(parameter);
            quote_spanned!(place(parameter)=> let #parameter = lent_for_the_call.read(#text)?;)
        });
        let arguments = parameters.iter();
        quote_spanned! {place(name)=>
            |lent_for_the_call| {
                // A parameter may have the name of the function.
                let function = #name;
                #(#reads)*
                lent_for_the_call.end()?;
                lent_for_the_call.end_with(function(#(#arguments),*))
            }
        }
    }
}

impl Function {
    /// The function as `export!` lists it.
    pub(crate) fn listed(&self) -> TokenStream {
        let Self { name, parameters } = self;
        quote!(#name(#parameters))
    }
}

/// The place of a name, for code that sees no names of the user.
pub(crate) fn place(name: &Ident) -> Span {
    Span::mixed_site().located_at(name.span())
}

/// The name as a string, without `r#`.
pub(crate) fn text(name: &Ident) -> Literal {
    Literal::string(&name.unraw().to_string())
}

/// The name of an identifier as a string.
pub(crate) fn name(identifier: &TokenStream) -> TokenStream {
    let name = identifier.to_string();
    Literal::string(name.strip_prefix("r#").unwrap_or(&name)).into_token_stream()
}
