//! Runs `dlpack.json` through structs whose deleters count.

use interop_core::protocols::dlpack::{Legacy, Versioned};
use interop_core::{DType, Device, DeviceType, Import};
use serde_json::{Map, Value};

use super::{assert_facts, assert_refused, fit, integer, numbers, run, some, text};
use crate::support::foreign_tensors::{Claims, Form};

// Included in the program, which may run on a machine without the sources.
const CORPUS: &str = include_str!("../../conformance/dlpack.json");

/// The number of bytes before and behind `data` if it is real memory.
const BEFORE: usize = 256;
const BEHIND: usize = 512;

/// The struct of a case; `memory` is for the cases whose `data` is real memory.
fn claims(tensor: &Map<String, Value>, memory: &[u8]) -> Option<Claims> {
    let device: Vec<i32> = numbers(&tensor["device"])?;
    let dtype: Vec<u16> = numbers(&tensor["dtype"])?;
    let list = |key| some(tensor, key).map(|list| numbers(list).expect("numbers of 64 bits"));
    let pair = |key| some(tensor, key).map(|pair| numbers::<u32>(pair).expect("two numbers"));
    let version = pair("version").map_or((1, 0), |version| (version[0], version[1]));
    Some(Claims {
        ndim: Some(fit(&tensor["ndim"])?),
        device: Device { device_type: DeviceType(device[0]), device_id: device[1] },
        dtype: DType::new(u8::try_from(dtype[0]).ok()?, u8::try_from(dtype[1]).ok()?, dtype[2]),
        strides: list("strides"),
        byte_offset: fit(&tensor["byte_offset"])?,
        version,
        flags: some(tensor, "flags").map_or(Some(0), fit)?,
        has_deleter: tensor["deleter"].as_bool()?,
        shape: list("shape"),
        ..Claims::at(fit(&tensor["data"]).unwrap_or(memory[BEFORE..].as_ptr().addr()), &[])
    })
}

/// Checks one case: the description of the struct through both constructors, and the number of releases.
fn judge<A: Form>(id: &str, claims: &Claims, expected: Result<&Value, &Value>) {
    let (ledger, tensor) = claims.clone().send::<A>();
    match (tensor.info(), expected) {
        (Err(error), Err(expected)) => {
            assert_refused(id, &error, expected);
            let refused = Import::from_dlpack(tensor).expect_err(id);
            assert_refused(id, &refused.error, expected);
            drop(refused);
        }
        (Ok(info), Ok(expected)) => {
            let base = claims.address as i128;
            assert_facts(id, &info, expected, base);
            let offset = integer(&expected["offset"]);
            assert_eq!(info.address() as i128, offset.map_or(0, |offset| base + offset), "{id}");
            // The legacy form has no flag for this and counts as read-only.
            assert_eq!(info.is_read_only(), expected["readonly"].as_bool().unwrap_or(true), "{id}");
            let dtype = info.dtype();
            let triple = [i64::from(dtype.code), i64::from(dtype.bits), i64::from(dtype.lanes)];
            assert_eq!(numbers(&expected["dtype"]), Some(triple.to_vec()), "{id}");
            let device = info.device();
            assert_eq!(integer(&expected["device"][0]), Some(device.device_type.0.into()), "{id}");
            assert_eq!(integer(&expected["device"][1]).unwrap_or(0), i128::from(device.device_id), "{id}");
            drop(tensor);
        }
        (found, expected) => panic!("{id}: found {found:?}, expected {expected:?}"),
    }
    assert_eq!(ledger.released(), usize::from(claims.has_deleter), "{id}");
}

/// Each struct of the corpus is released once (R54 to R92, bugs 24, 25, 68 to 91, 98 to 110, 165 to 172).
#[test]
fn every_tensor_is_judged_as_the_corpus_says() {
    let memory = vec![0; BEFORE + BEHIND];
    let all = run(CORPUS, "tensor", |id, tensor, expected| {
        let claims = claims(tensor, &memory).unwrap_or_else(|| panic!("{id} cannot be built"));
        match text(&Value::from(tensor.clone()), "form") {
            "legacy" => judge::<Legacy>(id, &claims, expected),
            _ => judge::<Versioned>(id, &claims, expected),
        }
    });
    assert!(all >= 390, "{all} cases");
}
