//! Properties of Python types, cached per type.
#![expect(unsafe_code, reason = "reads the exchange table that a type points to")]

use core::cell::Cell;
use core::ops::Deref;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType, PyWeakrefMethods, PyWeakrefReference};

use crate::array::device::{Device, DeviceType};
use crate::error::Origin;
use crate::process::fork::PerProcess;
use crate::python::errors::origin_of;
use crate::python::import::capture_watch::watch;
use crate::python::import::direct_call::DirectCall;
use crate::python::import::dlpack_call::DlpackMethod;
use crate::python::import::exchange_table::{Table, TableStream, table, table_stream};
use crate::python::import::kind::Kind;
use crate::python::import::lazy_values::Values;
use crate::python::import::package::{CurrentStream, Package};
use crate::python::shared_borrows::share_borrow_table;
use crate::python::unstable_api::ignore_exception;

/// Properties of a type whose objects have been imported.
pub(crate) struct TypeInfo {
    /// The address of the type object.
    address: usize,
    /// A weak reference to the type, unless it is static. The cache does not keep the type alive, so another type may
    /// get its address.
    class: Option<Py<PyWeakrefReference>>,
    /// The library that defines the type.
    pub(crate) package: Package,
    /// Its name and library, for errors.
    pub(crate) origin: Arc<Origin>,
    /// The type's C exchange table.
    pub(crate) exchange: Option<Table>,
    /// How to call its `__dlpack__`.
    pub(crate) method: DlpackMethod,
    /// How the values of its objects relate to their memory.
    pub(crate) values: Values,
    /// The library that creates arrays of this kind. Determined on first use.
    pub(crate) kind: PyOnceLock<Kind>,
}

impl TypeInfo {
    fn is_of(&self, py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
        self.address == class.addr() && self.is_alive(py)
    }

    fn is_alive(&self, py: Python<'_>) -> bool {
        self.class.as_ref().is_none_or(|weak| weak.bind(py).upgrade().is_some())
    }

    /// Returns the stream on which the library of an object works now with memory of `device`, if that can be found out.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception means that the stream is
    /// unknown.
    pub(crate) fn current_stream<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        device: Device,
    ) -> PyResult<Option<CurrentStream<'py>>> {
        let py = object.py();
        // Host memory, also pinned and managed memory, is used on no stream in particular.
        if device.device_type != DeviceType::CUDA {
            return Ok(None);
        }
        if let Some(table) = self.exchange {
            return Ok(match table_stream(table, py, device)? {
                // The classes of this crate answer so. Their memory may be that of a library on another stream.
                TableStream::Handle(handle) if !self.package.works_on(handle) => None,
                TableStream::Handle(handle) => Some(CurrentStream { handle, owner: None }),
                TableStream::Null => {
                    self.package.stream_of_null().map(|handle| CurrentStream { handle, owner: None })
                }
                TableStream::Absent => None,
            });
        }
        Ok(ignore_exception(py, self.package.current_stream(py, device))?.flatten())
    }
}

/// The maximum number of cached types. When it is reached, types that are gone make room, or all do.
const MAX_TYPES: usize = 4096;

/// The cached types by their address.
static TYPES: PerProcess<Mutex<HashMap<usize, Arc<TypeInfo>>>> = PerProcess::new(|_| Mutex::default());

thread_local! {
    /// The entry that this thread used last, which is not in use now. Most lookups are for the same type again.
    static LAST: Cell<Option<Arc<TypeInfo>>> = const { Cell::new(None) };
}

/// The properties of a type, in use. The cache may forget the type meanwhile.
pub(crate) struct CachedType(Option<Arc<TypeInfo>>);

impl Deref for CachedType {
    type Target = TypeInfo;

    #[inline]
    fn deref(&self) -> &TypeInfo {
        self.0.as_deref().unwrap_or_else(|| unreachable!("the value is taken by the drop"))
    }
}

impl Drop for CachedType {
    #[inline]
    fn drop(&mut self) {
        let info = self.0.take();
        // At the end of a thread there is no such place.
        let _ = LAST.try_with(|last| last.set(info));
    }
}

/// Returns the properties of the object's type.
#[inline]
pub(crate) fn type_info(object: &Bound<'_, PyAny>) -> PyResult<CachedType> {
    // Taken out, so that the count of references, which other threads may use too, does not change.
    match LAST.try_with(Cell::take) {
        Ok(Some(last)) if last.is_of(object.py(), object.get_type_ptr()) => Ok(CachedType(Some(last))),
        _ => look_up_cached(object),
    }
}

#[cold]
fn look_up_cached(object: &Bound<'_, PyAny>) -> PyResult<CachedType> {
    let class = object.get_type();
    let key = class.as_ptr().addr();
    let known = || TYPES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().get(&key).cloned();
    if let Some(info) = found.filter(|info| info.is_of(class.py(), class.as_type_ptr())) {
        return Ok(CachedType(Some(info)));
    }
    // Computed without the lock, because attribute lookups can run Python code.
    let info = Arc::new(look_up(object, &class)?);
    let mut known = known();
    let forgotten = if known.len() < MAX_TYPES { Vec::new() } else { make_room(object.py(), &mut known) };
    let replaced = known.insert(key, Arc::clone(&info));
    // Dropped without the lock: the drop of a Python object may run Python code.
    drop(known);
    drop((replaced, forgotten));
    Ok(CachedType(Some(info)))
}

/// Removes the types that are gone; all types, if less than half of them are.
#[cold]
fn make_room(py: Python<'_>, known: &mut HashMap<usize, Arc<TypeInfo>>) -> Vec<Arc<TypeInfo>> {
    let gone = known.values().filter(|info| !info.is_alive(py)).count();
    let keys: Vec<usize> = known
        .iter()
        .filter(|(_, info)| gone < MAX_TYPES / 2 || !info.is_alive(py))
        .map(|(key, _)| *key)
        .collect();
    keys.iter().filter_map(|key| known.remove(key)).collect()
}

fn look_up(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<TypeInfo> {
    let py = class.py();
    share_borrow_table(py)?;
    let exchange = offered(class)?;
    // An object with NumPy's `__array_interface__` is in host memory, by definition of that interface. A class for both
    // kinds of memory also has `__cuda_array_interface__`.
    let [interface, cuda, dlpack] = ["__array_interface__", "__cuda_array_interface__", "__dlpack__"];
    let has = |name| class.hasattr(name);
    let host_only = has(interface).and_then(|is| Ok(is && !has(cuda)? && has(dlpack)?));
    let host_only = ignore_exception(py, host_only)?.unwrap_or(false);
    // It must be callable: a property may exist for some objects only.
    let has_method = ignore_exception(py, class.getattr(dlpack))?.is_some_and(|method| method.is_callable());
    let package = Package::of(class)?;
    watch(exchange, package);
    let direct = DirectCall::of(object, pyo3::intern!(py, "__dlpack__"));
    let mut method = DlpackMethod::new(package, has_method, host_only, direct);
    method.is_of_numpy = host_only && has_method_of_numpy(class)?;
    let values = Values::of(class)?;
    let address = class.as_ptr().addr();
    // SAFETY: the argument is a type.
    let heap = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    let class = if heap { Some(PyWeakrefReference::new(class)?.unbind()) } else { None };
    Ok(TypeInfo {
        address,
        class,
        package,
        origin: Arc::new(origin_of(object)),
        exchange,
        method,
        values,
        kind: PyOnceLock::new(),
    })
}

/// Returns whether a class has the `__dlpack__` of `numpy.ndarray`, not one of its own.
fn has_method_of_numpy(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let module = class
        .getattr(pyo3::intern!(py, "__dlpack__"))
        .and_then(|method| {
            method.getattr(pyo3::intern!(py, "__objclass__"))?.getattr(pyo3::intern!(py, "__module__"))
        })
        .and_then(|module| module.eq("numpy"));
    Ok(ignore_exception(py, module)?.unwrap_or(false))
}

/// Returns the exchange table of a class, unless a `__dlpack__` of a subclass takes precedence.
pub(crate) fn offered(class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    let py = class.py();
    // The name since DLPack 1.3, then that of 1.2.
    let names = ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"];
    for name in names.into_iter().filter(|_| crate::python::import::exchange_table::in_use()) {
        let value = ignore_exception(py, class.getattr(PyString::intern(py, name)))?;
        if let Some(table) = value.and_then(|value| table(&value)) {
            let is_overruled = ignore_exception(py, has_method_below(class, name))?.unwrap_or(false);
            return Ok((!is_overruled).then_some(table));
        }
    }
    Ok(None)
}

/// Returns whether a subclass of the class with the table defines `__dlpack__`. A class that overrides or removes the
/// method does not intend the inherited table.
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
