//! Runs `cai.json` through the typed form of a dict.

use interop_core::protocols::cai::{CudaArrayInterface, DescrEntry, DescrType};
use interop_core::{Result, StreamHandle};
use serde_json::{Map, Value};

use super::{assert_facts, assert_refused, fit, integer, items, numbers, run, some, text};
use crate::support::streams::from_cai;

// Included in the program, which may run on a machine without the sources.
const CORPUS: &str = include_str!("../../conformance/cai.json");

/// The interface of a dict, or `None` if its values have types that Rust cannot represent. An invalid stream is an
/// error.
fn interface(dict: &Map<String, Value>) -> Option<Result<CudaArrayInterface>> {
    let stream = from_cai(optional(dict, "stream", integer)?);
    let interface = plain_interface(dict)?;
    Some(stream.map(|stream| CudaArrayInterface { stream, ..interface }))
}

/// Like [`interface`], without the stream.
fn plain_interface(dict: &Map<String, Value>) -> Option<CudaArrayInterface> {
    let [address, readonly] = dict.get("data")?.as_array()?.as_slice() else { return None };
    Some(CudaArrayInterface {
        shape: numbers(dict.get("shape")?)?,
        typestr: dict.get("typestr")?.as_str()?.into(),
        data: (if address.is_null() { 0 } else { fit(address)? }, flag(readonly)?),
        version: integer(dict.get("version")?)?,
        strides: optional(dict, "strides", numbers)?,
        stream: StreamHandle::NothingPending,
        descr: optional(dict, "descr", entries)?,
        mask: some(dict, "mask").is_some(),
    })
}

/// Reads a key that may be absent or null: `Some(None)`. The outer `None` stands for a value of another type.
#[expect(clippy::option_option, reason = "nothing there, and something of another type, are two answers")]
fn optional<T>(dict: &Map<String, Value>, key: &str, read: fn(&Value) -> Option<T>) -> Option<Option<T>> {
    some(dict, key).map_or(Some(None), |value| read(value).map(Some))
}

fn flag(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| match integer(value)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    })
}

fn entries(value: &Value) -> Option<Vec<DescrEntry>> {
    value.get("$list")?.as_array()?.iter().map(entry).collect()
}

fn entry(value: &Value) -> Option<DescrEntry> {
    let (name, dtype, shape) = match value.as_array()?.as_slice() {
        [name, dtype] => (name, dtype, Vec::new()),
        [name, dtype, shape] => (name, dtype, numbers(shape).or_else(|| Some(vec![fit(shape)?]))?),
        _ => return None,
    };
    // Of a title and a name the name is used.
    let name = name.as_array().filter(|pair| pair.len() == 2).map_or(name, |pair| &pair[1]);
    let dtype = match dtype.as_str() {
        Some(typestr) => DescrType::Typestr(typestr.into()),
        None => DescrType::Nested(entries(dtype)?),
    };
    Some(DescrEntry { name: name.as_str()?.into(), dtype, shape })
}

/// Each dict of the corpus (R25 to R48; bugs 62 to 111 and 165 to 173 where they concern dicts).
#[test]
fn every_dict_is_judged_as_the_corpus_says() {
    let mut written_down = 0;
    let all = run(CORPUS, "dict", |id, dict, expected| {
        let Some(interface) = interface(dict) else {
            let kind = text(expected.expect_err(id), "kind");
            assert!(
                matches!(kind, "missing" | "type" | "overflow" | "dtype"),
                "{id}: {kind} cannot be written down"
            );
            return;
        };
        written_down += 1;
        let info = match (interface.and_then(|interface| interface.info()), expected) {
            (Err(error), Err(expected)) => return assert_refused(id, &error, expected),
            (found, expected) => found.unwrap_or_else(|error| panic!("{id}: {error}, expected {expected:?}")),
        };
        let expected = expected.expect(id);
        assert_facts(id, &info, expected, 0);
        assert_eq!(info.dtype().typestr().expect(id).as_str(), text(expected, "typestr"), "{id}");
        assert_eq!(
            info.dtype().item_bits(false) as i128 / 8,
            integer(&expected["itemsize"]).expect(id),
            "{id}"
        );
        assert_eq!(info.address() as i128, integer(&expected["data"]).unwrap_or(0), "{id}");
        assert_eq!(Some(info.is_read_only()), expected["readonly"].as_bool(), "{id}");
        let stream = info.stream().and_then(StreamHandle::to_raw).map(|stream| stream as i128);
        assert_eq!(stream, integer(&expected["stream"]), "{id}");
        assert_eq!(info.shape().len(), items(&dict["shape"]).map_or(0, <[_]>::len), "{id}");
    });
    assert!(all >= 380 && written_down >= 270, "{written_down} of {all} dicts were written down");
}
