//! Properties of a Python type: its library, its exchange table, what its memory does not tell. Each thread caches them for
//! the types that it imports, so a lookup needs no lock.
#![expect(unsafe_code, reason = "reads the exchange table that a type points to")]

use core::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType, PyWeakrefMethods, PyWeakrefReference};
use pyo3::{ffi, intern};

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::driver::reach::contain_panic;
use crate::driver::stream::is_capturing;
use crate::error::Origin;
use crate::memory::import::Import;
use crate::order::memory_check::Verification;
use crate::order::placement::Change;
use crate::order::release::hold::set_capture_hook;
use crate::process::fork::PerProcess;
use crate::python::capsule::share_record;
use crate::python::errors::origin_of;
use crate::python::import::caveats::{Autograd, Caveat};
use crate::python::import::exchange_table::{ExchangeTable, WorkStream};
use crate::python::import::numpy_array::NumPyClass;
use crate::python::import::package::{CurrentStream, Package};
use crate::python::interpreter::{
    PyRef, free_detached, ignore_exception, imported, is_attached, truth_of, with_saved_exception,
};

/// Properties of a type whose objects have been imported.
pub(crate) struct TypeInfo {
    /// The address of the type object.
    address: usize,
    /// A weak reference to the type, unless it is static. The cache does not keep the type alive, so another type may
    /// get its address.
    class: Option<PyRef>,
    /// The library that defines the type.
    pub(crate) library: Library,
    /// Its name and library, for errors.
    pub(crate) origin: Arc<Origin>,
    /// The protocols by which its objects are read, in their order.
    pub(crate) readers: Vec<Reader>,
    /// What the memory of its objects may not tell.
    pub(crate) caveat: Option<Caveat>,
    /// What tells of writes to its objects, which are tensors of `PyTorch`.
    pub(crate) autograd: Option<Arc<Autograd>>,
    /// What the format of its buffers does not tell of structs. Found on first use.
    pub(crate) left_out_of_format: OnceCell<Option<&'static str>>,
    /// The module whose `from_dlpack` creates arrays of this kind, if there is one. Found on first use.
    pub(crate) importer: OnceCell<Option<Arc<PyRef>>>,
}

impl TypeInfo {
    fn describes(&self, py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
        self.address == class.addr() && self.is_alive(py)
    }

    fn is_alive(&self, py: Python<'_>) -> bool {
        self.class.as_ref().is_none_or(|class| {
            let weak = class.object().bind(py).cast::<PyWeakrefReference>();
            weak.is_ok_and(|weak| weak.upgrade().is_some())
        })
    }
}

/// An object to import.
pub(crate) struct ImportRequest<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// The cached properties of the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the one on which the library of the object works, or the legacy default
    /// stream if that cannot be found out.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

/// A protocol that objects of a class may support, with what it knows of the class.
pub(crate) enum Reader {
    NumPy(NumPyClass),
    Dlpack(DlpackClass),
    Interface,
    Buffer,
}

/// What is known of the `__dlpack__` of a class.
pub(crate) struct DlpackClass {
    /// Whether the class has the method. Otherwise each object must be checked.
    pub(crate) has_method: bool,
    /// Whether the method is defined in C, by the class that also defines how its memory is lent as a buffer. A Python
    /// subclass that overrides the method does not intend the inherited buffer.
    pub(crate) is_native: bool,
    /// The device on which the arrays are expected.
    pub(crate) expected_device: Cell<ExpectedDevice>,
}

impl ImportRequest<'_, '_> {
    /// States that the library of an import works on streams that it does not name, unless the caller has named one. JAX
    /// does so too, but never writes an array again.
    pub(crate) fn note_hidden_streams(&self, import: &mut Import) {
        let is_changed = self.class.library.package != Package::Jax;
        if is_changed && self.stream.is_none() && import.info().device() != Device::CPU {
            import.change(Change::Hides);
        }
    }
}

/// The device on which all arrays of a class have been so far, if it predicts that of the next one.
///
/// `__dlpack__` is called as for an array on that device. If the capsule states another device, the import starts again
/// with `__dlpack_device__`, and so do all later imports of the class.
#[derive(Clone, Copy)]
pub(crate) enum ExpectedDevice {
    /// No array has been imported yet.
    New,
    Device(Device),
    /// The device is not predicted, because there were several or it is unknown.
    None,
}

/// The C exchange table of a type, and the package that defines the type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) exchange: Option<ExchangeTable>,
    pub(crate) package: Package,
}

impl Library {
    /// Returns the stream on which the library works now with memory of `device`, if that can be found out.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception means that the stream is
    /// unknown.
    pub(crate) fn current_stream(
        self,
        py: Python<'_>,
        device: Device,
    ) -> PyResult<Option<CurrentStream<'_>>> {
        // Host memory, also pinned and managed memory, is used on no stream in particular.
        if device.device_type != DeviceType::CUDA {
            return Ok(None);
        }
        let Some(table) = self.exchange else {
            return Ok(ignore_exception(py, self.package.current_stream(py, device))?.flatten());
        };
        Ok(match table.current_stream(self.package, py, device)? {
            WorkStream::Handle(handle) if self.package.works_on(handle) => {
                Some(CurrentStream { handle, owner: None })
            }
            // The classes of this crate name a stream on which they do not work. Their memory may be that of a library on
            // another stream.
            _ => None,
        })
    }
}

/// The maximum number of cached types of a thread.
const MAX_TYPES: usize = 64;

thread_local! {
    /// The types whose objects this thread has imported, the latest first.
    static TYPES: RefCell<Vec<Rc<TypeInfo>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the properties of the object's type.
#[inline]
pub(crate) fn type_info(object: &Bound<'_, PyAny>) -> PyResult<Rc<TypeInfo>> {
    let (py, class) = (object.py(), object.get_type_ptr());
    let cached = TYPES
        .try_with(|types| types.try_borrow().ok()?.iter().find(|info| info.describes(py, class)).cloned());
    match cached {
        Ok(Some(info)) => Ok(info),
        _ => look_up_uncached(object),
    }
}

#[cold]
fn look_up_uncached(object: &Bound<'_, PyAny>) -> PyResult<Rc<TypeInfo>> {
    // Attribute lookups can run Python code, which may come back here.
    let info = Rc::new(look_up(object, &object.get_type())?);
    // At the end of a thread there is no such place, and while a type is dropped it is in use.
    let _ = TYPES.try_with(|types| {
        let Ok(mut types) = types.try_borrow_mut() else { return };
        types.retain(|info| info.is_alive(object.py()));
        types.truncate(MAX_TYPES - 1);
        types.insert(0, Rc::clone(&info));
    });
    Ok(info)
}

fn look_up(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<TypeInfo> {
    let py = class.py();
    share_record(py)?;
    // Also for a module that only changes arrays of others, in long launches on the CPU.
    free_detached();
    // An object with NumPy's `__array_interface__` is in host memory, by definition of that interface. A class for both
    // kinds of memory also has `__cuda_array_interface__`.
    let [interface, cuda, dlpack] = ["__array_interface__", "__cuda_array_interface__", "__dlpack__"];
    let has = |name| class.hasattr(name);
    let host_only = has(interface).and_then(|is| Ok(is && !has(cuda)? && has(dlpack)?));
    let host_only = ignore_exception(py, host_only)?.unwrap_or(false);
    let package = Package::from_class(class)?;
    let library = Library { exchange: ExchangeTable::from_class(class)?, package };
    watch(library);
    let method = ignore_exception(py, class.getattr(dlpack))?;
    let mut readers = Vec::new();
    if let Some(method) = method.as_ref().filter(|_| package == Package::NumPy) {
        readers.extend(ignore_exception(py, NumPyClass::new(class, method))?.flatten().map(Reader::NumPy));
    }
    // Objects of other classes, such as `bytearray`, may have attributes that their class lacks.
    let is_fixed = has_fixed_attributes(class);
    if !is_fixed || library.exchange.is_some() || has(dlpack)? {
        let expected_device = match package {
            _ if host_only => ExpectedDevice::Device(Device::CPU),
            // Here `__dlpack_device__` and the capsule always state the same device. A call of `__dlpack_device__` costs as
            // much as the capsule, and more in JAX.
            Package::Jax | Package::CuPy => ExpectedDevice::New,
            _ => ExpectedDevice::None,
        };
        readers.push(Reader::Dlpack(DlpackClass {
            // A property may exist for some objects only.
            has_method: method.as_ref().is_some_and(PyAnyMethods::is_callable),
            is_native: method.is_some_and(|method| is_method_of(&method, class)),
            expected_device: Cell::new(expected_device),
        }));
    }
    if !is_fixed || has(cuda)? {
        readers.push(Reader::Interface);
    }
    readers.push(Reader::Buffer);
    let caveat = Caveat::from_class(class)?;
    let autograd = if package == Package::PyTorch { Some(Autograd::new(py)?) } else { None };
    let address = class.as_ptr().addr();
    // SAFETY: the argument is a type.
    let heap = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    let class =
        if heap { Some(PyRef::new(PyWeakrefReference::new(class)?.into_any().unbind())) } else { None };
    Ok(TypeInfo {
        address,
        class,
        library,
        origin: Arc::new(origin_of(object)),
        readers,
        caveat,
        autograd,
        left_out_of_format: OnceCell::new(),
        importer: OnceCell::new(),
    })
}

/// Returns whether an attribute is a method that was defined in C for the class or a base. Only such an attribute is
/// known to be the same function for every object.
fn is_method_of(attribute: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    let descriptor = (&raw const ffi::PyMethodDescr_Type).cast_mut();
    if attribute.get_type_ptr() != descriptor {
        return false;
    }
    let owner = attribute.getattr("__objclass__");
    owner.is_ok_and(|owner| class.is_subclass(&owner).unwrap_or(false))
}

/// Returns whether a lookup finds the same attributes for all objects of a class, at any time: it is static, and its
/// objects have no dict.
fn has_fixed_attributes(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the argument is a type.
    let changes = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    // SAFETY: the arguments are a type and the number of a slot that holds a function.
    let lookup = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_getattro) };
    let generic: unsafe extern "C" fn(_, _) -> _ = ffi::PyObject_GenericGetAttr;
    // A metaclass may override attribute lookups on the class.
    let plain = class.get_type().is(class.py().get_type::<PyType>());
    let dict = || class.getattr("__dictoffset__").and_then(|offset| offset.extract::<isize>());
    !changes && plain && lookup.addr() == generic as usize && dict().is_ok_and(|offset| offset == 0)
}

/// The libraries that were seen and tell their current stream without one of their arrays. A list that grows leaks its
/// predecessor; there are only as many as libraries.
static WATCHED: PerProcess<Mutex<&[Library]>> = PerProcess::new(|_| Mutex::new(&[]));

/// The libraries with a module that tells their current stream.
const WITH_STREAM: [Package; 3] = [Package::PyTorch, Package::CuPy, Package::Warp];

/// Returns the libraries that are loaded, but of which no class was seen. They may capture a graph all the same.
fn loaded(py: Python<'_>, seen: &[Library]) -> impl Iterator<Item = Library> {
    let is_loaded = move |package: &Package| {
        let module = imported(&PyString::intern(py, package.module()));
        module.is_some_and(|module| match package {
            // A question for its stream would initialize CUDA.
            Package::PyTorch => module
                .getattr(intern!(py, "cuda"))
                .is_ok_and(|cuda| matches!(truth_of(&cuda, intern!(py, "is_initialized")), Ok(Some(true)))),
            _ => true,
        })
    };
    let is_new = |package: &Package| seen.iter().all(|library| library.package != *package);
    let packages = WITH_STREAM.into_iter().filter(is_new).filter(is_loaded);
    packages.map(|package| Library { exchange: None, package }).collect::<Vec<_>>().into_iter()
}

/// Makes releases of CUDA memory check whether the library of a class captures a graph, or one that is loaded.
fn watch(library: Library) {
    set_capture_hook(library_captures);
    if library.exchange.is_none()
        && !matches!(library.package, Package::PyTorch | Package::CuPy | Package::Warp | Package::TvmFfi)
    {
        return;
    }
    let mut watched = WATCHED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !watched.contains(&library) {
        *watched = Vec::leak([*watched, &[library]].concat());
    }
}

/// Returns whether the current stream of a library captures a graph, for this thread and for one device or all devices.
fn library_captures(device: Option<i32>) -> bool {
    if !is_attached() {
        return false;
    }
    // SAFETY: the check above found the thread attached.
    let py = unsafe { Python::assume_attached() };
    let watched = *WATCHED.get().lock().unwrap_or_else(PoisonError::into_inner);
    let devices = device.map_or(0..cuda::device_count(), |ordinal| ordinal..ordinal + 1);
    let mut found = false;
    let ask = || {
        found = watched.iter().copied().chain(loaded(py, watched)).any(|library| {
            // A release cannot raise an exception.
            let stream = |ordinal| library.current_stream(py, Device::cuda(ordinal)).ok().flatten();
            devices.clone().filter_map(stream).any(|stream| is_capturing(stream.handle))
        });
    };
    // A release may run while an exception is set, and `PyErr::take` resumes a panic that was raised as one.
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| contain_panic(ask)) };
    found
}
