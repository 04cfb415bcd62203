//! Valid structs with one change. Each change is at most one mistake, so it causes at most one error.

use syn::DeriveInput;

/// A field: its attribute, its name, its type.
type Field = (&'static str, &'static str, &'static str);

/// The attributes of a struct, and its fields.
const LEGAL: [(&[&str], &[Field]); 9] = [
    (&["python"], &[("inner", "d", "Image"), ("default", "h", "usize")]),
    (&["shape = [h, w, 3]"], &[("data", "d", "Vec<f32>"), ("", "h", "usize"), ("", "w", "usize")]),
    (&[], &[("data", "d", "Vec<f32>"), ("shape", "s", "[usize; 2]"), ("strides", "t", "[isize; 2]")]),
    (
        &["shape = [h]", "export"],
        &[("data", "d", "Arc<Vec<f32>>"), ("", "h", "usize"), ("", "x", "String"), ("owner", "o", "Rc<u8>")],
    ),
    (
        &["shape = [h]", "import"],
        &[
            ("data", "d", "Lease<f32>"),
            ("", "h", "usize"),
            ("default", "x", "u8"),
            ("stream", "q", "StreamHandle"),
        ],
    ),
    (
        &["shape = [h]"],
        &[
            ("data(unsafe_raw)", "d", "*mut f32"),
            ("", "h", "usize"),
            ("device", "v", "Device"),
            ("owner", "o", "Owner"),
        ],
    ),
    (
        &["shape = [h]", "export"],
        &[("data(unsafe_raw, element = f32)", "d", "u64"), ("", "h", "usize"), ("device", "v", "Device")],
    ),
    (
        &["shape = [h]", "order = \"F\"", "device = \"cuda\"", "readonly"],
        &[
            ("data", "d", "Vec<f32>"),
            ("", "h", "usize"),
            ("stream, default", "q", "StreamHandle"),
            ("owner, default = None", "o", "Option<u8>"),
        ],
    ),
    (
        &["shape = [h]", "python"],
        &[("data", "d", "HostVec<f32>"), ("", "h", "usize"), ("default", "x", "u8")],
    ),
];

pub(crate) const ON_STRUCT: [&str; 25] = [
    "shape = [self.h()]",
    "shape = [h]",
    "shape = [h, h]",
    "shape = [k]",
    "shape = [d]",
    "shape = [o]",
    "shape = [x]",
    "shape = []",
    "order = \"C\"",
    "order = \"X\"",
    "device = \"cpu\"",
    "device = \"gpu\"",
    "device",
    "readonly",
    "readonly = false",
    "export",
    "import",
    "import = false",
    "exprt",
    "python",
    "python = 1",
    "pyclass",
    "data",
    "default",
    "nonsense",
];

pub(crate) const ON_FIELD: [&str; 23] = [
    "inner",
    "data",
    "data(unsafe_raw)",
    "data(unsafe_raw, element = f32)",
    "data(element = f32)",
    "shape",
    "shape = [h]",
    "strides",
    "strides(bytes)",
    "stream",
    "device",
    "device = \"cpu\"",
    "owner",
    "default",
    "default = 1",
    "default(1)",
    "defult",
    "export",
    "readonly",
    "unsafe_raw",
    "element = f32",
    "nonsense",
    "len",
];

pub(crate) const TYPES: [&str; 12] = [
    "Vec<f32>",
    "*mut f32",
    "u64",
    "usize",
    "*const c_void",
    "[usize; 3]",
    "[isize; 1]",
    "&'static [f32]",
    "[f32]",
    "Vec<str>",
    "dyn Send",
    "&[f32]",
];

fn text(words: &[&str], fields: &[(String, &str, &str)]) -> String {
    let fields = fields.iter().map(|(words, name, ty)| format!("#[cuda_array({words})] {name}: {ty}, "));
    format!("#[cuda_array({})] struct Samples {{ {} }}", words.join(", "), fields.collect::<String>())
}

/// The struct with one change: a keyword added or removed, a field removed or of another type.
fn changed(words: &[&'static str], fields: &[Field]) -> Vec<String> {
    let fields: Vec<_> = fields.iter().map(|(words, name, ty)| ((*words).to_string(), *name, *ty)).collect();
    let mut texts = Vec::new();
    for word in ON_STRUCT {
        texts.push(text(&[words, &[word]].concat(), &fields));
        texts.push(text(&[&[word], words].concat(), &fields));
    }
    for gone in 0..words.len() {
        texts.push(text(&[&words[..gone], &words[gone + 1..]].concat(), &fields));
    }
    for at in 0..fields.len() {
        let mut change = |field: Option<(String, &'static str, &'static str)>| {
            let mut fields = fields.clone();
            fields.splice(at..=at, field);
            texts.push(text(words, &fields));
        };
        let (own, name, ty) = fields[at].clone();
        change(None);
        change(Some((String::new(), name, ty)));
        for word in ON_FIELD {
            change(Some((format!("{own}, {word}").trim_start_matches(", ").to_string(), name, ty)));
        }
        for other in TYPES {
            change(Some((own.clone(), name, other)));
        }
    }
    texts
}

#[test]
fn one_change_is_one_message_at_most() {
    let messages = |text: &str| {
        let input: DeriveInput = syn::parse_str(text).unwrap();
        crate::derive_cuda_array::derive(&input).to_string().matches("compile_error").count()
    };
    let mut mistakes = 0;
    for (words, fields) in LEGAL {
        for text in changed(words, fields) {
            let messages = messages(&text);
            assert!(messages <= 1, "{messages} messages: {text}");
            mistakes += messages;
        }
    }
    assert!(mistakes > 600, "only {mistakes} changes were mistakes");
}
