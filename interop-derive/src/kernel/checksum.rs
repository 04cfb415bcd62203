//! A checksum of what a kernel computes, by which a launch tells old PTX.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use super::Kernel;

impl Kernel {
    /// Returns a checksum of the tokens of the function, without its comments: as 16 digits.
    pub(super) fn checksum(&self) -> String {
        let mut sum = Checksum(0xCBF2_9CE4_8422_2325);
        sum.add(self.generics.to_token_stream());
        sum.add(self.parameters.to_token_stream());
        sum.add(self.body.to_token_stream());
        format!("{:016x}", sum.0)
    }
}

/// FNV-1a of tokens. The text of a stream is not hashed: each compiler writes other spaces, and PTX may be of another one.
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.word(open);
                    self.add(group.stream());
                    self.word(close);
                }
                TokenTree::Ident(name) => self.word(&name.to_string()),
                TokenTree::Punct(mark) => self.word(mark.as_char().encode_utf8(&mut [0; 4])),
                TokenTree::Literal(literal) => self.word(&literal.to_string()),
            }
        }
    }

    fn word(&mut self, word: &str) {
        // The end of a word counts, or `a b` would be `ab`.
        for byte in word.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kernel;

    fn checksum(text: &str) -> String {
        syn::parse_str::<Kernel>(text).expect("a kernel").checksum()
    }

    #[test]
    fn another_body_has_another_checksum() {
        let own = checksum("fn add(thread: Thread<'_>, by: f32) { let x = by + 1.0; }");
        let same = "/// Adds.\n#[inline]\npub fn add(thread: Thread<'_>,\n by: f32) {\n // One.\n let x = by+1.0;\n}";
        assert_eq!(own, checksum(same));
        for other in [
            "fn add(thread: Thread<'_>, by: f32) { let x = by + 2.0; }",
            "fn add(thread: Thread<'_>, by: f32) { let x = by - 1.0; }",
            "fn add(thread: Thread<'_>, by: f32) { let x = (by + 1.0); }",
            "fn add(thread: Thread<'_>, by: f64) { let x = by + 1.0; }",
            "fn add(thread: Thread<'_>, by: f32) { let x = by + 1.0; let y = x; }",
        ] {
            assert_ne!(own, checksum(other), "{other}");
        }
    }
}
