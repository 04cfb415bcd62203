//! The published corpus in `tests/conformance/`: each case is imported (each case names its spec sections and bugs).
//!
//! `tests/conformance/reader.py` describes the format of a case.

mod dicts;
mod tensors;

use interop_core::{ArrayInfo, Error, ErrorKind};
use serde_json::{Map, Value};

/// Reads an integer in any of its notations: plain, beyond the range of JSON readers, or tagged with another type.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_i64().map(i128::from),
        Value::Object(tagged) => {
            let big = tagged.get("$int").and_then(Value::as_str).and_then(|digits| digits.parse().ok());
            big.or_else(|| integer(tagged.get("$index")?))
        }
        _ => None,
    }
}

/// The items of a tuple or a list.
fn items(value: &Value) -> Option<&[Value]> {
    let items = value.as_object().map_or(Some(value), |tagged| tagged.get("$list"))?;
    items.as_array().map(Vec::as_slice)
}

/// An integer converted to the type of a field.
fn fit<T: TryFrom<i128>>(value: &Value) -> Option<T> {
    T::try_from(integer(value)?).ok()
}

/// The numbers of a tuple.
fn numbers<T: TryFrom<i128>>(value: &Value) -> Option<Vec<T>> {
    items(value)?.iter().map(fit).collect()
}

/// The value of a key that is present and not null.
fn some<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// Runs `judge` on each case of a corpus with the id, the input and the expected result; counts the cases.
fn run(
    corpus: &str,
    input: &str,
    mut judge: impl FnMut(&str, &Map<String, Value>, Result<&Value, &Value>),
) -> usize {
    let corpus: Value = serde_json::from_str(corpus).expect("the corpus is JSON");
    let cases = corpus["cases"].as_array().expect("a list of cases");
    for case in cases {
        let given = case[input].as_object().expect("an input");
        let expected = case.get("facts").ok_or_else(|| &case["error"]);
        judge(case["id"].as_str().expect("an id"), given, expected);
    }
    cases.len()
}

/// The kind of an error as the corpus spells it.
fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::MissingKey => "missing",
        ErrorKind::Type => "type",
        ErrorKind::Version => "version",
        ErrorKind::DType => "dtype",
        ErrorKind::Rank => "rank",
        ErrorKind::Shape => "shape",
        ErrorKind::Strides => "strides",
        ErrorKind::Overflow => "overflow",
        ErrorKind::NullPointer => "null",
        ErrorKind::Device => "device",
        ErrorKind::Stream => "stream",
        ErrorKind::Mask => "mask",
        _ => "no kind of the corpus",
    }
}

/// Compares the kind and the place of an error.
#[track_caller]
fn assert_refused(id: &str, error: &Error, expected: &Value) {
    // The location names single fields of a record; only its first word is compared.
    let place = error.location().split(' ').next().unwrap_or_default();
    assert_eq!((kind(error), place), (text(expected, "kind"), text(expected, "place")), "{id}: {error}");
}

/// Compares the description, with element \[0, …, 0\] counted from `base`.
#[track_caller]
fn assert_facts(id: &str, info: &ArrayInfo, expected: &Value, base: i128) {
    let shape: Vec<usize> = numbers(&expected["shape"]).expect("extents");
    assert_eq!(info.shape(), shape, "{id}");
    for (found, expected) in info.strides().iter().zip(items(&expected["strides"]).expect("strides")) {
        // A stride without meaning is null in the corpus.
        assert!(
            expected.is_null() || integer(expected) == Some(*found as i128),
            "{id}: {:?}",
            info.strides()
        );
    }
    assert_eq!(Some(info.nbytes() as i128), integer(&expected["nbytes"]), "{id}");
    let reach = numbers::<i128>(&expected["reach"]).map(|ends| (ends[0] + base, ends[1] + base));
    let found = info.byte_range();
    assert_eq!((found.start as i128, found.end as i128), reach.unwrap_or_default(), "{id}");
    for (order, key) in [(interop_core::Order::C, "c_contiguous"), (interop_core::Order::F, "f_contiguous")] {
        assert_eq!(Some(info.layout().is_contiguous(order)), expected[key].as_bool(), "{id}: {key}");
    }
}

/// A string of a case.
#[track_caller]
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key} in {value}"))
}
