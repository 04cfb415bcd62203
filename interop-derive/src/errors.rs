//! The errors of one struct, collected so that all are reported in one compilation.

use proc_macro2::TokenStream;
use quote::ToTokens;
use std::fmt::Display;

/// Collects errors.
///
/// Reading continues after an error, so that every error is found. If an error may hide a keyword, the keyword is
/// marked ([`Errors::mark_uncertain`]): rules about a *missing* keyword then stay silent. So each mistake causes one
/// message.
///
/// Dropping the collector without [`Errors::finish`] panics, so that a forgotten report fails a test.
pub(crate) struct Errors {
    found: Option<Vec<syn::Error>>,
    uncertain: Vec<&'static str>,
    all_uncertain: bool,
    /// The fields that a misspelt name probably means.
    meant: Vec<String>,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self { found: Some(Vec::new()), uncertain: Vec::new(), all_uncertain: false, meant: Vec::new() }
    }

    /// Reports an error at the tokens `at`: what was found, and what to write.
    ///
    /// Every message has both parts, which are joined only here.
    pub(crate) fn push(&mut self, at: impl ToTokens, found: impl Display, help: impl Display) {
        let error = syn::Error::new_spanned(at, format_args!("{found}\n= help: {help}"));
        self.found.get_or_insert_default().push(error);
    }

    /// Marks a keyword that may be present but could not be read; `None` marks all keywords.
    pub(crate) fn mark_uncertain(&mut self, word: Option<&'static str>) {
        match word {
            Some(word) => self.uncertain.push(word),
            None => self.all_uncertain = true,
        }
    }

    /// Marks a field that a misspelt name probably means. It seems to have no role.
    pub(crate) fn mark_meant(&mut self, field: &str) {
        self.meant.push(field.to_string());
    }

    /// Whether a misspelt name probably means this field.
    pub(crate) fn is_meant(&self, field: &str) -> bool {
        self.meant.iter().any(|meant| meant == field)
    }

    /// Whether `word` is certainly absent.
    pub(crate) fn is_absent(&self, word: &str) -> bool {
        !self.all_uncertain && !self.uncertain.contains(&word)
    }

    /// The errors as `compile_error!` calls, or `None` if there are none.
    pub(crate) fn finish(mut self) -> Option<TokenStream> {
        let found = self.found.take().unwrap_or_default();
        (!found.is_empty()).then(|| found.iter().map(syn::Error::to_compile_error).collect())
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        assert!(
            self.found.is_none() || std::thread::panicking(),
            "mistakes were collected and never reported"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Errors;
    use quote::quote;

    #[test]
    #[should_panic(expected = "never reported")]
    fn mistakes_cannot_be_forgotten() {
        let mut errors = Errors::new();
        errors.push(quote!(here), "found", "help");
    }

    #[test]
    fn all_mistakes_are_reported() {
        let mut errors = Errors::new();
        errors.push(quote!(here), "found", "write `this`");
        errors.push(quote!(there), "more", "write `that`");
        let reports = errors.finish().unwrap().to_string();
        assert_eq!(reports.matches("compile_error").count(), 2);
        assert!(reports.contains(r"found\n= help: write `this`"), "{reports}");
        assert!(Errors::new().finish().is_none());
    }

    #[test]
    fn a_word_that_may_be_there_is_not_absent() {
        let mut errors = Errors::new();
        assert!(errors.is_absent("data"));
        errors.mark_uncertain(Some("data"));
        assert!(!errors.is_absent("data") && errors.is_absent("shape"));
        errors.mark_uncertain(None);
        assert!(!errors.is_absent("shape"));
        assert!(errors.finish().is_none());
    }
}
