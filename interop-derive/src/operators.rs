//! The list `operators "namespace"; …` of `export!` of `interop-tvm-ffi`: functions with rules for their results.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, LitStr, Result, Token};

use crate::exported_function::{Function, place, text};
use crate::operator_expression::{Scope, gradient, list, python_name};

/// `$crate, "namespace"; #[rule(…)] name(parameter, …); …`. Without a namespace it is the name of the crate.
pub(crate) struct Operators {
    /// The path of `interop-tvm-ffi`.
    interop: TokenStream,
    namespace: Option<LitStr>,
    list: Vec<Operator>,
}

/// A function with its rules.
struct Operator {
    function: Function,
    rules: Rules,
}

/// What the types of a function do not tell. Texts are expressions of Python.
#[derive(Default)]
struct Rules {
    /// The parameter whose element type and device the result has.
    like: Option<String>,
    /// The extents of the result, if they are not those of `like`.
    shape: Option<String>,
    /// The element type of the result, if it is not that of `like`.
    dtype: Option<String>,
    /// Whether each element of the result depends on the elements of the arguments at its place only.
    is_elementwise: bool,
    /// The function that writes the result to an array of the caller.
    into: Option<Ident>,
    /// By parameter: its gradient, and the names that this uses.
    gradients: Vec<(Ident, String, Vec<String>)>,
}

impl Parse for Operators {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut interop = TokenStream::new();
        while !input.peek(Token![,]) && !input.peek(Token![;]) {
            interop.extend([input.parse::<TokenTree>()?]);
        }
        let has_namespace = input.parse::<Option<Token![,]>>()?.is_some();
        let namespace = if has_namespace { Some(input.parse::<LitStr>()?) } else { None };
        let is_name = |name: &str| {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name.chars().all(is_letter)
        };
        if let Some(namespace) = namespace.as_ref().filter(|namespace| !is_name(&namespace.value())) {
            let allowed =
                "a namespace of operators has ASCII letters, digits and `_`, and starts with no digit";
            return Err(syn::Error::new(namespace.span(), allowed));
        }
        input.parse::<Token![;]>()?;
        let operators = Punctuated::<Operator, Token![;]>::parse_terminated(input)?;
        let this = Self { interop, namespace, list: operators.into_iter().collect() };
        this.check_names()?;
        Ok(this)
    }
}

impl Operators {
    /// Checks that the rules name functions of the list.
    fn check_names(&self) -> Result<()> {
        let names: Vec<String> =
            self.list.iter().map(|operator| operator.function.name.unraw().to_string()).collect();
        for Operator { rules, .. } in &self.list {
            if let Some(into) = rules.into.as_ref().filter(|into| !names.contains(&into.unraw().to_string()))
            {
                return Err(syn::Error::new(
                    into.span(),
                    format!("`{into}` is not in this list of operators"),
                ));
            }
        }
        Ok(())
    }

    /// The functions as symbols of TVM FFI, and the list that registers itself when the library is loaded.
    pub(crate) fn expand(&self) -> TokenStream {
        let Self { interop, namespace, list: operators } = self;
        let namespace = namespace
            .as_ref()
            .map_or_else(|| quote!(::core::env!("CARGO_CRATE_NAME")), ToTokens::to_token_stream);
        let functions = operators.iter().map(|operator| operator.function.listed());
        let types = (0..operators.len()).map(|at| format_ident!("__InteropOperator{at}")).collect::<Vec<_>>();
        let statics =
            (0..operators.len()).map(|at| format_ident!("__INTEROP_OPERATOR_{at}")).collect::<Vec<_>>();
        let operations = operators
            .iter()
            .zip(types.iter().zip(&statics))
            .map(|(operator, (of, place))| operator.operation(interop, of, place));
        quote! {
            #interop::export! { #(#functions);* }
            const _: () = {
                #(#operations)*
                #(static #statics: #interop::__private::Operator = #interop::__private::Operator::of::<#types>();)*
                static __INTEROP_OPERATORS: #interop::__private::OperatorList =
                    #interop::__private::OperatorList::new(#namespace, &[#(&#statics),*]);
                #interop::__at_load! { __INTEROP_OPERATORS }
            };
        }
    }
}

impl Parse for Operator {
    fn parse(input: ParseStream) -> Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let function: Function = input.parse()?;
        let mut rules = Rules::default();
        for attribute in &attributes {
            rules.read(attribute, &function)?;
        }
        Ok(Self { function, rules })
    }
}

impl Operator {
    /// The implementation of `Operation` for a type with this name.
    fn operation(&self, interop: &TokenStream, of: &Ident, place_of: &Ident) -> TokenStream {
        let Self { function, rules } = self;
        let (name, body, rules) = (text(&function.name), function.body(), rules.arguments());
        let parameters = function.parameters.iter().map(|parameter| {
            let (text, python) = (text(parameter), python_name(parameter));
            quote_spanned!(place(parameter)=> let #parameter = signature.parameter(#text, #python);)
        });
        let has_gradients = !self.rules.gradients.is_empty();
        let (called, arguments) = (&function.name, function.parameters.iter());
        let describe = quote_spanned! {place(called)=>
            let function = #called;
            #(#parameters)*
            signature.result(move || function(#(#arguments.take()),*));
        };
        let here = Span::mixed_site();
        let signature = Ident::new("signature", here);
        quote_spanned! {here=>
            struct #of;
            impl #interop::__private::Operation for #of {
                const NAME: &'static ::core::primitive::str = #name;
                const RULES: &'static ::core::primitive::str = #rules;
                const HAS_GRADIENTS: ::core::primitive::bool = #has_gradients;
                fn describe(#signature: &mut #interop::__private::Signature) { #describe }
                fn call(arguments: &#interop::__private::Arguments<'_>) -> #interop::__private::Outcome {
                    #interop::__private::call_with(arguments, #body)
                }
                fn operator() -> &'static #interop::__private::Operator { &#place_of }
            }
        }
    }
}

impl Rules {
    fn read(&mut self, attribute: &Attribute, function: &Function) -> Result<()> {
        let scope = Scope { parameters: &function.parameters };
        let arguments = attribute.meta.require_list()?;
        let name = arguments.path.require_ident()?.to_string();
        let is_twice = match name.as_str() {
            "like" | "elementwise" | "shape" => self.like.is_some(),
            "into" => self.into.is_some(),
            _ => !self.gradients.is_empty(),
        };
        if is_twice {
            return Err(syn::Error::new_spanned(attribute, format!("a second rule for what `{name}` says")));
        }
        let parser = |input: ParseStream| match name.as_str() {
            "like" | "elementwise" => {
                self.is_elementwise = name == "elementwise";
                self.like = Some(scope.parameter(&input.call(Ident::parse_any)?)?);
                self.read_dtype(input, &scope)
            }
            "shape" => {
                self.like = Some(scope.parameter(&input.call(Ident::parse_any)?)?);
                input.parse::<Token![:]>()?;
                let extents;
                syn::bracketed!(extents in input);
                self.shape = Some(list(extents.parse()?, &scope)?);
                self.read_dtype(input, &scope)
            }
            "into" => {
                self.into = Some(input.parse()?);
                Ok(())
            }
            "gradient" => self.read_gradients(input, &scope),
            _ => {
                let allowed = "allowed: `like(a)`, `elementwise(a)`, `shape(a: [a.0, 2 * b.1])`, `into(f)`, `gradient(a = f(gradient, b))`";
                Err(syn::Error::new_spanned(&attribute.meta, format!("found the rule `{name}`, {allowed}")))
            }
        };
        parser.parse2(arguments.tokens.clone())
    }

    /// Reads `, dtype = float64`.
    fn read_dtype(&mut self, input: ParseStream, scope: &Scope<'_>) -> Result<()> {
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let word: Ident = input.parse()?;
            if word != "dtype" {
                return Err(syn::Error::new(word.span(), format!("found `{word}`, allowed: `dtype`")));
            }
            input.parse::<Token![=]>()?;
            let dtype: Ident = input.parse()?;
            self.dtype = Some(scope.parameter(&dtype).unwrap_or_else(|_| format!("_library.{dtype}")));
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    }

    /// Reads `a = f(gradient, b), …`.
    fn read_gradients(&mut self, input: ParseStream, scope: &Scope<'_>) -> Result<()> {
        while !input.is_empty() {
            let parameter = input.call(Ident::parse_any)?;
            scope.parameter(&parameter)?;
            input.parse::<Token![=]>()?;
            let mut tokens = Vec::new();
            while !input.is_empty() && !input.peek(Token![,]) {
                tokens.push(input.parse::<TokenTree>()?);
            }
            let (text, uses) = gradient(&tokens, parameter.span(), scope)?;
            self.gradients.push((parameter, text, uses));
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    }

    /// The rules as arguments of a function in Python.
    fn arguments(&self) -> String {
        let gradients: Vec<_> = self
            .gradients
            .iter()
            .map(|(parameter, text, uses)| (python_name(parameter), text, uses))
            .collect();
        let into = self.into.as_ref().map(|into| into.unraw().to_string());
        let texts = [("like", &self.like), ("shape", &self.shape), ("dtype", &self.dtype), ("into", &into)];
        let given = texts.into_iter().filter_map(|(name, text)| Some(format!("{name}={:?}", text.as_ref()?)));
        let always = [format!("is_elementwise={}, gradients={gradients:?}", u8::from(self.is_elementwise))];
        always.into_iter().chain(given).collect::<Vec<_>>().join(", ")
    }
}
