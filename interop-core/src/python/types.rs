//! What is known of a Python type, looked up once a type.
#![expect(unsafe_code, reason = "reads the exchange table that a type points to")]

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType, PyWeakrefMethods, PyWeakrefReference};

use super::ask::DlpackMethod;
use super::direct::Direct;
use super::shared::share_access;
use super::values::Values;
use crate::dlpack::{DLPackExchangeAPI, DLPackExchangeAPIHeader, MAJOR_VERSION};
use crate::fork::PerProcess;

/// A type whose objects have been imported.
pub(super) struct TypeFacts {
    /// Its address.
    address: usize,
    /// The type itself, unless it is a static one: it is not kept alive, and another may come to have its address.
    class: Option<Py<PyWeakrefReference>>,
    /// Its C exchange table.
    pub(super) exchange: Option<Table>,
    /// How its `__dlpack__` is asked.
    pub(super) method: DlpackMethod,
    /// What its objects may be beside the values in their memory.
    pub(super) values: Values,
}

impl TypeFacts {
    fn is_of(&self, py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
        let alive = |weak: &Py<PyWeakrefReference>| weak.bind(py).upgrade().is_some();
        self.address == class.addr() && self.class.as_ref().is_none_or(alive)
    }
}

/// A table of a major version that we know; it lives as long as the program.
#[derive(Clone, Copy)]
pub(super) struct Table(pub(super) NonNull<DLPackExchangeAPI>);

// SAFETY: the table does not change.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The most types that are ever remembered; a program that makes classes without end is served, but they are not remembered.
/// What is known of a class that is gone stays where it is, as another thread may be looking at it: it counts too, also if
/// another class has come to have its address.
const MOST: usize = 4096;

/// The types that are remembered, by their address; and how many ever were.
type Remembered = (HashMap<usize, &'static TypeFacts>, usize);

static KNOWN: PerProcess<Mutex<Remembered>> = PerProcess::new(|_| Mutex::default());
/// The one that was asked for last, which is nearly always the one that is asked for next.
static LAST: AtomicPtr<TypeFacts> = AtomicPtr::new(core::ptr::null_mut());

/// What is known of a type: remembered, or found for this once.
pub(super) enum Known {
    Remembered(&'static TypeFacts),
    Found(Box<TypeFacts>),
}

impl Deref for Known {
    type Target = TypeFacts;

    #[inline]
    fn deref(&self) -> &TypeFacts {
        match self {
            Self::Remembered(facts) => facts,
            Self::Found(facts) => facts,
        }
    }
}

/// What is known of the object's type.
#[inline]
pub(super) fn type_of(object: &Bound<'_, PyAny>) -> PyResult<Known> {
    // SAFETY: null, or remembered for ever.
    let last = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    match last {
        Some(last) if last.is_of(object.py(), object.get_type_ptr()) => Ok(Known::Remembered(last)),
        _ => recall(object),
    }
}

#[cold]
fn recall(object: &Bound<'_, PyAny>) -> PyResult<Known> {
    let class = object.get_type();
    let key = class.as_ptr().addr();
    let known = || KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().0.get(&key).copied();
    let facts = if let Some(facts) = found.filter(|facts| facts.is_of(class.py(), class.as_type_ptr())) {
        facts
    } else {
        // Looked up without the lock: attributes of a type can run code.
        let facts = look_up(object, &class)?;
        let mut guard = known();
        let (known, ever) = &mut *guard;
        if *ever >= MOST {
            return Ok(Known::Found(Box::new(facts)));
        }
        *ever += 1;
        let facts = &*Box::leak(Box::new(facts));
        known.insert(key, facts);
        facts
    };
    LAST.store(core::ptr::from_ref(facts).cast_mut(), Ordering::Release);
    Ok(Known::Remembered(facts))
}

fn look_up(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<TypeFacts> {
    let py = class.py();
    share_access(py)?;
    let exchange = offered(class)?;
    if let Some(table) = exchange {
        super::exchange::watch(table);
    }
    // An object with an array interface of NumPy's kind is in host memory by the definition of that interface; a class
    // for both kinds of memory has the CUDA one as well.
    let [interface, cuda, dlpack] = ["__array_interface__", "__cuda_array_interface__", "__dlpack__"];
    let has = |name| class.hasattr(name);
    let host_only = has(interface).and_then(|is| Ok(is && !has(cuda)? && has(dlpack)?));
    let host_only = asked_of_a_class(py, host_only)?.unwrap_or(false);
    // A method, and not a property, which may be there for some objects only.
    let has_method = asked_of_a_class(py, class.getattr(dlpack))?.is_some_and(|method| method.is_callable());
    // A class may say anything of its module, or nothing.
    let module = asked_of_a_class(py, class.module())?;
    let module = module.map_or_else(String::new, |module| module.to_string_lossy().into_owned());
    let method = DlpackMethod::new(
        &module,
        has_method,
        host_only,
        Direct::of(object, pyo3::intern!(py, "__dlpack__")),
    );
    let values = Values::of(class)?;
    let address = class.as_ptr().addr();
    // SAFETY: a type.
    let heap = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    let class = if heap { Some(PyWeakrefReference::new(class)?.unbind()) } else { None };
    Ok(TypeFacts { address, class, exchange, method, values })
}

/// The exchange table that a class offers, if it means its objects to be handed out by it.
fn offered(class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    let py = class.py();
    // The spelling of 1.3, then that of 1.2.
    let names = ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"];
    for name in names.into_iter().filter(|_| super::table::in_use()) {
        let value = asked_of_a_class(py, class.getattr(PyString::intern(py, name)))?;
        if let Some(table) = value.and_then(|value| table(&value)) {
            let is_overruled = asked_of_a_class(py, has_method_below(class, name))?.unwrap_or(false);
            return Ok((!is_overruled).then_some(table));
        }
    }
    Ok(None)
}

/// Whether a `__dlpack__` is in a class below the one that has the table: whoever writes that, or takes it away, does not mean
/// the table that is inherited.
fn has_method_below(class: &Bound<'_, PyType>, table: &str) -> PyResult<bool> {
    let mut method = false;
    for class in class.getattr("__mro__")?.try_iter()? {
        let own = class?.getattr("__dict__")?;
        if own.contains(table)? {
            return Ok(method);
        }
        method |= own.contains("__dlpack__")?;
    }
    Ok(false)
}

/// What a class says of itself, if it does: a metaclass may raise anything, and its objects be arrays all the same. Only an
/// interrupt is none of its answers.
pub(super) fn asked_of_a_class<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The table in an attribute, which is a capsule of this name. Anything else is no table: also an int, as which some libraries
/// had the address before 1.3. Any class can have an int, and to follow one that is no address ends the process; such a library
/// is asked by its `__dlpack__`.
fn table(value: &Bound<'_, PyAny>) -> Option<Table> {
    let name = super::table::CAPSULE.as_ptr();
    // SAFETY: any object may be asked about.
    if unsafe { ffi::PyCapsule_IsValid(value.as_ptr(), name) } == 0 {
        return None;
    }
    // SAFETY: valid under this name.
    known_version(unsafe { ffi::PyCapsule_GetPointer(value.as_ptr(), name) }.cast())
}

/// The first table of our major version, following the chain of older ones.
fn known_version(header: *mut DLPackExchangeAPIHeader) -> Option<Table> {
    let mut header = NonNull::new(header);
    // A chain has one table a major version; a circle must end too.
    for _ in 0..16 {
        // SAFETY: not null, so a table, as the protocol says of what the attribute holds.
        let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header?.read() };
        if version.major == MAJOR_VERSION {
            return header.map(|header| Table(header.cast()));
        }
        header = NonNull::new(prev_api);
    }
    None
}
