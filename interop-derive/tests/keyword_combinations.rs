//! Tests that every valid combination of keywords expands to valid Rust, and that every other one is an error.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, File, parse_quote};

use crate::single_mistakes::{ON_FIELD, ON_STRUCT, TYPES};

/// A choice of tokens for the struct's attribute and for its fields.
type Choice = (TokenStream, TokenStream);

fn fields(fields: TokenStream) -> Choice {
    (TokenStream::new(), fields)
}

/// The choices for each aspect of a struct. A struct takes one choice for each.
fn questions() -> Vec<Vec<Choice>> {
    let device = quote!(#[cuda_array(device)] device: Device,);
    let owner = quote!(#[cuda_array(owner)] owner: Owner,);
    vec![
        vec![
            fields(quote!(#[cuda_array(data)] data: Vec<T>,)),
            fields(quote!(#[cuda_array(data)] data: S, #[cuda_array(owner, default)] owner: Option<u8>,)),
            fields(quote!(#device #[cuda_array(data(unsafe_raw))] data: *mut T, #owner)),
            fields(quote!(#owner #[cuda_array(data(unsafe_raw, element = T))] data: u64, #device)),
        ],
        vec![
            fields(quote!(#[cuda_array(shape)] shape: Vec<usize>,)),
            (quote!(shape = [rows, 3, N, rows]), quote!(rows: usize,)),
            (quote!(shape = []), TokenStream::new()),
        ],
        vec![
            fields(TokenStream::new()),
            fields(quote!(#[cuda_array(strides)] strides: Option<Vec<isize>>,)),
            fields(quote!(#[cuda_array(strides(bytes))] strides: [i64; N],)),
        ],
        vec![
            fields(TokenStream::new()),
            fields(quote!(#[cuda_array(stream)] stream: H,)),
            fields(quote!(#[cuda_array(stream, default = H::new(|a, b| a < b))] stream: H,)),
        ],
        vec![
            (TokenStream::new(), quote!(#[cuda_array(default)] note: String,)),
            (quote!(order = "C"), quote!(#[cuda_array(default = vec![1, 2])] note: Vec<u8>,)),
            (quote!(order = "F"), TokenStream::new()),
        ],
        vec![
            fields(TokenStream::new()),
            (quote!(readonly), TokenStream::new()),
            (quote!(export), quote!(free: u8,)),
            (quote!(import, device = ["cpu", "cuda_host"]), TokenStream::new()),
        ],
        vec![fields(TokenStream::new()), (quote!(python), TokenStream::new())],
    ]
}

/// All structs: one for each combination of choices.
fn structs() -> Vec<Choice> {
    questions().into_iter().fold(vec![fields(TokenStream::new())], |structs, choices| {
        let add = |(words, fields): &Choice| {
            let (words, fields) = (words.clone(), fields.clone());
            choices
                .iter()
                .map(move |(word, field)| (quote!(#words #[cuda_array(#word)]), quote!(#fields #field)))
                .collect::<Vec<Choice>>()
        };
        structs.iter().flat_map(add).collect()
    })
}

#[test]
fn every_combination_expands() {
    let structs = structs();
    assert_eq!(structs.len(), 4 * 3 * 3 * 3 * 3 * 4 * 2);
    for (words, fields) in structs {
        let input: DeriveInput = parse_quote!(#words struct Samples<S, T, H, const N: usize> { #fields });
        let expansion = crate::derive_cuda_array::derive(&input);
        let text = expansion.to_string();
        // Without an import, keywords about filling fields have no meaning.
        let has_no_meaning = words.to_string().contains("export") && fields.to_string().contains("default");
        let messages = text.matches("compile_error").count();
        assert_eq!(messages, usize::from(has_no_meaning), "{words} {fields}: {text}");
        assert!(syn::parse2::<File>(expansion).is_ok(), "{words} {fields}: {text}");
    }
}

/// Pseudorandom numbers that are the same in every run (a linear congruential generator with Knuth's constants).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Up to five of the keywords, with or without commas.
    fn attribute(&mut self, words: &[&str]) -> String {
        let mut text = String::new();
        for _ in 0..self.below(6) {
            text += words[self.below(words.len())];
            text += if self.below(10) == 0 { " " } else { ", " };
        }
        text
    }
}

/// Words that are wrong on any struct, or take more than one change.
const OTHERS_ON_STRUCT: [&str; 22] = [
    "shape = [self.a(), 1 << a]",
    "shape = [a, b]",
    "shape = [a, 3, a, N]",
    "shape = [self.a]",
    "shape = [z, -1, 2.5, a + b]",
    "shape = 3",
    "shape",
    "shape(a, b)",
    "order = C",
    "order",
    "device = \"cuda\"",
    "device = [\"cpu\", 3]",
    "device = []",
    "device(cuda)",
    "readonly = true",
    "crate = \"a::b\"",
    "crate = \"a b\"",
    "crate = a::b",
    "stream",
    "dtype = 3",
    "=",
    "nonsense(x; y)",
];

/// As above, on a field.
const OTHERS_ON_FIELD: [&str; 13] = [
    "data(element = )",
    "data(x)",
    "data = 3",
    "shape = [a]",
    "strides(elements)",
    "device = \"cuda\"",
    "default = f::<A, B>()",
    "default = |a, b| a < b",
    "default =",
    "default(3)",
    "\"data\"",
    "a::b",
    ", ,",
];

#[test]
fn nothing_that_is_written_makes_the_derive_panic() {
    let (on_struct, on_field) =
        ([&ON_STRUCT[..], &OTHERS_ON_STRUCT].concat(), [&ON_FIELD[..], &OTHERS_ON_FIELD].concat());
    let types = [&TYPES[..], &["Vec<T>", "NonNull<T>", "[usize; N]", "&'a [f32]", "(A, B)"]].concat();
    let mut random = Random(1);
    for _ in 0..4000 {
        let words = random.attribute(&on_struct);
        let fields: String = ["a", "b", "c", "d"]
            .map(|name| {
                let attribute = random.attribute(&on_field);
                format!("#[cuda_array({attribute})] {name}: {},", types[random.below(types.len())])
            })
            .concat();
        let text = format!("#[cuda_array({words})] struct Samples<'a, T, const N: usize> {{ {fields} }}");
        let input: DeriveInput = syn::parse_str(&text).unwrap();
        for expansion in [crate::derive_cuda_array::derive(&input), crate::derive_element::derive(&input)] {
            assert!(syn::parse2::<File>(expansion).is_ok(), "{text}");
        }
    }
}
