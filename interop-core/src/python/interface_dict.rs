//! The dict of `__cuda_array_interface__`: reads it, and creates it.
#![expect(unsafe_code, reason = "takes Python's word for a stream")]

use core::convert::Infallible;

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::array::device::Device;
use crate::array::dims::MAX_NDIM;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::MAX_DEPTH;
use crate::derive::cuda_array::CudaArray;
use crate::driver::pointer::address_for_kernels;
use crate::error::{Error, ErrorKind, text};
use crate::order::array_info::ArrayInfo;
use crate::order::handover::stream_for_interface;
use crate::protocols::cai::descr::{DescrEntry, DescrType};
use crate::protocols::cai::{CaiFields, CudaArrayInterface, VERSION};
use crate::python::convert::number;
use crate::python::errors::{Failure, origin, with_length};
use crate::python::interpreter::{NestedCall, attribute, ignore_exception, raised, release_deferred_refs};

/// Reads an interface dict or another mapping. Only the types of the values are checked.
///
/// # Errors
///
/// - `TypeError` for a value of the wrong type. The message names the key.
/// - `ArrayError` for a missing key, a number out of range, and a `descr` that is too long.
/// - Exceptions of a lookup are passed on.
///
/// ```no_run
/// use interop_core::python::extract_cai;
/// use pyo3::prelude::*;
///
/// /// Returns the size in bytes of the array that an interface dict describes.
/// #[pyfunction]
/// fn nbytes(interface: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(extract_cai(interface)?.info()?.nbytes())
/// }
/// ```
pub fn extract_cai(dict: &Bound<'_, PyAny>) -> PyResult<CudaArrayInterface> {
    Ok(interface_in(dict)?)
}

/// As [`extract_cai`], for the dict of an object whose class the message will name.
pub(crate) fn interface_in<'py>(dict: &Bound<'py, PyAny>) -> Result<CudaArrayInterface, Failure> {
    let _nested = NestedCall::enter()?;
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
    let present = |value: Option<Bound<'py, PyAny>>| value.filter(|value| !value.is_none());
    let stream = present(stream).map(|stream| number(&stream, "stream")).transpose()?;
    Ok(CudaArrayInterface {
        shape: integers(&needed(shape, "shape")?, "shape")?,
        typestr: string(&needed(typestr, "typestr")?, "typestr")?,
        data: address(&needed(data, "data")?)?,
        version: number(&needed(version, "version")?, "version")?,
        strides: present(strides).map(|strides| integers(&strides, "strides")).transpose()?,
        // SAFETY: the interface requires the producer to keep the stream alive as long as the dict is in use. Python code
        // cannot guarantee it in any other way than by following the interface.
        stream: unsafe { StreamHandle::from_cai(stream) }?,
        descr: present(descr).map(|descr| fields_in(&descr)).transpose()?,
        mask: present(mask).is_some(),
    })
}

/// Returns the values of a dict or another mapping under these interned keys.
fn values_in<'py, const N: usize>(
    dict: &Bound<'py, PyAny>,
    keys: &[&Bound<'py, PyString>; N],
) -> Result<[Option<Bound<'py, PyAny>>; N], Failure> {
    let mut values = [const { None }; N];
    let Ok(plain) = dict.cast_exact::<PyDict>() else {
        let mapping =
            dict.cast::<PyMapping>().map_err(|_| wrong("__cuda_array_interface__", dict, "a dict"))?;
        // Never looks up a missing key, because a `defaultdict` would create it. For a subclass of `dict` its own
        // methods are called.
        for (key, value) in keys.iter().zip(&mut values) {
            if mapping.contains(key)? {
                *value = Some(mapping.get_item(key)?);
            }
        }
        return Ok(values);
    };
    // Most dicts have none of the optional keys, which are the last.
    let mut left = plain.len();
    for (key, value) in keys.iter().zip(&mut values) {
        if left == 0 {
            break;
        }
        *value = plain.get_item(key)?;
        left -= usize::from(value.is_some());
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

/// As [`wrong`], for a value that may be a tuple of the wrong length.
fn miscounted(place: &str, value: &Bound<'_, PyAny>, allowed: &str) -> Failure {
    Error::new(ErrorKind::Type, place, with_length(value), allowed).into()
}

fn string(value: &Bound<'_, PyAny>, place: &str) -> Result<String, Failure> {
    let text = value.cast::<PyString>().map_err(|_| wrong(place, value, "a str"))?;
    // A lone surrogate is replaced. The check of the text then rejects it.
    let text = text.to_string_lossy();
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| Error::no_memory(text.len()))?;
    copy.push_str(&text);
    Ok(copy)
}

/// Reads a tuple of ints, or a list, which some producers write.
fn integers(value: &Bound<'_, PyAny>, place: &str) -> Result<Vec<i64>, Failure> {
    // One more than the maximum rank, which is rejected later. The limit matters if a list grows while it is read.
    const MOST: usize = MAX_NDIM + 1;
    let number = |(axis, item): (usize, PyResult<Bound<'_, PyAny>>)| {
        let place = text!("{place}[{axis}]");
        let number = number(&item?, place)?;
        i64::try_from(number)
            .map_err(|_| Error::new(ErrorKind::Overflow, place, number, "a signed 64-bit number").into())
    };
    // Without an iterator of Python, which takes as long as half of the dict.
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return tuple.iter().map(Ok).take(MOST).enumerate().map(number).collect();
    }
    if !value.is_instance_of::<PyTuple>() && !value.is_instance_of::<PyList>() {
        return Err(wrong(place, value, "a tuple of ints"));
    }
    value.try_iter()?.take(MOST).enumerate().map(number).collect()
}

/// Reads `(address, read-only)`.
fn address(value: &Bound<'_, PyAny>) -> Result<(usize, bool), Failure> {
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(|| miscounted("data", value, "a tuple (address, read-only)"))?;
    let (address, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    // Some producers write None for the address of an array without elements.
    let address = if address.is_none() { 0 } else { number(&address, "data[0]")? };
    let address = usize::try_from(address)
        .map_err(|_| Failure::from(Error::new(ErrorKind::Overflow, "data[0]", address, "an address")))?;
    // A bool of Python or NumPy, or 0 or 1.
    let readonly = match readonly.extract::<bool>() {
        Ok(readonly) => readonly,
        Err(_) => match number(&readonly, "data[1]") {
            Ok(number @ 0..=1) => number == 1,
            Err(raised @ Failure::Raised(_)) => return Err(raised),
            _ => return Err(wrong("data[1]", &readonly, "a bool")),
        },
    };
    Ok((address, readonly))
}

const ENTRIES: &str = "a list of tuples (name, type) or (name, type, shape)";

/// The maximum number of entries, including nested ones: a record of 65535 bytes can have no more.
///
/// Without a limit, a few lists that contain each other many times could exhaust the memory.
const MOST_ENTRIES: usize = 65535;

/// The maximum number of characters in names and types. Without a limit, a long text that is in every entry could
/// exhaust the memory too.
const MOST_TEXT: usize = 1 << 20;

/// The remaining limits of a `descr`.
struct Budget {
    entries: usize,
    text: usize,
}

impl Budget {
    /// Reads the text of a name or a type.
    fn text(&mut self, value: &Bound<'_, PyAny>) -> Result<String, Failure> {
        let text = value.cast::<PyString>().map_err(|_| wrong("descr", value, "a str"))?;
        // `len()` is not called, because a subclass may override it.
        let length = text.to_string_lossy().chars().count();
        self.text = self.text.checked_sub(length).ok_or_else(|| {
            let allowed = text!("names and types of {MOST_TEXT} characters at most");
            Error::new(ErrorKind::DType, "descr", "more text", allowed)
        })?;
        string(value, "descr")
    }
}

/// Reads a `descr`, of a dict or of a dtype of `NumPy`.
pub(crate) fn fields_in(descr: &Bound<'_, PyAny>) -> Result<Vec<DescrEntry>, Failure> {
    entries(descr, MAX_DEPTH, &mut Budget { entries: MOST_ENTRIES, text: MOST_TEXT })
}

/// Reads the entries of a `descr`. `depth` more lists may be nested in it, and the budget applies to all of them
/// together.
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
    // NumPy writes `(title, name)` for a field with a title.
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
        shape: match tuple.get_item(2) {
            Err(_) => Vec::new(),
            Ok(shape) if shape.is_instance_of::<PyTuple>() => integers(&shape, "descr")?,
            // A single extent may be an int instead of a tuple.
            Ok(extent) => vec![i64::try_from(number(&extent, "descr")?).unwrap_or(i64::MAX)],
        },
    })
}

/// Returns the value of `__cuda_array_interface__` for an array. For an example see [`export`](crate::python::export()).
///
/// A consumer's stream waits for the stream that the dict names, which waits for all work that is pending on the array.
///
/// # Errors
///
/// - `AttributeError` for an array that the interface cannot express, so that `hasattr` returns false: of memory that CUDA
///   cannot reach, or of elements without a code.
/// - As [`CudaArray::info`].
pub fn cuda_array_interface<'py>(
    py: Python<'py>,
    array: &(impl CudaArray + ?Sized),
) -> PyResult<Bound<'py, PyDict>> {
    release_deferred_refs(py);
    interface_of(py, &array.info()?)
}

/// As [`cuda_array_interface`], for a class of arrays.
#[doc(hidden)]
pub fn interface_dict<'py>(
    py: Python<'py>,
    array: &(impl CudaArray + ?Sized),
) -> PyResult<InterfaceDict<'py>> {
    cuda_array_interface(py, array).map(InterfaceDict)
}

/// The interface dict as the result of a method, with its type for stubs.
#[doc(hidden)]
#[derive(Debug)]
pub struct InterfaceDict<'py>(pub Bound<'py, PyDict>);

impl<'py> IntoPyObject<'py> for InterfaceDict<'py> {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = Infallible;
    crate::__python_hint! { OUTPUT_TYPE INTERFACE_DICT }

    fn into_pyobject(self, _: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(self.0)
    }
}

/// Returns the dict of an array with this description. It contains only tuples and ints, and of the optional keys always
/// `strides`.
fn interface_of<'py>(py: Python<'py>, info: &ArrayInfo) -> PyResult<Bound<'py, PyDict>> {
    let absent = |error| raised(py, PyAttributeError::new_err(format!("__cuda_array_interface__: {error}")));
    let fields = CaiFields::from_info(info).map_err(absent)?;
    // The one that kernels use.
    let address = address_for_kernels(info.address(), info.device()).map_err(absent)?;
    // The one with pending work.
    let stream = stream_for_interface(info)?;
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "shape"), PyTuple::new(py, info.shape())?)?;
    dict.set_item(intern!(py, "typestr"), &fields.typestr)?;
    dict.set_item(intern!(py, "data"), (address, info.is_read_only()))?;
    dict.set_item(intern!(py, "version"), VERSION)?;
    let strides = fields.strides.as_ref().map(|strides| PyTuple::new(py, strides)).transpose()?;
    dict.set_item(intern!(py, "strides"), strides)?;
    if let Some(stream) = stream.to_raw() {
        dict.set_item(intern!(py, "stream"), stream)?;
    }
    if let Some(descr) = &fields.descr {
        dict.set_item(intern!(py, "descr"), list_of(py, descr)?)?;
    }
    Ok(dict)
}

fn list_of<'py>(py: Python<'py>, descr: &[DescrEntry]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for entry in descr {
        let dtype = match &entry.dtype {
            DescrType::Typestr(typestr) => PyString::new(py, typestr).into_any(),
            DescrType::Nested(nested) => list_of(py, nested)?.into_any(),
        };
        if entry.shape.is_empty() {
            list.append((&entry.name, dtype))?;
        } else {
            list.append((&entry.name, dtype, PyTuple::new(py, &entry.shape)?))?;
        }
    }
    Ok(list)
}

/// Makes the array of a legacy capsule writable, if an interface dict of the object states so for the same address.
///
/// Warp has a CUDA Array Interface for device memory, and a `NumPy` array interface for host memory.
///
/// # Errors
///
/// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. A dict that cannot be read has no effect.
pub(crate) fn trust_interface(object: &Bound<'_, PyAny>, info: &mut ArrayInfo) -> PyResult<()> {
    if info.is_read_only() && ignore_exception(object.py(), states_writable(object, info))? == Some(true) {
        info.description.mutability = Mutability::Writable;
    }
    Ok(())
}

/// Returns whether `data` in the first dict of the object is `(address of the array, False)`. An array without elements
/// may have any address.
fn states_writable(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<bool> {
    let py = object.py();
    let names = [intern!(py, "__cuda_array_interface__"), intern!(py, "__array_interface__")];
    // The second name is only for host memory.
    let names = if info.device() == Device::CPU { &names[..] } else { &names[..1] };
    for name in names {
        if let Some(interface) = attribute(object, name)? {
            let data = interface.cast::<PyDict>()?.get_item(intern!(py, "data"))?;
            let Some((address, is_read_only)) = data.map(|data| address(&data)).transpose()? else { break };
            return Ok(!is_read_only && (info.numel() == 0 || address == info.unwatched_address));
        }
    }
    Ok(false)
}
