//! The mistakes of one struct, collected so that they are all reported in one compile.

use proc_macro2::TokenStream;
use quote::ToTokens;
use std::fmt::Display;

/// Collects mistakes.
///
/// Reading goes on after a mistake, so that every one is found. What a mistake hides is remembered ([`Errors::lose`]):
/// a rule about an *absent* word stays silent when the word may be there, misspelt. Together: one mistake, one message.
///
/// Dropping the collector without [`Errors::finish`] panics, so a forgotten report fails the first test that meets it.
pub(crate) struct Errors {
    found: Option<Vec<syn::Error>>,
    lost: Vec<&'static str>,
    all_lost: bool,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self { found: Some(Vec::new()), lost: Vec::new(), all_lost: false }
    }

    /// Reports a mistake on the tokens `at`: what was found, and what to write.
    ///
    /// Every message has both parts; this is the one place that joins them.
    pub(crate) fn push(&mut self, at: impl ToTokens, found: impl Display, help: impl Display) {
        let error = syn::Error::new_spanned(at, format_args!("{found}\n= help: {help}"));
        self.found.get_or_insert_default().push(error);
    }

    /// Remembers that `word` was probably meant, but could not be read; `None` when it may have been any word.
    pub(crate) fn lose(&mut self, word: Option<&'static str>) {
        match word {
            Some(word) => self.lost.push(word),
            None => self.all_lost = true,
        }
    }

    /// Whether the absence of `word` is certain.
    pub(crate) fn is_absent(&self, word: &str) -> bool {
        !self.all_lost && !self.lost.contains(&word)
    }

    /// The reports as `compile_error!` calls; nothing when there are none.
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
        errors.lose(Some("data"));
        assert!(!errors.is_absent("data") && errors.is_absent("shape"));
        errors.lose(None);
        assert!(!errors.is_absent("shape"));
        assert!(errors.finish().is_none());
    }
}
