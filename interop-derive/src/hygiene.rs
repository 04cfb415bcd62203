//! Generated tokens that neither see the user's names nor are seen by the user's code.

/// `quote!` with spans of the macro's own ([`proc_macro2::Span::mixed_site`]).
///
/// Local variables cannot be named by an expression of the user's. Lints, `unsafe_code` among them, take the tokens for
/// those of a foreign macro. Every path starts with `__p`, which the `const _` around an expansion imports, or with `::`:
/// nothing depends on the prelude or on what the user has in scope.
macro_rules! own {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*)
    };
}

pub(crate) use own;
