//! An adapter that is written outside of the crate, with public items only: pinned memory of another allocator as a storage.
#![expect(unsafe_code, reason = "allocates memory and implements `Storage` for it")]

use std::ffi::c_void;
use std::ptr;

use cust::sys;
use interop_core::cuda::CudaBuffer;
use interop_core::element::ElementType;
use interop_core::storage::{FromImport, MemoryRegion, Mutability, copy_import};
use interop_core::{CudaArray, Device, Element, Error, ErrorKind, FromArray, Import, Order, Result, Storage};

use crate::support::{KINDS, Matrix, Strided, numbers, read, send, turn};

/// Page-locked memory of the driver.
struct Pinned<T> {
    first: *mut T,
    len: usize,
}

// SAFETY: nothing else has the pointer, and `&Pinned` gives no access to the elements.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Element> Pinned<T> {
    /// Allocates memory that the caller fills.
    fn uninit(len: usize) -> Result<Self> {
        let mut first = ptr::null_mut::<c_void>();
        if len != 0 {
            // SAFETY: the pointer is valid for a write.
            let answer = unsafe { sys::cuMemHostAlloc(&raw mut first, len * size_of::<T>(), 0) };
            if answer as u32 != 0 {
                return Err(Error::new(ErrorKind::Driver, "cuMemHostAlloc", answer as u32, "0"));
            }
        }
        Ok(Self { first: first.cast(), len })
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: allocated by `uninit`, freed once. The driver waits for work on it.
            let answer = unsafe { sys::cuMemFreeHost(self.first.cast()) };
            assert_eq!(answer as u32, 0, "cuMemFreeHost");
        }
    }
}

// SAFETY: 1, 2: `from_import` writes all elements, and the memory lives until the drop. 3: it is page-locked. 4: no method returns a
// reference. 5: elements are not structs. 6: `cuMemFreeHost` waits for all work.
unsafe impl<T: Element> Storage for Pinned<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        let address = self.first.expose_provenance();
        Ok(MemoryRegion::new::<T>(address, self.len, Device::CUDA_HOST, Mutability::Writable))
    }
}

impl<T: Element> FromImport for Pinned<T> {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn from_import(import: &mut Import, order: Order) -> interop_core::Result<Self> {
        let memory = Self::uninit(import.info().numel() / T::TYPE.axes().iter().product::<usize>())?;
        // SAFETY: the new memory has room for the elements. It is pinned.
        unsafe { copy_import(import, order, memory.first) }?;
        Ok(memory)
    }
}

/// Two rows and three columns of any layout are copied into rows.
fn assert_copied(import: Import) {
    let copy: Matrix<Pinned<f32>> = Matrix::from_import(import).unwrap();
    assert_eq!((copy.rows, copy.columns, copy.info().unwrap().device()), (2, 3, Device::CUDA_HOST));
    assert_eq!(copy.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    // Other libraries use it in place.
    assert_eq!(read(send(copy)), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

#[test]
fn imports_are_copied_into_foreign_pinned_memory() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let (shape, strides) = (vec![2, 3], vec![1, 2]);
    for kind in KINDS {
        let data = CudaBuffer::from_slice(kind, 0, &numbers(6)).unwrap();
        assert_copied(send(Strided { data, shape: shape.clone(), strides: strides.clone() }));
    }
    assert_copied(send(Strided { data: numbers(6), shape, strides }));
    let empty = Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 };
    assert_eq!(Matrix::<Pinned<f32>>::from_import(send(empty)).unwrap().rows, 0);
}

/// An element with axes takes the last axes of the import.
#[test]
fn elements_with_axes_are_counted_once() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let data = CudaBuffer::from_slice(KINDS[0], 0, &numbers(6)).unwrap();
    let shape = (vec![2, 3], vec![3, 1]);
    let copy: Points = Points::from_import(send(Strided { data, shape: shape.0, strides: shape.1 })).unwrap();
    assert_eq!((copy.points.len, copy.count, copy.info().unwrap().shape()), (2, 2, &[2, 3][..]));
    assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6));
}

#[derive(CudaArray)]
#[cuda_array(shape = [count])]
struct Points {
    #[cuda_array(data)]
    points: Pinned<[f32; 3]>,
    count: usize,
}

#[test]
fn a_refused_import_comes_back_whole() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let data = CudaBuffer::from_slice(KINDS[0], 0, &[0_u8, 1, 2, 1]).unwrap();
    let flags = Matrix { data: Flags(data), rows: 2, columns: 2 };
    let refused = Matrix::<Pinned<bool>>::from_import(send(flags)).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::DType);
    assert_eq!(refused.value.info().shape(), [2, 2]);
}

/// Bytes that claim to be `bool`, as a foreign library may hand them over.
struct Flags(CudaBuffer);

// SAFETY: as for the buffer, but for its type: a read of the elements is checked.
unsafe impl Storage for Flags {
    fn memory(&self) -> Result<MemoryRegion> {
        let MemoryRegion { address, range, device, mutability, .. } = self.0.memory()?;
        Ok(MemoryRegion::new::<bool>(address, range.len(), device, mutability))
    }
}
