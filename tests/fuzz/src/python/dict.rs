//! Interface dicts: a legal or illegal interface, written in the ways that producers do, or with arbitrary values.

use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::python::extract_cai;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::outcome::{MAY_BE_CAUSED, OWN, REFUSED, TYPE, judge};
use super::values::Value;
use super::world::World;
use crate::dict;
use crate::input::Input;

const KEYS: [&str; 8] = ["shape", "typestr", "data", "version", "strides", "stream", "descr", "mask"];
/// Several values may be wrong, and it is not specified which one is reported.
const ANY: u16 = TYPE | MAY_BE_CAUSED | REFUSED | OWN;

/// Reads a dict.
pub(super) fn run(world: &World<'_>, input: &mut Input<'_>) {
    let (spelling, replaced) = (input.byte(), input.byte());
    let values: Vec<(&str, Value)> =
        (0..replaced % 4).map(|_| (KEYS[usize::from(input.byte() % 8)], Value::read(input))).collect();
    let mut interface = dict::read(input);
    // The conversion of records back to Python is covered by other tests.
    interface.descr = None;
    let made = spelled(world, &interface, spelling).expect("a dict");
    for (key, value) in &values {
        made.set_item(key, value.object(world).expect("a value")).expect("a key");
    }
    let object = match spelling % 4 {
        0 => world.call("Dict", (made,)).expect("a dict"),
        _ => made.into_any(),
    };
    let told = (&interface, &values);
    if !values.is_empty() {
        // The result is a description or an error of the interface, and reading it again gives the same result.
        let read = || extract_cai(&object).and_then(|found| Ok(found.info()?));
        match (read(), read()) {
            (Ok(first), Ok(second)) => assert_eq!(first, second, "{told:?}"),
            (Err(first), Err(second)) => {
                assert_eq!(first.to_string(), second.to_string(), "{told:?}");
                judge::<(), ()>(world, Err(first), Err(ANY), &told);
            }
            (first, second) => panic!("{first:?} and {second:?}: {told:?}"),
        }
        return;
    }
    if let Some((found, ())) = judge(world, extract_cai(&object), Ok(()), &told) {
        compare(&found, &interface);
    }
}

/// Compares two interfaces, ignoring axes beyond the maximum number, which are not read.
fn compare(found: &CudaArrayInterface, given: &CudaArrayInterface) {
    let cut = |list: &Vec<i64>| list[..list.len().min(65)].to_vec();
    let given = CudaArrayInterface {
        shape: cut(&given.shape),
        strides: given.strides.as_ref().map(cut),
        ..given.clone()
    };
    assert_eq!(*found, given);
}

/// Converts the interface to a dict.
fn spelled<'py>(
    world: &World<'py>,
    interface: &CudaArrayInterface,
    spelling: u8,
) -> PyResult<Bound<'py, PyDict>> {
    let py = world.py();
    let number = |number: i128| {
        let number = number.into_bound_py_any(py)?;
        if spelling & 4 == 0 { Ok(number) } else { world.call("Index", (number,)) }
    };
    let list = |numbers: &[i64]| {
        let numbers = numbers.iter().map(|item| number((*item).into())).collect::<PyResult<Vec<_>>>()?;
        Ok::<_, PyErr>(if spelling & 8 == 0 {
            PyTuple::new(py, numbers)?.into_any()
        } else {
            PyList::new(py, numbers)?.into_any()
        })
    };
    let CudaArrayInterface {
        shape, typestr, data: (address, readonly), version, strides, stream, mask, ..
    } = interface;
    let dict = PyDict::new(py);
    dict.set_item("shape", list(shape)?)?;
    dict.set_item("typestr", typestr)?;
    let readonly = if spelling & 0x10 == 0 {
        readonly.into_bound_py_any(py)?
    } else {
        i32::from(*readonly).into_bound_py_any(py)?
    };
    dict.set_item("data", (number(*address as i128)?, readonly))?;
    dict.set_item("version", number(*version)?)?;
    let or_none = |value: Option<PyResult<Bound<'py, PyAny>>>, key: &str| match value {
        Some(value) => dict.set_item(key, value?),
        None if spelling & 0x20 != 0 => dict.set_item(key, py.None()),
        None => Ok(()),
    };
    or_none(strides.as_deref().map(list), "strides")?;
    or_none(stream.to_raw().map(|stream| number(stream as i128)), "stream")?;
    or_none(mask.then(|| "a mask".into_bound_py_any(py)), "mask")?;
    if spelling & 0x40 != 0 {
        dict.set_item("other", py.None())?;
    }
    Ok(dict)
}
