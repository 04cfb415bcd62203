//! Arrays of `NumPy`, read from their C struct, as Cython, pybind11 and `rust-numpy` do.
//!
//! `NumPy` keeps the start of this struct and that of a dtype as part of its ABI: the offsets are the same in all versions 1
//! and 2. Since 2.5 its table of functions also has accessors, for a version in which they move.
#![expect(unsafe_code, reason = "reads the C struct of an array")]

use core::cell::RefCell;
use core::ffi::{c_char, c_int, c_long, c_void};
use core::mem::offset_of;

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyType};
use pyo3::{ffi, intern};

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::dims::{MAX_NDIM, with_lists};
use crate::array::dtype::DType;
use crate::array::mutability::Mutability;
use crate::array::validate::{RawDescriptor, Strides};
use crate::error::Error;
use crate::memory::import::{Filled, ImportSlot, Protocol};
use crate::order::memory_check::Verification;
use crate::python::errors::Unread;
use crate::python::export::numpy::{Api, WRITABLE};
use crate::python::interpreter::{attribute, ignore_exception, owner_of};

/// `PyArrayObject_fields` without the head.
#[repr(C)]
struct Fields {
    data: *mut c_void,
    ndim: c_int,
    extents: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *mut ffi::PyObject,
    flags: c_int,
}

/// `PyArray_Descr` without the head, as far as the versions 1 and 2 agree.
#[repr(C)]
struct Descr {
    class: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    byte_order: u8,
    flags: c_char,
    number: c_int,
}

const _: () = {
    const WORD: usize = size_of::<usize>();
    assert!(offset_of!(Fields, data) == 0 && offset_of!(Fields, ndim) == WORD);
    assert!(offset_of!(Fields, extents) == 2 * WORD && offset_of!(Fields, strides) == 3 * WORD);
    assert!(offset_of!(Fields, base) == 4 * WORD && offset_of!(Fields, descr) == 5 * WORD);
    assert!(offset_of!(Fields, flags) == 6 * WORD && size_of::<Fields>() == 7 * WORD);
    assert!(offset_of!(Descr, byte_order) == WORD + 2 && offset_of!(Descr, number) == WORD + 4);
};

/// `NPY_ARRAY_OWNDATA`.
const OWNS_DATA: c_int = 4;

/// Where the memory of an array comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// `NumPy` has allocated it, so it is host memory, about which the driver need not be asked.
    Own,
    /// A capsule. `NumPy` knows the device of a DLPack tensor, which may be pinned or managed memory.
    Capsule,
    /// Another object, such as one of `ctypes`, which may have any address.
    Other,
}

/// The byte order in a dtype whose elements are not in that of this machine.
const FOREIGN: u8 = if cfg!(target_endian = "big") { b'<' } else { b'>' };

/// `NPY_USERDEF`: the first number of a dtype that a package has registered.
const FIRST_REGISTERED: c_int = 256;

/// A class of arrays whose struct is known: `numpy.ndarray`, or a subclass with the same `__dlpack__`.
pub(crate) struct NumPyClass {
    /// `numpy.ndarray`.
    ndarray: *mut ffi::PyTypeObject,
    /// The size of `PyObject_HEAD`, which depends on the build of Python.
    head: usize,
    /// The address of the function `numpy.ndarray.__dlpack__` for a subclass, whose objects may have another one.
    inherited: Option<usize>,
    /// The registered element types that were met, by their numbers.
    registered_types: RefCell<Vec<(c_int, DType)>>,
}

impl NumPyClass {
    /// Returns `None` for a class whose struct is not known, and if this class does not get its method `__dlpack__` from
    /// `numpy.ndarray`.
    ///
    /// # Errors
    ///
    /// Exceptions of `NumPy`.
    pub(crate) fn new(class: &Bound<'_, PyType>, method: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = class.py();
        let Some(api) = Api::get(py)? else { return Ok(None) };
        let ndarray = api.ndarray(py);
        let name = intern!(py, "__dlpack__");
        // No Python code answers the first question, because `ndarray` has no metaclass.
        if !class.is_subclass(&ndarray)? || !method.is(&ndarray.getattr(name)?) {
            return Ok(None);
        }
        let size = |class: &Bound<'_, PyAny>| class.getattr("__basicsize__")?.extract::<usize>();
        let head = size(&py.get_type::<PyAny>())?;
        let array = api.empty(py, type_number(DType::F32).unwrap_or_default(), &[2, 3])?;
        let dtype = array.getattr("dtype")?;
        let room = [size(&ndarray)?, size(&dtype.get_type())?].map(|size| size.saturating_sub(head));
        let function = function_of(&array.getattr(name)?);
        if room[0] < size_of::<Fields>() || room[1] < size_of::<Descr>() || function.is_none() {
            return Ok(None);
        }
        let inherited = function.filter(|_| !class.is(&ndarray));
        let registered_types = RefCell::default();
        let this = Self { ndarray: ndarray.as_type_ptr(), head, inherited, registered_types };
        Ok(this.describes(&array, &dtype)?.then_some(this))
    }

    /// Checks the struct of a transposed view of `array`, a new array of `float32` with 2 rows and 3 columns.
    fn describes(&self, array: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
        let view = array.getattr("T")?;
        let (address, flags) =
            (view.getattr("ctypes")?.getattr("data")?, view.getattr("flags")?.getattr("num")?);
        let class = dtype.getattr("type")?;
        // SAFETY: the view is an array, and the fields lie within its object, whose size was compared.
        let fields = unsafe { self.fields(view.as_ptr()) };
        // SAFETY: called once all fields around the lists are known to be those of the view.
        let list = |list: *const isize| [0, 1].map(|axis| unsafe { number(list, axis) });
        // SAFETY: called once `descr` is known to be the dtype, and its fields lie within this object.
        let descr = || unsafe { self.descr(&fields) };
        Ok(fields.data.addr() == address.extract::<usize>()?
            && (fields.ndim, fields.flags) == (2, flags.extract::<c_int>()?)
            && fields.flags & (WRITABLE | OWNS_DATA) == WRITABLE
            && self.memory(&fields) == Memory::Own
            && (fields.base, fields.descr) == (array.as_ptr(), dtype.as_ptr())
            && (list(fields.extents), list(fields.strides)) == ([3, 2], [4, 12])
            && (descr().class.cast(), descr().byte_order) == (class.as_ptr(), b'=')
            && Some(descr().number) == type_number(DType::F32))
    }

    /// Fills a slot with an array of this class.
    ///
    /// [`Unread::Absent`] is for an array that only `NumPy`'s own `__dlpack__` can describe or refuse: another object's method, the
    /// memory of a capsule, elements that are no numbers or not in this machine's byte order, and strides that are no whole elements.
    pub(crate) fn fill_slot(
        &self,
        object: &Bound<'_, PyAny>,
        verification: Verification,
        slot: &mut ImportSlot,
    ) -> Result<Filled, Unread> {
        if self.inherited.is_some() && !self.has_dlpack_of_numpy(object)? {
            return Err(Unread::Absent);
        }
        let (dtype, array) = self.read(object)?;
        let memory = self.memory(&array);
        if memory == Memory::Capsule {
            return Err(Unread::Absent);
        }
        let dtype = dtype.ok_or(Unread::Absent)?;
        let verification = if memory == Memory::Own { Verification::Skipped } else { verification };
        // From here to the end of the check no Python code runs, so that the lists stay where they are.
        // SAFETY: these are the fields of an array.
        match slot.describe(verification, |info| unsafe { describe(&array, dtype, info) }) {
            Ok(described) => Ok(described.own(owner_of(object), Some(Protocol::NumPy))),
            Err(None) => Err(Unread::Absent),
            Err(Some(error)) => Err(error.into()),
        }
    }

    /// # Safety
    ///
    /// The object is an array, and the struct is that of this `NumPy`.
    unsafe fn fields(&self, array: *mut ffi::PyObject) -> Fields {
        // SAFETY: the struct of every array begins so. It is aligned as the head, which consists of words.
        unsafe { array.wrapping_byte_add(self.head).cast::<Fields>().read() }
    }

    /// # Safety
    ///
    /// The fields are those of an array.
    unsafe fn descr(&self, array: &Fields) -> Descr {
        // SAFETY: every array has a dtype, whose struct begins so.
        unsafe { array.descr.wrapping_byte_add(self.head).cast::<Descr>().read() }
    }

    /// Returns the fields of an array of this class, and its element type if it is a number.
    #[inline]
    fn read(&self, object: &Bound<'_, PyAny>) -> PyResult<(Option<DType>, Fields)> {
        // SAFETY: the object is an array, because its class derives from `numpy.ndarray`.
        let array = unsafe { self.fields(object.as_ptr()) };
        // SAFETY: these are the fields of an array.
        let Descr { byte_order, number, .. } = unsafe { self.descr(&array) };
        if byte_order == FOREIGN || number < FIRST_REGISTERED {
            return Ok((dtype_with_number(number).filter(|_| byte_order != FOREIGN), array));
        }
        // SAFETY: the array keeps its dtype alive.
        let held = unsafe { Bound::from_borrowed_ptr(object.py(), array.descr) };
        let dtype = self.registered_type(&held, number)?;
        // Python code may have run, and with it another thread, which may have changed the array.
        // SAFETY: as above.
        let array = unsafe { self.fields(object.as_ptr()) };
        Ok((dtype.filter(|_| array.descr == held.as_ptr()), array))
    }

    /// Returns whether a lookup finds the `__dlpack__` of `numpy.ndarray`, and not one of the object or of its class, which
    /// may have changed.
    fn has_dlpack_of_numpy(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let method = attribute(object, intern!(object.py(), "__dlpack__"));
        let Some(method) = ignore_exception(object.py(), method)?.flatten() else { return Ok(false) };
        let function = function_of(&method);
        // SAFETY: the method is a function in C, as `function_of` found.
        let is_bound_to = |object| unsafe { ffi::PyCFunction_GetSelf(method.as_ptr()) } == object;
        Ok(function.is_some() && function == self.inherited && is_bound_to(object.as_ptr()))
    }

    /// Returns where the memory of an array comes from, through all views.
    fn memory(&self, array: &Fields) -> Memory {
        let (mut base, mut flags) = (array.base, array.flags);
        // SAFETY: every array keeps its base alive, which is null or an object.
        while !base.is_null() && unsafe { ffi::PyObject_TypeCheck(base, self.ndarray) } != 0 {
            // SAFETY: the base is an array.
            let array = unsafe { self.fields(base) };
            (base, flags) = (array.base, array.flags);
        }
        if base.is_null() {
            return if flags & OWNS_DATA != 0 { Memory::Own } else { Memory::Other };
        }
        // SAFETY: as above.
        if unsafe { ffi::PyCapsule_CheckExact(base) } != 0 { Memory::Capsule } else { Memory::Other }
    }

    /// Returns the element type of a dtype that `ml_dtypes` has registered, if only DLPack can name it.
    #[cold]
    fn registered_type(&self, dtype: &Bound<'_, PyAny>, number: c_int) -> PyResult<Option<DType>> {
        if let Some((_, dtype)) = self.registered_types.borrow().iter().find(|(other, _)| *other == number) {
            return Ok(Some(*dtype));
        }
        let module: String = dtype.getattr("type")?.getattr("__module__")?.extract()?;
        let (name, bytes): (String, usize) =
            (dtype.getattr("name")?.extract()?, dtype.getattr("itemsize")?.extract()?);
        let found = DType::from_name(&name).filter(|found| {
            module == "ml_dtypes" && found.typestr().is_none() && found.item_bits(true) == bytes * 8
        });
        self.registered_types.borrow_mut().extend(found.map(|found| (number, found)));
        Ok(found)
    }
}

/// Returns the address of the C function of a bound method, or `None` for any other object.
fn function_of(method: &Bound<'_, PyAny>) -> Option<usize> {
    if !method.is_exact_instance_of::<PyCFunction>() {
        return None;
    }
    // SAFETY: the object is a function in C.
    unsafe { ffi::PyCFunction_GetFunction(method.as_ptr()) }.map(|function| function as usize)
}

/// Checks an array of scalars and writes its description to `to`.
///
/// # Errors
///
/// None if only `NumPy` can describe the array, because a stride is not one of whole elements.
///
/// # Safety
///
/// The fields are those of an array.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the description is written in place, see `ImportSlot`")]
unsafe fn describe(array: &Fields, dtype: DType, to: &mut Description) -> Result<(), Option<Error>> {
    let ndim = usize::try_from(array.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM).ok_or(None)?;
    // A power of two, because the elements are scalars.
    let size = (dtype.item_bits(true) / 8) as i64;
    // SAFETY: an array has an extent for each axis.
    let extent = |axis| unsafe { number(array.extents, axis) };
    // SAFETY: and a stride.
    let stride = |axis| unsafe { number(array.strides, axis) };
    with_lists!(ndim, extent, stride, |shape, mut strides| {
        if strides.iter().any(|stride| stride & (size - 1) != 0) {
            return Err(None);
        }
        for stride in &mut strides[..] {
            *stride >>= size.trailing_zeros();
        }
        let is_writable = array.flags & WRITABLE != 0;
        let descriptor = RawDescriptor {
            dtype,
            padded: true,
            strides: Strides::Elements(&strides),
            mutability: if is_writable { Mutability::Writable } else { Mutability::ReadOnly },
            ..RawDescriptor::new(array.data.expose_provenance(), Device::CPU, &shape)
        };
        Ok(descriptor.describe_into(to)?)
    })
}

/// Reads an extent or a stride.
///
/// # Safety
///
/// The list has more than `axis` numbers.
unsafe fn number(list: *const isize, axis: usize) -> i64 {
    // SAFETY: as the caller promises.
    unsafe { list.wrapping_add(axis).read() as i64 }
}

/// The element types of the type numbers, as a table: a jump for each number costs more.
const NUMBERED: [Option<DType>; 24] = {
    let (mut types, mut number) = ([None; 24], 0);
    while number < types.len() {
        types[number] = numbered(number);
        number += 1;
    }
    types
};

/// Returns the element type that has a type number, or `None` for objects, strings, dates and `long double`.
#[inline]
fn dtype_with_number(number: c_int) -> Option<DType> {
    *NUMBERED.get(usize::try_from(number).ok()?)?
}

/// The numbers are those of C types, whose sizes differ between platforms.
const fn numbered(number: usize) -> Option<DType> {
    let is_long = size_of::<c_long>() == 8;
    Some(match number {
        0 => DType::BOOL,
        1 => DType::I8,
        2 => DType::U8,
        3 => DType::I16,
        4 => DType::U16,
        7 if is_long => DType::I64,
        8 if is_long => DType::U64,
        5 | 7 => DType::I32,
        6 | 8 => DType::U32,
        9 => DType::I64,
        10 => DType::U64,
        11 => DType::F32,
        12 => DType::F64,
        14 => DType::COMPLEX64,
        15 => DType::COMPLEX128,
        23 => DType::F16,
        _ => return None,
    })
}

/// Returns the lowest type number of an element type, or `None` if there is none.
pub(crate) fn type_number(dtype: DType) -> Option<c_int> {
    (0..24).find(|number| dtype_with_number(*number) == Some(dtype))
}
