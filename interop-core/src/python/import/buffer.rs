//! Imports host memory by the buffer protocol: `bytearray`, `array.array`, `ctypes` arrays, structs of `NumPy`.
#![expect(
    unsafe_code,
    reason = "reads the C struct of the protocol, and relies on what an object states about its memory"
)]

use core::ffi::CStr;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::array::buffer_format::read_format;
use crate::array::device::Device;
use crate::array::dims::MAX_NDIM;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::array::validate::{RawDescriptor, Strides};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::import::{Import, ImportSlot, Protocol};
use crate::order::array_info::ArrayInfo;
use crate::order::release::owner::Owner;
use crate::python::capsule::in_capsule;
use crate::python::errors::with_origin;
use crate::python::import::type_cache::{ImportRequest, ProtocolResult};
use crate::python::interpreter::{PyRef, attribute};

/// Fills a slot by the buffer protocol.
pub(crate) fn from_buffer(request: &ImportRequest<'_, '_>, slot: &mut ImportSlot) -> ProtocolResult {
    let object = request.object;
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        return Ok(None);
    }
    let lent = LentBuffer::new(object)?;
    let info = lent.info()?;
    if let Some(struct_type) = info.struct_type() {
        check_ctypes(object, struct_type)?;
    }
    // In a capsule, because any thread can drop a Python object by a `PyRef`, and the garbage collector does not list a
    // capsule, so Python code cannot release the buffer.
    let owner = PyRef::new(in_capsule(object.py(), lent)?.unbind());
    // SAFETY: the object keeps the memory where it is until the buffer is released, which the owner does. The info is
    // writable only if the buffer is.
    let mut import = unsafe { Import::from_parts(info, Owner::new(owner)) };
    import.protocol = Some(Protocol::Buffer);
    Ok(Some(slot.put(import)))
}

/// Compares the fields with those of a `ctypes` class. Its formats state a bit field as a whole number, and a union, a packed
/// struct and the fields of a base class not at all.
///
/// # Errors
///
/// `ArrayError` for a field at another place or of another size; exceptions of the class.
#[cold]
fn check_ctypes(object: &Bound<'_, PyAny>, struct_type: &StructType) -> PyResult<()> {
    let mut owner = object.clone();
    while owner.is_instance_of::<PyMemoryView>() {
        owner = owner.getattr("obj")?;
    }
    compare_ctypes(object, &item_class(owner.get_type().into_any())?, struct_type)
}

/// The class of the items of an array of arrays.
fn item_class(mut class: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    while class.hasattr("_length_")? {
        class = class.getattr("_type_")?;
    }
    Ok(class)
}

fn compare_ctypes(
    object: &Bound<'_, PyAny>,
    class: &Bound<'_, PyAny>,
    struct_type: &StructType,
) -> PyResult<()> {
    for base in class.getattr("__mro__")?.try_iter()? {
        let Some(fields) = attribute(&base?, intern!(object.py(), "_fields_"))? else { continue };
        for field in fields.try_iter()? {
            let field = field?;
            let name: String = field.get_item(0)?.extract()?;
            let place = class.getattr(name.as_str())?;
            let (offset, size): (usize, usize) =
                (place.getattr("offset")?.extract()?, place.getattr("size")?.extract()?);
            let read = struct_type.fields.iter().find(|read| read.name == name);
            let read = read.filter(|read| read.offset == offset && read.size() == Some(size)).ok_or_else(|| {
                let allowed = "a struct without bit fields, unions, packed structs and base classes, whose places the format does not state";
                PyErr::from(with_origin(object, Error::new(ErrorKind::DType, "format", text!("the field {name:?} at byte {offset}"), allowed)))
            })?;
            if let Some(nested) = &read.struct_type {
                compare_ctypes(object, &item_class(field.get_item(1)?)?, nested)?;
            }
        }
    }
    Ok(())
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
    fn info(&self) -> Result<ArrayInfo> {
        // SAFETY: the pointer is that of a box, in which the object has filled the struct.
        let buffer = unsafe { self.0.read() };
        if buffer.obj.is_null() || buffer.ndim > 0 && buffer.shape.is_null() {
            let allowed = "a buffer with an owner and extents, as Python asks of exporters";
            return Err(Error::new(ErrorKind::NullPointer, "buffer", "a null pointer", allowed));
        }
        if !buffer.suboffsets.is_null() {
            let allowed = "one block of memory, without suboffsets";
            return Err(Error::new(ErrorKind::Strides, "suboffsets", "pointers to rows", allowed));
        }
        // SAFETY: the format is null, or a C string that lives as long as the buffer. Without one, the items are bytes.
        let format = (!buffer.format.is_null()).then(|| unsafe { CStr::from_ptr(buffer.format) });
        let itemsize = usize::try_from(buffer.itemsize).unwrap_or_default();
        let (dtype, struct_type) = read_format(format.map_or(b"B", CStr::to_bytes), itemsize)?;
        let ndim = usize::try_from(buffer.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM).ok_or_else(|| {
            let found = text!("{} axes", buffer.ndim);
            Error::new(ErrorKind::Rank, "ndim", found, format_args!("0 to {MAX_NDIM} axes"))
        })?;
        // SAFETY: a list that is not null has a number for each axis, as the protocol states.
        let [shape, strides] = [buffer.shape, buffer.strides].map(|list| unsafe { numbers(list, ndim) });
        RawDescriptor {
            dtype,
            struct_type: struct_type.as_ref(),
            strides: strides.as_deref().map_or(Strides::Contiguous(Order::C), Strides::Bytes),
            mutability: if buffer.readonly == 0 { Mutability::Writable } else { Mutability::ReadOnly },
            stream: Some(StreamHandle::NothingPending),
            ..RawDescriptor::new(buffer.buf.expose_provenance(), Device::CPU, &shape.unwrap_or_default())
        }
        .validate()
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
