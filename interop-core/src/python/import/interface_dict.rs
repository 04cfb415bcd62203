//! `__cuda_array_interface__` dicts.
#![expect(
    unsafe_code,
    reason = "goes through a dict past PyO3, which panics where another thread changes it meanwhile; takes Python's word for a stream"
)]

use core::ptr::null_mut;

use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyMapping, PyString, PyTuple};
use pyo3::{ffi, intern};

use crate::array::dims::MAX_NDIM;
use crate::array::stream::StreamHandle;
use crate::error::{Error, ErrorKind, text};
use crate::protocols::cai::CudaArrayInterface;
use crate::protocols::cai::descr::{DescrEntry, DescrType, MAX_DEPTH};
use crate::python::convert::number;
use crate::python::errors::{Failure, origin, with_length};

/// Reads an interface dict, key by key; any mapping will do. Nothing is checked but the types of the values.
///
/// # Errors
///
/// `TypeError` for values of another type than the interface says, with the key; `ArrayError` for a missing key, for numbers
/// that do not fit and a `descr` that is too long; what a lookup raises is passed on.
///
/// ```no_run
/// use interop_core::python::extract_interface;
/// use pyo3::prelude::*;
///
/// /// How many bytes the array has that a `__cuda_array_interface__` is of.
/// #[pyfunction]
/// fn nbytes(interface: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(extract_interface(interface)?.info()?.nbytes())
/// }
/// ```
pub fn extract_interface(dict: &Bound<'_, PyAny>) -> PyResult<CudaArrayInterface> {
    Ok(interface_in(dict)?)
}

/// The stream that a dict names.
fn pending_on(number: Option<i128>) -> crate::error::Result<StreamHandle> {
    // SAFETY: the interface asks the producer for a stream that is alive as long as the dict is in use, and Python code has no
    // way to promise so but to follow it.
    unsafe { StreamHandle::from_cai(number) }
}

/// As [`extract_interface`], for a dict of an object whose class the message will name.
pub(crate) fn interface_in<'py>(dict: &Bound<'py, PyAny>) -> Result<CudaArrayInterface, Failure> {
    let py = dict.py();
    let keys = [
        intern!(py, "shape"),
        intern!(py, "typestr"),
        intern!(py, "data"),
        intern!(py, "version"),
        intern!(py, "strides"),
        intern!(py, "stream"),
        intern!(py, "descr"),
        intern!(py, "mask"),
    ];
    let [shape, typestr, data, version, strides, stream, descr, mask] = values_in(dict, &keys)?;
    let given = |value: Option<Bound<'py, PyAny>>| value.filter(|value| !value.is_none());
    Ok(CudaArrayInterface {
        shape: integers(&needed(shape, "shape")?, "shape")?,
        typestr: string(&needed(typestr, "typestr")?, "typestr")?,
        data: address(&needed(data, "data")?)?,
        version: number(&needed(version, "version")?, "version")?,
        strides: given(strides).map(|strides| integers(&strides, "strides")).transpose()?,
        stream: pending_on(given(stream).map(|stream| number(&stream, "stream")).transpose()?)?,
        descr: given(descr)
            .map(|descr| entries(&descr, MAX_DEPTH, &mut Budget { entries: MOST_ENTRIES, text: MOST_TEXT }))
            .transpose()?,
        mask: given(mask).is_some(),
    })
}

/// The values of a dict or another mapping under these keys, which are interned.
fn values_in<'py, const N: usize>(
    dict: &Bound<'py, PyAny>,
    keys: &[&Bound<'py, PyString>; N],
) -> Result<[Option<Bound<'py, PyAny>>; N], Failure> {
    let mut values = [const { None }; N];
    let Ok(plain) = dict.cast_exact::<PyDict>() else {
        let mapping =
            dict.cast::<PyMapping>().map_err(|_| wrong("__cuda_array_interface__", dict, "a dict"))?;
        // Never `mapping[key]` for a key that is not there: a `defaultdict` would make one up. A subclass of `dict` is asked
        // by its own methods.
        for (key, value) in keys.iter().zip(&mut values) {
            if mapping.contains(key)? {
                *value = Some(mapping.get_item(key)?);
            }
        }
        return Ok(values);
    };
    // Keys that are written down in a program are interned too. To meet all of them costs less than to look up each of ours.
    let strange = with_critical_section(plain, || {
        let (mut place, mut key, mut value, mut strange) = (0, null_mut(), null_mut(), false);
        // SAFETY: a dict, and places for what is met. Nobody changes it meanwhile: no code runs between two calls, and its own
        // lock is held where there is no other.
        while unsafe { ffi::PyDict_Next(plain.as_ptr(), &raw mut place, &raw mut key, &raw mut value) } != 0 {
            match keys.iter().position(|ours| ours.as_ptr() == key) {
                // SAFETY: an object that the dict holds.
                Some(at) => values[at] = Some(unsafe { Bound::from_borrowed_ptr(plain.py(), value) }),
                None => strange = true,
            }
        }
        strange
    });
    if strange {
        for (key, value) in keys.iter().zip(&mut values).filter(|(_, value)| value.is_none()) {
            *value = plain.get_item(key)?;
        }
    }
    Ok(values)
}

fn needed<'py>(value: Option<Bound<'py, PyAny>>, key: &str) -> Result<Bound<'py, PyAny>, Failure> {
    value.ok_or_else(|| {
        let allowed = "the keys shape, typestr, data and version, which every array interface has";
        Error::new(ErrorKind::MissingKey, key, "no such key", allowed).into()
    })
}

fn wrong(place: &str, value: &Bound<'_, PyAny>, allowed: &str) -> Failure {
    Error::new(ErrorKind::Type, place, origin(value), allowed).into()
}

/// As [`wrong`], where a tuple may be one of another length.
fn miscounted(place: &str, value: &Bound<'_, PyAny>, allowed: &str) -> Failure {
    Error::new(ErrorKind::Type, place, with_length(value), allowed).into()
}

fn string(value: &Bound<'_, PyAny>, place: &str) -> Result<String, Failure> {
    let text = value.cast::<PyString>().map_err(|_| wrong(place, value, "a str"))?;
    // A lone surrogate is replaced, and refused for what it is in its place.
    let text = text.to_string_lossy();
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| Error::no_memory(text.len()))?;
    copy.push_str(&text);
    Ok(copy)
}

/// A tuple of ints, or a list of them, which some producers write.
fn integers(value: &Bound<'_, PyAny>, place: &str) -> Result<Vec<i64>, Failure> {
    // One more than an array can have is enough to be refused, should a list grow while it is read.
    const MOST: usize = MAX_NDIM + 1;
    let number = |(axis, item): (usize, PyResult<Bound<'_, PyAny>>)| {
        let item = item?;
        // Most are plain and small, and need no name for a message.
        if item.is_exact_instance_of::<PyInt>() {
            if let Ok(number) = item.extract() {
                return Ok(number);
            }
        }
        let place = format!("{place}[{axis}]");
        let number = number(&item, &place)?;
        i64::try_from(number)
            .map_err(|_| Error::new(ErrorKind::Overflow, &place, number, "a signed 64-bit number").into())
    };
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return tuple.iter().map(Ok).take(MOST).enumerate().map(number).collect();
    }
    if !value.is_instance_of::<PyTuple>() && !value.is_instance_of::<PyList>() {
        return Err(wrong(place, value, "a tuple of ints"));
    }
    value.try_iter()?.take(MOST).enumerate().map(number).collect()
}

/// `(address, read-only)`.
pub(crate) fn address(value: &Bound<'_, PyAny>) -> Result<(usize, bool), Failure> {
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(|| miscounted("data", value, "a tuple (address, read-only)"))?;
    let (address, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    // Some producers write None for the address of an array without elements.
    let address = if address.is_none() { 0 } else { number(&address, "data[0]")? };
    let address = usize::try_from(address)
        .map_err(|_| Failure::from(Error::new(ErrorKind::Overflow, "data[0]", address, "an address")))?;
    let readonly = match readonly.cast::<PyBool>() {
        Ok(readonly) => readonly.is_true(),
        // A NumPy bool, or 0 and 1.
        Err(_) => match readonly.extract::<bool>() {
            Ok(readonly) => readonly,
            Err(_) => match number(&readonly, "data[1]") {
                Ok(number @ 0..=1) => number == 1,
                Err(raised @ Failure::Raised(_)) => return Err(raised),
                _ => return Err(wrong("data[1]", &readonly, "a bool")),
            },
        },
    };
    Ok((address, readonly))
}

const ENTRIES: &str = "a list of tuples (name, type) or (name, type, shape)";

/// The most entries that a record of 65535 bytes can have, nested ones counted: a few lists that name each other many
/// times would otherwise be more than fits the memory.
const MOST_ENTRIES: usize = 65535;

/// The most characters of their names and types: one long text that stands in every entry would be as much.
const MOST_TEXT: usize = 1 << 20;

/// What is left of a `descr`.
struct Budget {
    entries: usize,
    text: usize,
}

impl Budget {
    /// The text of a name or a type.
    fn text(&mut self, value: &Bound<'_, PyAny>) -> Result<String, Failure> {
        let text = value.cast::<PyString>().map_err(|_| wrong("descr", value, "a str"))?;
        // Not by `len()`, of which a subclass may have its own.
        let length = text.to_string_lossy().chars().count();
        self.text = self.text.checked_sub(length).ok_or_else(|| {
            let allowed = text!("names and types of {MOST_TEXT} characters at most");
            Error::new(ErrorKind::DType, "descr", "more text", allowed)
        })?;
        string(value, "descr")
    }
}

/// The entries of `descr`; `depth` more lists may be nested in it, with what is left of the budget in all.
fn entries(value: &Bound<'_, PyAny>, depth: usize, budget: &mut Budget) -> Result<Vec<DescrEntry>, Failure> {
    let list = value.cast::<PyList>().map_err(|_| wrong("descr", value, ENTRIES))?;
    let depth = depth.checked_sub(1).ok_or_else(|| {
        let allowed = text!("lists nested {MAX_DEPTH} deep at most");
        Error::new(ErrorKind::DType, "descr", "a list nested deeper, or in itself", allowed)
    })?;
    budget.entries = budget.entries.checked_sub(list.len()).ok_or_else(|| {
        Error::new(ErrorKind::DType, "descr", "more entries", format_args!("{MOST_ENTRIES} entries at most"))
    })?;
    list.iter().map(|item| entry(&item, depth, budget)).collect()
}

fn entry(item: &Bound<'_, PyAny>, depth: usize, budget: &mut Budget) -> Result<DescrEntry, Failure> {
    let tuple = item.cast::<PyTuple>().ok().filter(|tuple| matches!(tuple.len(), 2 | 3));
    let tuple = tuple.ok_or_else(|| miscounted("descr", item, ENTRIES))?;
    let (name, dtype) = (tuple.get_item(0)?, tuple.get_item(1)?);
    // NumPy writes (title, name) where a field has a title.
    let name = match name.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => pair.get_item(1)?,
        _ => name,
    };
    Ok(DescrEntry {
        name: budget.text(&name)?,
        dtype: if dtype.is_instance_of::<PyList>() {
            DescrType::Nested(entries(&dtype, depth, budget)?)
        } else {
            DescrType::Typestr(budget.text(&dtype)?)
        },
        shape: if tuple.len() == 3 { shape_of(&tuple.get_item(2)?)? } else { Vec::new() },
    })
}

fn shape_of(value: &Bound<'_, PyAny>) -> Result<Vec<i64>, Failure> {
    match value.cast::<PyTuple>() {
        Ok(_) => integers(value, "descr"),
        // A single extent may stand without a tuple.
        Err(_) => Ok(vec![i64::try_from(number(value, "descr")?).unwrap_or(i64::MAX)]),
    }
}
