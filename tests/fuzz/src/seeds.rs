//! The initial inputs of the targets: the cases of the conformance corpus in `tests/conformance/`.

use std::path::Path;

use interop_core::protocols::cai::{CudaArrayInterface, DescrEntry, DescrType};
use serde_json::{Map, Value};

use crate::input::Output;
use crate::{dict, layout, types};

/// The name of a target, the id of a case, and its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// The bytes before a dict in the target `python`: the kind of operation, and the spelling.
const DICT: u8 = 2;
/// The bytes before a struct there: a producer with its own claims and no special behaviour.
#[cfg(target_os = "linux")]
const PRODUCER: [u8; 3] = [5, 0, 0];
/// The bytes after a struct: the struct's device, a `__dlpack__` with all keywords, capsules, and no stream.
#[cfg(target_os = "linux")]
const ANSWERS: [u8; 8] = [7, 0, 7, 7, 7, 7, 1, 7];

/// Returns all seeds.
///
/// # Panics
///
/// If the corpus cannot be read.
#[must_use]
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (id, case) in cases("cai.json") {
        let Some(interface) = case["dict"].as_object().and_then(interface) else { continue };
        seeds.push(("layout", id.clone(), layout_of(&interface.shape, interface.strides.as_deref())));
        let mut text = Output::default();
        seeds.push(("types", id.clone(), text.text(&interface.typestr, types::TEXT).0.clone()));
        let bytes = dict::write(&interface);
        seeds.push(("python", id.clone(), [&[DICT, 1, 0], &bytes[..]].concat()));
        seeds.push(("dict", id, bytes));
    }
    for (id, case) in cases("dlpack.json") {
        let Some(tensor) = case["tensor"].as_object() else { continue };
        let list = |key| tensor.get(key).and_then(numbers);
        seeds.push((
            "layout",
            id.clone(),
            layout_of(&list("shape").unwrap_or_default(), list("strides").as_deref()),
        ));
        #[cfg(target_os = "linux")]
        if let Some(claims) = claims(tensor) {
            let bytes = crate::tensor::write(&claims);
            seeds.push(("python", id.clone(), [&PRODUCER[..], &bytes, &ANSWERS].concat()));
            seeds.push(("tensor", id, bytes));
        }
    }
    #[cfg(target_os = "linux")]
    seeds.extend(producers());
    seeds
}

/// Returns producers of common arrays on every device, with and without an exchange table and a promise to be on the
/// host.
///
/// Each reports its true device, the host, or nothing.
#[cfg(target_os = "linux")]
fn producers() -> impl Iterator<Item = Seed> {
    /// The true device, the host as a pair of numbers, and no member.
    const DEVICES: [&[u8]; 3] = [&[7], &[2, 18, 65, 64], &[0]];
    const COUNT: usize = 8 * 4 * DEVICES.len() * 2;
    (0..COUNT).map(|number| {
        let [kind, more, at, typed] =
            [number % 8, number / 8 % 4, number / 32 % DEVICES.len(), number / 32 / DEVICES.len()];
        let [kind, typed] = [kind, typed].map(|small| u8::try_from(small).unwrap_or(0));
        let more = [0, 0x30, 0xc0, 0xf0][more];
        let table: &[u8] = if more & 0xc0 == 0 { &[] } else { &[0] };
        let bytes =
            [&[PRODUCER[0], kind << 2 | 0x21, more, typed, 0], DEVICES[at], &[0, 7, 7, 7], table, &[7, 1, 7]];
        ("python", format!("producer-{number}"), bytes.concat())
    })
}

/// Returns the cases of a file, each with its id.
fn cases(file: &str) -> Vec<(String, Value)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let corpus: Value = serde_json::from_str(&text).expect("the corpus is JSON");
    let cases = corpus["cases"].as_array().expect("a list of cases");
    cases.iter().map(|case| (case["id"].as_str().expect("an id").into(), case.clone())).collect()
}

fn layout_of(shape: &[i64], strides: Option<&[i64]>) -> Vec<u8> {
    let compact: Vec<i64> = shape.iter().map(|_| 1).collect();
    let mut output = Output::default();
    output.list(shape, layout::AXES).list(strides.unwrap_or(&compact), layout::AXES).0.clone()
}

/// Decodes an integer in any form of the corpus. Numbers beyond 64 bits are clamped.
fn integer(value: &Value) -> Option<i64> {
    let big =
        |digits: &str| digits.parse::<i128>().ok().map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    value.as_i64().or_else(|| big(value.get("$int")?.as_str()?)).or_else(|| integer(value.get("$index")?))
}

/// Decodes the bits of an unsigned integer.
fn unsigned(value: &Value) -> Option<u64> {
    let big = value.get("$int").and_then(|digits| digits.as_str()?.parse().ok());
    big.or_else(|| integer(value).map(|number| u64::from_ne_bytes(number.to_ne_bytes())))
}

fn numbers(value: &Value) -> Option<Vec<i64>> {
    value.get("$list").unwrap_or(value).as_array()?.iter().map(integer).collect()
}

/// Converts a dict to its typed form, if it has one.
fn interface(source: &Map<String, Value>) -> Option<CudaArrayInterface> {
    let data = source.get("data")?.as_array()?;
    Some(CudaArrayInterface {
        shape: numbers(source.get("shape")?)?,
        typestr: source.get("typestr")?.as_str()?.into(),
        data: (usize::try_from(unsigned(data.first()?).unwrap_or(0)).ok()?, data.get(1)?.as_bool()?),
        version: integer(source.get("version")?)?.into(),
        strides: source.get("strides").and_then(numbers),
        stream: dict::stream(source.get("stream").and_then(integer).map(i128::from)),
        descr: source.get("descr").and_then(entries),
        mask: source.get("mask").is_some_and(|mask| !mask.is_null()),
    })
}

fn entries(value: &Value) -> Option<Vec<DescrEntry>> {
    let entry = |entry: &Value| {
        let entry = entry.as_array()?;
        let dtype = entry.get(1)?;
        let nested = || entries(dtype).map(DescrType::Nested);
        Some(DescrEntry {
            name: entry.first()?.as_str()?.into(),
            dtype: dtype.as_str().map(|typestr| DescrType::Typestr(typestr.into())).or_else(nested)?,
            shape: entry.get(2).map_or(Some(Vec::new()), numbers)?,
        })
    };
    value.get("$list")?.as_array()?.iter().map(entry).collect()
}

#[cfg(target_os = "linux")]
fn claims(tensor: &Map<String, Value>) -> Option<crate::tensor::Claims> {
    let pair = |key: &str| tensor.get(key).and_then(numbers);
    let (device, dtype, version) = (pair("device")?, pair("dtype")?, pair("version").unwrap_or(vec![1, 0]));
    Some(crate::tensor::Claims {
        versioned: tensor.get("form")? == "versioned",
        version: [u32::try_from(version[0]).ok()?, u32::try_from(version[1]).ok()?],
        flags: tensor.get("flags").and_then(unsigned).unwrap_or(0),
        // No address is dereferenced here, so any number can stand for real memory.
        data: tensor.get("data").and_then(unsigned).unwrap_or(0x7000),
        device: [i32::try_from(device[0]).ok()?, i32::try_from(device[1]).ok()?],
        ndim: i32::try_from(integer(tensor.get("ndim")?)?).ok()?,
        dtype: (u8::try_from(dtype[0]).ok()?, u8::try_from(dtype[1]).ok()?, u16::try_from(dtype[2]).ok()?),
        shape: pair("shape"),
        strides: pair("strides"),
        byte_offset: unsigned(tensor.get("byte_offset")?)?,
        deleter: tensor.get("deleter")?.as_bool()?,
    })
}
