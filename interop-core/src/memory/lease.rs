//! `Lease`, `LeaseMut`, `Borrowed` and `BorrowedMut`: storages that use foreign memory in place.
#![expect(
    unsafe_code,
    reason = "implements `Storage`, and keeps a borrow of a boxed value for as long as the box"
)]

use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::error::{Refused, Result};
use crate::memory::extraction::FromImport;
use crate::memory::import::Import;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_state::StorageState;
use crate::order::owned_memory::OwnedMemory;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;

/// Foreign memory with elements `T`, used in place for reading: from an import or from
/// [`from_owner`](Self::from_owner).
///
/// Dropping the lease releases the memory. Exports of the lease are read-only.
///
/// If the struct has no `stream` field, the lease remembers pending work of the import: copies to the host wait for it,
/// and exports advertise its stream. For pinned and managed memory the import has already waited, because such memory
/// belongs to no single device.
///
/// ```
/// use std::sync::Arc;
/// use interop_core::{CudaArray, ErrorKind, FromArray, Lease, LeaseMut};
///
/// #[derive(Debug, CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// // Other Rust code can read a `Vec` in an `Arc`, so nobody may write to what it exports.
/// let samples = Arc::new(Samples { values: vec![1.0_f32; 4], len: 4 });
/// let refused = Samples::<LeaseMut<f32>>::from_dlpack(samples.share_dlpack()?);
/// assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
///
/// let borrowed = Samples::<Lease<f32>>::from_dlpack(samples.share_dlpack()?)?;
/// assert_eq!(borrowed.info()?.address(), samples.values.as_ptr().addr());
/// assert_eq!(Arc::strong_count(&samples), 2);
/// drop(borrowed);
/// assert_eq!(Arc::strong_count(&samples), 1);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct Lease<T> {
    memory: LeasedMemory,
    marker: PhantomData<fn() -> T>,
}

/// Foreign memory with elements `T`, used in place for reading and writing: from an import or from
/// [`from_owner`](Self::from_owner).
///
/// Importing a read-only array fails. Exports of the lease are writable. It remembers pending work like [`Lease`], but
/// not kernels that Rust code launches later: add a `stream` field for those.
pub struct LeaseMut<T> {
    memory: LeasedMemory,
    marker: PhantomData<fn() -> T>,
}

/// Memory with elements `T` that its owner lends for the time `'a`, used in place for reading.
///
/// A struct with this storage is the argument of a function that another library calls with bare tensors
/// ([`BorrowedTensor`](crate::lent::BorrowedTensor)), and cannot outlive the call. It works as a [`Lease`] otherwise.
pub struct Borrowed<'a, T> {
    memory: LeasedMemory,
    marker: PhantomData<fn() -> &'a T>,
}

/// As [`Borrowed`], for reading and writing.
pub struct BorrowedMut<'a, T> {
    memory: LeasedMemory,
    marker: PhantomData<fn() -> &'a T>,
}

/// The contents of a lease.
struct LeasedMemory {
    address: usize,
    range: Range<usize>,
    device: Device,
    memory: OwnedMemory,
    /// The type of the value that lends the memory, or `None` for imported memory.
    lender: Option<fn() -> TypeId>,
}

impl<T: Element> Lease<T> {
    /// Uses the elements of a value that implements `AsRef<[T]>` in place: `Bytes`, a memory map, an Arrow buffer, a
    /// `Cow`, or your own wrapper type.
    ///
    /// The value is boxed, and dropped with the lease. The memory is treated as ordinary host memory, whatever its
    /// kind.
    ///
    /// ```
    /// use interop_core::{CudaArray, Lease};
    ///
    /// /// As a matrix of `nalgebra`: columns one after another.
    /// struct Matrix { columns: Vec<f64> }
    ///
    /// impl AsRef<[f64]> for Matrix {
    ///     fn as_ref(&self) -> &[f64] {
    ///         &self.columns
    ///     }
    /// }
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2], order = "F")]
    /// struct Table<S> { #[cuda_array(data)] cells: S, rows: usize }
    ///
    /// let matrix = Matrix { columns: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
    /// let table = Table { cells: Lease::from_owner(matrix), rows: 3 };
    /// assert_eq!(table.view::<f64, 2>()?.host_view()?.read([0, 1])?, 4.0);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner<O: AsRef<[T]> + Send + 'static>(owner: O) -> Self {
        Self::from_owner_with(owner, O::as_ref)
    }

    /// As [`from_owner`](Self::from_owner), for a value from which a function borrows the elements.
    ///
    /// ```
    /// use interop_core::Lease;
    ///
    /// let lease = Lease::from_owner_with(vec![[1_u8, 2], [3, 4]], |pairs| pairs.as_flattened());
    /// # assert_eq!(interop_core::Storage::memory(&lease)?.range.len(), 4);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner_with<O, F>(owner: O, elements: F) -> Self
    where
        O: Send + 'static,
        F: FnOnce(&O) -> &[T],
    {
        let lease = Self::try_from_owner_with(owner, |owner| Ok(elements(owner)));
        lease.unwrap_or_else(|_| unreachable!("the function does not fail"))
    }

    /// As [`from_owner_with`](Self::from_owner_with), for a value that may refuse: a tensor of a run-time type or on
    /// another device.
    ///
    /// # Errors
    ///
    /// That of the function, with the value.
    ///
    /// ```
    /// use interop_core::{Error, ErrorKind, Lease};
    ///
    /// enum Tensor { Floats(Vec<f32>), Text(Vec<String>) }
    ///
    /// fn floats(tensor: &Tensor) -> Result<&[f32], Error> {
    ///     match tensor {
    ///         Tensor::Floats(floats) => Ok(floats),
    ///         Tensor::Text(_) => Err(Error::new(ErrorKind::DType, "dtype", "text", "float32")),
    ///     }
    /// }
    ///
    /// let lease = Lease::try_from_owner_with(Tensor::Floats(vec![0.5]), floats)?;
    /// let refused = Lease::try_from_owner_with(Tensor::Text(vec![]), floats).unwrap_err();
    /// assert_eq!(refused.error.to_string(), "`dtype`: found text, allowed: float32");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_from_owner_with<O, F>(owner: O, elements: F) -> Result<Self, Refused<O>>
    where
        O: Send + 'static,
        F: FnOnce(&O) -> Result<&[T]>,
    {
        let memory = LeasedMemory::lend(owner, |place| {
            // SAFETY: the value stays in its box until the owner is dropped, which happens after the last use of the
            // elements. Nothing else accesses the value until then, so this borrow stays valid.
            let elements = elements(unsafe { place.as_ref() })?;
            let address = elements.as_ptr().expose_provenance();
            Ok(address..address + size_of_val(elements))
        });
        Ok(Self { memory: memory?, marker: PhantomData })
    }

    /// Uses the bytes of a value in place as elements `T`: those of an Arrow `Buffer`, of `Bytes` or of a memory map.
    ///
    /// Types with invalid bit patterns, such as `bool`, do not compile. Import such an array instead: the import checks
    /// the bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Alignment`](crate::ErrorKind::Alignment) if the bytes are not aligned for `T`; [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if their number is not
    /// a multiple of its size. The value is returned with the error.
    ///
    /// ```
    /// use interop_core::{ErrorKind, Lease};
    ///
    /// let lease = Lease::<u8>::try_from_bytes(vec![1_u8, 2, 3])?;
    /// let refused = Lease::<u32>::try_from_bytes(vec![0_u8; 7]).unwrap_err();
    /// assert_eq!(refused.value.len(), 7);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn try_from_bytes<O: AsRef<[u8]> + Send + 'static>(owner: O) -> Result<Self, Refused<O>> {
        const {
            assert!(T::TYPE.any_bits, "not every byte is a value of this type");
        };
        let memory = LeasedMemory::lend(owner, |place| {
            // SAFETY: as in `try_from_owner_with`.
            let bytes: &[u8] = unsafe { place.as_ref() }.as_ref();
            let address = bytes.as_ptr().expose_provenance();
            let element = ElementType { align: align_of::<T>(), ..T::TYPE };
            element.check_span(address, bytes.len()).map(|()| address..address + bytes.len())
        });
        Ok(Self { memory: memory?, marker: PhantomData })
    }
}

impl<T: Element> LeaseMut<T> {
    /// As [`Lease::from_owner`], for reading and writing: uses the elements of a value that implements `AsMut<[T]>`.
    ///
    /// `bool` elements do not compile: a consumer may write an invalid byte, which the drop of the value could read.
    ///
    /// ```compile_fail
    /// let flags = interop_core::LeaseMut::<bool>::from_owner([false; 4]);
    /// ```
    ///
    /// ```
    /// use interop_core::{CudaArray, LeaseMut};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let mut samples = Samples { values: LeaseMut::from_owner([0.5_f32; 4]), len: 4 };
    /// samples.map_inplace(|value: f32| value * 2.0)?;
    /// assert_eq!(samples.to_vec::<f32>()?, [1.0; 4]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner<O: AsMut<[T]> + Send + 'static>(owner: O) -> Self {
        Self::from_owner_with(owner, O::as_mut)
    }

    /// As [`from_owner`](Self::from_owner), for a value from which a function borrows the elements, such as a matrix of
    /// `nalgebra`: `LeaseMut::from_owner_with(matrix, DMatrix::as_mut_slice)`.
    ///
    /// ```
    /// use interop_core::{CudaArray, LeaseMut};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let values = LeaseMut::from_owner_with(vec![1.0_f32, 2.0], Vec::as_mut_slice);
    /// let mut samples = Samples { values, len: 2 };
    /// samples.map_inplace(|value: f32| value * 2.0)?;
    /// let vector = samples.values.try_into_owner::<Vec<f32>>().unwrap();
    /// assert_eq!(vector, [2.0, 4.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner_with<O, F>(owner: O, elements: F) -> Self
    where
        O: Send + 'static,
        F: FnOnce(&mut O) -> &mut [T],
    {
        let lease = Self::try_from_owner_with(owner, |owner| Ok(elements(owner)));
        lease.unwrap_or_else(|_| unreachable!("the function does not fail"))
    }

    /// As [`Lease::try_from_owner_with`], for reading and writing.
    ///
    /// # Errors
    ///
    /// That of the function, with the value.
    pub fn try_from_owner_with<O, F>(owner: O, elements: F) -> Result<Self, Refused<O>>
    where
        O: Send + 'static,
        F: FnOnce(&mut O) -> Result<&mut [T]>,
    {
        const {
            assert!(
                T::TYPE.any_bits,
                "not every byte that a consumer may write is a `bool`: lend it as `u8`"
            );
        };
        let memory = LeasedMemory::lend(owner, |mut place| {
            // SAFETY: as for `Lease`; this is the only borrow.
            let elements = elements(unsafe { place.as_mut() })?;
            let bytes = size_of_val(elements);
            let address = elements.as_mut_ptr().expose_provenance();
            Ok(address..address + bytes)
        });
        Ok(Self { memory: memory?, marker: PhantomData })
    }
}

impl LeasedMemory {
    /// Boxes a value and describes the host memory that it lends, in the range that `locate` returns.
    fn lend<O: Send + 'static>(
        value: O,
        locate: impl FnOnce(NonNull<O>) -> Result<Range<usize>>,
    ) -> Result<Self, Refused<O>> {
        let (owner, place) = Owner::new_with_address(value);
        match locate(place) {
            Ok(range) => {
                let memory = OwnedMemory::new(owner, Placement::Nothing, None);
                let lender = Some(TypeId::of::<O> as fn() -> TypeId);
                Ok(Self { address: range.start, range, device: Device::CPU, memory, lender })
            }
            // SAFETY: the owner was made above for an `O`, and no borrow of the value is left after an error.
            Err(error) => Err(Refused::new(unsafe { owner.into_value::<O>() }, error)),
        }
    }
}

/// The ways back from a lease to the owner of its memory.
macro_rules! owners {
    ($lease:ident) => {
        /// The owner of the memory in place of the lease.
        impl<T: Element> From<$lease<T>> for Owner {
            fn from(lease: $lease<T>) -> Self {
                lease.memory.memory.into_owner()
            }
        }

        impl<T: Element> $lease<T> {
            /// Returns the value that lends the memory, if it has this type.
            ///
            /// # Errors
            ///
            /// The lease, if its memory was imported or belongs to a value of another type.
            ///
            /// ```
            #[doc = concat!("use interop_core::", stringify!($lease), ";")]
            ///
            #[doc = concat!("let lease = ", stringify!($lease), "::from_owner(vec![1.0_f32, 2.0]);")]
            /// let lease = lease.try_into_owner::<String>().unwrap_err();
            /// assert_eq!(lease.try_into_owner::<Vec<f32>>().unwrap(), [1.0, 2.0]);
            /// ```
            pub fn try_into_owner<O: Send + 'static>(self) -> Result<O, Self> {
                if self.memory.lender.is_none_or(|lender| lender() != TypeId::of::<O>()) {
                    return Err(self);
                }
                // SAFETY: the value has this type, which was recorded when the owner was made. The lease is consumed,
                // so no borrow of the value is left.
                Ok(unsafe { self.memory.memory.into_owner().into_value::<O>() })
            }
        }
    };
}

/// Makes a type around [`LeasedMemory`] a storage.
macro_rules! storage {
    ($lease:ident $([$lifetime:lifetime])?, $mutability:expr $(, $check:path)?) => {
        // SAFETY: 1 to 3: the owner keeps the memory unchanged, as the creator of the import promised or the borrow of
        // the value ensures; memory that is lent for a time has no owner here, and `BorrowedFor` ends the storage before
        // that time does. 4: the lease returns no reference.
        unsafe impl<$($lifetime,)? T: Element> Storage for $lease<$($lifetime,)? T> {
            #[inline]
            fn memory(&self) -> Result<MemoryRegion> {
                self.memory.memory.note_used();
                self.memory_unwatched()
            }

            #[inline]
            fn memory_unwatched(&self) -> Result<MemoryRegion> {
                let LeasedMemory { address, ref range, device, .. } = self.memory;
                let (range, element, mutability) = (range.clone(), T::TYPE, $mutability);
                Ok(MemoryRegion { address, range, element, device, mutability })
            }

            #[inline]
            fn stream(&self) -> Option<StreamHandle> {
                self.memory.memory.placement().handle_here(self.memory.device)
            }

            #[inline]
            fn state(&self) -> StorageState<'_> {
                self.memory.memory.state()
            }
        }

        impl<$($lifetime,)? T: Element> FromImport for $lease<$($lifetime,)? T> {
            const COPIES: bool = false;
            const WRITES: bool = matches!($mutability, Mutability::Writable);

            #[inline]
            fn element() -> Option<ElementType> {
                Some(T::TYPE)
            }

            $(#[inline]
            fn check(info: &ArrayInfo) -> Result<()> {
                $check(info)
            })?

            #[inline(always)]
            fn from_import(import: &mut Import, _order: Order) -> Result<Self> {
                let info = import.info();
                Self::check(info)?;
                info.check_element(&T::TYPE)?;
                let (address, range, device) = (info.unwatched_address, info.unwatched_range(), info.device());
                if Self::WRITES {
                    import.announce_write()?;
                }
                let memory = import.take_memory()?;
                let memory = LeasedMemory { address, range, device, memory, lender: None };
                Ok(Self { memory, marker: PhantomData })
            }
        }

        impl<$($lifetime,)? T: Element> fmt::Debug for $lease<$($lifetime,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let LeasedMemory { address, device, .. } = &self.memory;
                let name = stringify!($lease);
                write!(f, "{name}({} at {address:#x}, {device})", T::TYPE.describe())
            }
        }
    };
}

owners!(Lease);
owners!(LeaseMut);

storage!(Lease, Mutability::ReadOnly);
storage!(LeaseMut, Mutability::Writable, Description::check_import_writable);
storage!(Borrowed['a], Mutability::ReadOnly);
storage!(BorrowedMut['a], Mutability::Writable, Description::check_import_writable);
