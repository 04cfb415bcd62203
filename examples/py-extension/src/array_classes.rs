//! Python classes that are arrays and have more properties. The module contains them under private names, for its
//! tests.
#![expect(unsafe_code, reason = "implements `Storage`")]

use std::sync::atomic::{AtomicBool, Ordering};

use interop_core::arrays::{Array1, Array2};
use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::element::ElementType;
use interop_core::protocols::RawDescriptor;
use interop_core::python::{Exported, import, import_as};
use interop_core::storage::{FromImport, MemoryRegion, Mutability, Owner};
use interop_core::{
    ArrayInfo, CudaArray, DType, Device, Element, FromArray, HostVec, Import, Lease, LeaseMut, Order, Storage,
};
use pyo3::prelude::*;

use crate::array::Array;
use crate::image::Image;
use crate::launch;

/// An array.
#[pyclass(frozen, subclass, module = "interop_demo", name = "_Samples")]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

impl Samples {
    fn of(values: &[f32]) -> Self {
        Self { values: HostVec::from(values), len: values.len() }
    }
}

/// A class that extends the array class.
#[pyclass(frozen, extends = Samples, subclass, module = "interop_demo", name = "_Titled")]
struct Titled {
    #[pyo3(get)]
    title: String,
}

#[pymethods]
impl Titled {
    #[new]
    fn new(title: String) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Samples::of(&[1.0, 2.0])).add_subclass(Self { title })
    }
}

/// A class with its own array, which replaces the inherited one.
#[pyclass(frozen, extends = Samples, module = "interop_demo", name = "_Levels")]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Levels {
    #[cuda_array(data)]
    levels: HostVec<u8>,
    len: usize,
}

#[pymethods]
impl Levels {
    #[new]
    fn new() -> PyClassInitializer<Self> {
        let levels = Self { levels: HostVec::from([7, 8, 9]), len: 3 };
        PyClassInitializer::from(Samples::of(&[1.0, 2.0])).add_subclass(levels)
    }
}

/// An array in a `Vec`, to which Rust code may have references.
#[pyclass(frozen, module = "interop_demo", name = "_Lent")]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Lent {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[pymethods]
impl Lent {
    #[new]
    fn new() -> Self {
        Self { values: vec![1.0, 2.0], len: 2 }
    }
}

/// An array class that is a mapping with names as keys, and whose methods may run only on one thread.
#[pyclass(frozen, mapping, unsendable, module = "interop_demo", name = "_Named")]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Named {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[pymethods]
impl Named {
    #[new]
    fn new() -> Self {
        Self { values: HostVec::from([1.0, 2.0]), len: 2 }
    }

    fn __getitem__(&self, name: &str) -> String {
        format!("{name} of {}", self.len)
    }

    /// Takes the place of the one that `pyclass` adds.
    fn __array__(&self) -> Vec<usize> {
        vec![self.len]
    }
}

/// Returns the class's own handle of an array.
#[pyfunction]
fn exported(array: Py<Array>) -> Exported<Py<Array>> {
    Exported(array)
}

/// Returns a copy of an image in a vector that only the returned object owns.
#[pyfunction]
fn in_a_vector(obj: Image<Vec<f32>>) -> Image<Vec<f32>> {
    obj
}

#[pyfunction]
fn bools_in_a_vector(obj: Array1<Vec<bool>>) -> Array1<Vec<bool>> {
    obj
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Hit {
    detector: u8,
    energy: f64,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct PackedHit {
    detector: u8,
    _pad: [u8; 7],
    energy: f64,
}

#[pyfunction]
fn hits() -> Array1<HostVec<Hit>> {
    HostVec::from([Hit { detector: 1, energy: 0.5 }]).into()
}

#[pyfunction]
fn packed_hits() -> Array1<HostVec<PackedHit>> {
    HostVec::from([PackedHit { detector: 1, _pad: [0; 7], energy: 0.5 }]).into()
}

/// An array that states more elements than its memory has.
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, python)]
struct Torn {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[pyfunction]
fn torn() -> Torn {
    Torn { values: HostVec::zeroed(1), len: 2 }
}

/// A storage whose import copies the elements into memory of the first device.
struct OnDevice(CudaBuffer);

// SAFETY: as for the buffer, to which nothing else has access.
unsafe impl Storage for OnDevice {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        self.0.memory()
    }
}

impl FromImport for OnDevice {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        Vec::<f32>::element()
    }

    fn check(info: &ArrayInfo) -> interop_core::Result<()> {
        Vec::<f32>::check(info)
    }

    fn from_import(import: &mut Import, order: Order) -> interop_core::Result<Self> {
        let elements = Vec::<f32>::from_import(import, order)?;
        let buffer = CudaBuffer::from_slice(MemoryKind::Device, 0, &elements);
        Ok(Self(buffer.expect("memory of the first device")))
    }
}

/// Imports an array, and makes a struct of it in a second step.
#[pyfunction]
fn in_two_steps(obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(Array1::<Vec<bool>>::from_import(import(obj, None)?)?.len)
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
fn on_device(obj: Array1<OnDevice>) -> usize {
    obj.len
}

/// Device memory that notes at its drop whether a context is current, as a buffer of `cust` needs it.
struct Noting(CudaBuffer);

static HAD_CONTEXT: AtomicBool = AtomicBool::new(false);

impl Drop for Noting {
    fn drop(&mut self) {
        HAD_CONTEXT.store(launch::has_context(), Ordering::Relaxed);
    }
}

// SAFETY: as for the buffer, to which nothing else has access.
unsafe impl Storage for Noting {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        self.0.memory()
    }
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export, python)]
struct Noted {
    #[cuda_array(data)]
    values: Noting,
    len: usize,
}

#[pyfunction]
fn noted(len: usize) -> PyResult<Noted> {
    let values = Noting(CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, len)?);
    Ok(Noted { values, len })
}

#[pyfunction]
fn had_context() -> bool {
    HAD_CONTEXT.load(Ordering::Relaxed)
}

/// A class around an array struct, as a Python crate has it beside a core crate.
#[pyclass(frozen, module = "interop_demo", name = "_Page")]
#[derive(CudaArray)]
#[cuda_array(pyclass)]
struct Page {
    #[cuda_array(inner)]
    cells: Array2<LeaseMut<f32>>,
    #[pyo3(get)]
    #[cuda_array(default = "L".to_string())]
    mode: String,
}

#[pymethods]
impl Page {
    #[new]
    fn new(obj: &Bound<'_, PyAny>, mode: Option<String>) -> PyResult<Self> {
        let page = import_as::<Self>(obj)?;
        Ok(Self { mode: mode.unwrap_or(page.mode), cells: page.cells })
    }

    #[getter]
    fn rows(&self) -> usize {
        self.cells.rows
    }

    /// A class of arrays may be a number too.
    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __float__(&self) -> f64 {
        2.5
    }
}

/// A class that implements the trait by hand.
#[pyclass(frozen, module = "interop_demo", name = "_Header")]
struct Header(Vec<u8>);

// SAFETY: 1 to 4: the bytes are owned, initialized host memory that only `&mut self` could move. They are read-only. 5 and 6: no
// device uses them.
unsafe impl CudaArray for Header {
    fn info(&self) -> interop_core::Result<ArrayInfo> {
        let (address, shape) = (self.0.as_ptr().expose_provenance(), [self.0.len() as i64]);
        let bytes = RawDescriptor::new(address, Device::CPU, &shape);
        RawDescriptor { dtype: DType::U8, mutability: Mutability::ReadOnly, ..bytes }.validate()
    }
}

interop_core::array_class!(Header);

#[pymethods]
impl Header {
    #[new]
    fn new() -> Self {
        Self(vec![1, 2, 3])
    }

    fn __index__(&self) -> usize {
        self.0.len()
    }
}

/// Calls a Python function while the elements of an image are being read, and returns the function's result.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
fn while_read<'py>(obj: Image<Lease<f32>>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let _reader = obj.view::<f32, 3>()?.host_view()?;
    function.call0()
}

/// Structs with memory by its address, as a C library takes it.
macro_rules! by_pointer {
    ($($name:ident: $pointer:ty),*) => {$(
        #[derive(CudaArray)]
        #[cuda_array(shape = [len], import)]
        struct $name {
            #[cuda_array(owner)]
            _owner: Owner,
            // SAFETY: only imports fill it, together with the owner of the memory.
            #[cuda_array(data(unsafe_raw))]
            _first: $pointer,
            len: usize,
            #[cuda_array(device)]
            _device: Device,
        }
    )*};
}

by_pointer!(ByPointer: *const f32, ByPointerMut: *mut f32);

/// Takes an array by a pointer for writing or reading. Returns the number of its elements.
#[pyfunction]
fn by_address(obj: &Bound<'_, PyAny>, is_written: bool) -> PyResult<usize> {
    Ok(if is_written { import_as::<ByPointerMut>(obj)?.len } else { import_as::<ByPointer>(obj)?.len })
}

/// Returns the number of elements of an array, whose import is taken apart.
#[pyfunction]
#[pyo3(signature = (obj, *, is_written=true))]
fn in_parts(obj: &Bound<'_, PyAny>, is_written: bool) -> PyResult<usize> {
    let import = import(obj, None)?;
    let import = if is_written { import } else { import.read_only() };
    Ok(import.into_parts().0.numel())
}

/// Adds the classes and functions to the module. `PyO3` creates the base class `Samples` together with the first
/// subclass.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.setattr("_exported", wrap_pyfunction!(exported, module)?)?;
    module.setattr("_in_a_vector", wrap_pyfunction!(in_a_vector, module)?)?;
    module.setattr("_bools_in_a_vector", wrap_pyfunction!(bools_in_a_vector, module)?)?;
    module.setattr("_hits", wrap_pyfunction!(hits, module)?)?;
    module.setattr("_packed_hits", wrap_pyfunction!(packed_hits, module)?)?;
    module.setattr("_torn", wrap_pyfunction!(torn, module)?)?;
    module.setattr("_noted", wrap_pyfunction!(noted, module)?)?;
    module.setattr("_had_context", wrap_pyfunction!(had_context, module)?)?;
    module.setattr("_in_two_steps", wrap_pyfunction!(in_two_steps, module)?)?;
    module.setattr("_by_address", wrap_pyfunction!(by_address, module)?)?;
    module.setattr("_in_parts", wrap_pyfunction!(in_parts, module)?)?;
    module.setattr("_on_device", wrap_pyfunction!(on_device, module)?)?;
    module.setattr("_while_read", wrap_pyfunction!(while_read, module)?)?;
    module.setattr("_Titled", py.get_type::<Titled>())?;
    module.setattr("_Lent", py.get_type::<Lent>())?;
    module.setattr("_Page", py.get_type::<Page>())?;
    module.setattr("_Header", py.get_type::<Header>())?;
    module.setattr("_Named", py.get_type::<Named>())?;
    module.setattr("_Levels", py.get_type::<Levels>())
}
