//! Imports host memory by the buffer protocol: `bytearray`, `array.array`, `ctypes` arrays, structs of `NumPy`. The fields of structs
//! are those that `NumPy` finds.
#![expect(
    unsafe_code,
    reason = "reads the C struct of the protocol, and relies on what an object states about its memory"
)]

use core::ffi::CStr;
use core::fmt;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyType};

use crate::array::buffer_format::{is_struct, read_format};
use crate::array::device::Device;
use crate::array::dims::MAX_NDIM;
use crate::array::dtype::{DType, clip};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::array::validate::{RawDescriptor, Strides};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::import::{Filled, Import, ImportSlot, Protocol};
use crate::order::array_info::ArrayInfo;
use crate::order::release::owner::Owner;
use crate::protocols::cai::descr;
use crate::python::capsule::in_capsule;
use crate::python::errors::{Failure, Unread};
use crate::python::import::type_cache::{ImportRequest, type_info};
use crate::python::interface_dict::fields_in;
use crate::python::interpreter::{PyRef, is_ordinary};

/// Fills a slot by the buffer protocol.
pub(crate) fn from_buffer(request: &ImportRequest<'_, '_>, slot: &mut ImportSlot) -> Result<Filled, Unread> {
    let object = request.object;
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        return Err(Unread::Absent);
    }
    let lent = LentBuffer::new(object)?;
    let info = lent.info(object)?;
    // In a capsule, because any thread can drop a Python object by a `PyRef`, and the garbage collector does not list a
    // capsule, so Python code cannot release the buffer.
    let owner = PyRef::new(in_capsule(object.py(), lent)?.unbind());
    // SAFETY: the object keeps the memory where it is until the buffer is released, which the owner does. The info is
    // writable only if the buffer is.
    let mut import = unsafe { Import::from_parts(info, Owner::new(owner)) };
    import.protocol = Some(Protocol::Buffer);
    Ok(slot.put(import))
}

/// Returns the fields of a struct, as `NumPy` reads its format. A format does not tell where all padding is: `NumPy` asks the class.
///
/// # Errors
///
/// `ArrayError` if `NumPy` is not installed, or cannot list the fields by increasing offsets, and for a class of `ctypes` whose format
/// leaves out where they are.
#[cold]
fn struct_type(object: &Bound<'_, PyAny>, format: &[u8], itemsize: usize) -> Result<StructType, Failure> {
    let (py, typestr) = (object.py(), format!("|V{itemsize}"));
    let unknown = |why: &dyn fmt::Display| {
        let found = text!("{:?}, which NumPy cannot read: {why}", clip(&String::from_utf8_lossy(format)));
        Error::new(ErrorKind::DType, "format", found, "a struct whose fields `numpy.asarray` finds")
    };
    let viewed = object.cast::<PyMemoryView>().ok().map(|view| view.getattr("obj")).transpose()?;
    let viewed = viewed.as_ref().unwrap_or(object);
    let left_out = &type_info(viewed)?.left_out_of_format;
    if left_out.get().is_none() {
        let _ = left_out.set(unstated(&viewed.get_type())?);
    }
    if let Some(why) = left_out.get().copied().flatten() {
        return Err(unknown(&why).into());
    }
    let dtype = || {
        py.import(intern!(py, "numpy"))?.getattr(intern!(py, "asarray"))?.call1((object,))?.getattr("dtype")
    };
    let descr = match dtype().and_then(|dtype| dtype.getattr(intern!(py, "descr"))) {
        Ok(descr) => descr,
        Err(why) if is_ordinary(py, &why) => return Err(unknown(&why).into()),
        Err(interrupt) => return Err(interrupt.into()),
    };
    let size = u16::try_from(itemsize).map_err(|why| unknown(&why))?;
    let fields = descr::read(&fields_in(&descr)?, DType::opaque(size), &typestr)?;
    Ok(fields.ok_or_else(|| unknown(&"no field has a name"))?)
}

/// Returns what the format of a class of `ctypes` leaves out, also in items and fields: `NumPy` takes bit fields for whole numbers, and
/// finds no fields of base classes.
fn unstated(class: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    if class.hasattr("_length_")? {
        return unstated(&class.getattr("_type_")?);
    }
    let mut lists = Vec::<Bound<'_, PyAny>>::new();
    for ancestor in class.cast::<PyType>()?.mro() {
        lists.extend(
            ancestor.getattr("__dict__")?.call_method1("get", ("_fields_",))?.extract::<Option<_>>()?,
        );
    }
    let [fields] = &lists[..] else {
        return Ok((!lists.is_empty()).then_some("a base class has fields, which the format leaves out"));
    };
    for field in fields.try_iter()? {
        // A bit field has its width behind its type.
        let Ok((_, item)) = field?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
            return Ok(Some("it has bit fields, which the format states as whole numbers"));
        };
        if let Some(found) = unstated(&item)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A buffer of an object, in a box of its own until its release. It may contain pointers into itself.
struct LentBuffer(*mut ffi::Py_buffer);

// SAFETY: any thread that is attached may release a buffer.
unsafe impl Send for LentBuffer {}

impl LentBuffer {
    /// # Errors
    ///
    /// Exceptions of the object.
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A buffer without an object needs no release.
        let lent = Self(Box::into_raw(Box::new(ffi::Py_buffer::new())));
        // SAFETY: the object is alive, and the pointer is valid for a write.
        let failed = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), lent.0, ffi::PyBUF_RECORDS_RO) };
        if failed == 0 { Ok(lent) } else { Err(PyErr::fetch(object.py())) }
    }

    /// The checked description of the memory.
    fn info(&self, object: &Bound<'_, PyAny>) -> Result<ArrayInfo, Failure> {
        // SAFETY: the pointer is that of a box, in which the object has filled the struct.
        let buffer = unsafe { self.0.read() };
        if buffer.obj.is_null() || buffer.ndim > 0 && buffer.shape.is_null() {
            let allowed = "a buffer with an owner and extents, as Python asks of exporters";
            return Err(Error::new(ErrorKind::NullPointer, "buffer", "a null pointer", allowed).into());
        }
        if !buffer.suboffsets.is_null() {
            let allowed = "one block of memory, without suboffsets";
            return Err(Error::new(ErrorKind::Strides, "suboffsets", "pointers to rows", allowed).into());
        }
        // SAFETY: the format is null, or a C string that lives as long as the buffer. Without one, the items are bytes.
        let format = (!buffer.format.is_null()).then(|| unsafe { CStr::from_ptr(buffer.format) });
        let format = format.map_or(&b"B"[..], CStr::to_bytes);
        let itemsize = usize::try_from(buffer.itemsize).unwrap_or_default();
        let struct_type = is_struct(format).then(|| struct_type(object, format, itemsize)).transpose()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked with the fields of the struct")]
        let dtype = if struct_type.is_some() {
            DType::opaque(itemsize as u16)
        } else {
            read_format(format, itemsize)?
        };
        let ndim = usize::try_from(buffer.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM).ok_or_else(|| {
            let found = text!("{} axes", buffer.ndim);
            Error::new(ErrorKind::Rank, "ndim", found, format_args!("0 to {MAX_NDIM} axes"))
        })?;
        // SAFETY: a list that is not null has a number for each axis, as the protocol states.
        let [shape, strides] = [buffer.shape, buffer.strides].map(|list| unsafe { numbers(list, ndim) });
        let shape = shape.unwrap_or_default();
        let descriptor = RawDescriptor {
            dtype,
            struct_type: struct_type.as_ref(),
            strides: strides.as_deref().map_or(Strides::Contiguous(Order::C), Strides::Bytes),
            mutability: if buffer.readonly == 0 { Mutability::Writable } else { Mutability::ReadOnly },
            stream: Some(StreamHandle::NothingPending),
            ..RawDescriptor::new(buffer.buf.expose_provenance(), Device::CPU, &shape)
        };
        Ok(descriptor.validate()?)
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` filled the buffer, and this releases it once. The thread is attached, because the value is local to
        // an import or in a capsule.
        unsafe { ffi::PyBuffer_Release(self.0) };
        // SAFETY: this is the box of `new`.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Returns the numbers of a list, or `None` for null.
///
/// # Safety
///
/// The pointer is null or that of `count` numbers.
unsafe fn numbers(list: *const ffi::Py_ssize_t, count: usize) -> Option<Vec<i64>> {
    // SAFETY: the place is in the list, as the caller promises.
    let number = |at: usize| unsafe { list.wrapping_add(at).read() } as i64;
    (!list.is_null()).then(|| (0..count).map(number).collect())
}
