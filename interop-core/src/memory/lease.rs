//! Storage that holds foreign memory: typed leases, and shared memory of any type.
#![expect(unsafe_code, reason = "each storage vouches for its memory in an unsafe impl")]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::cuda::pending_work::PendingWork;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::array_view::read_only;
use crate::memory::from_import::FromImport;
use crate::memory::import::Import;
use crate::memory::owner::Owner;
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

/// Memory of elements `T` that is used in place, for reading: imported, or [lent](Self::from_owner) by its owner.
///
/// The memory is released when the lease is dropped. An export of the lease is read-only. In a struct without a `stream`
/// field the lease knows the work that was pending when it arrived: copies to the host wait for it, exports come after it.
/// (The import itself has waited if the memory is pinned or managed, which is of no device whose default stream could be
/// named.)
///
/// ```
/// use std::sync::Arc;
/// use interop_core::dlpack::Versioned;
/// use interop_core::{CudaArray, ErrorKind, FromArray, Lease, LeaseMut};
///
/// #[derive(Debug, CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// // Other Rust code can read a `Vec` in an `Arc`, so nobody may write to what it exports.
/// let samples = Arc::new(Samples { values: vec![1.0_f32; 4], len: 4 });
/// let refused = Samples::<LeaseMut<f32>>::from_dlpack(samples.share_dlpack::<Versioned>()?);
/// assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
///
/// let borrowed = Samples::<Lease<f32>>::from_dlpack(samples.share_dlpack::<Versioned>()?)?;
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

/// Memory of elements `T` that is used in place, for reading and writing: imported, or [lent](Self::from_owner) by its owner.
///
/// An import of a read-only array into it is refused. Exports of the lease are writable. It knows of pending work as
/// [`Lease`] does, but not of the kernels that Rust code launches on it: for those the struct needs a `stream` field.
pub struct LeaseMut<T> {
    memory: LeasedMemory,
    marker: PhantomData<fn() -> T>,
}

/// What a lease holds.
struct LeasedMemory {
    address: usize,
    range: Range<usize>,
    device: Device,
    /// Where work is pending, unless the struct says it.
    pending: PendingWork,
    owner: Owner,
}

impl<T: Element> Lease<T> {
    /// The elements of a value that lends them as a slice, in place: `Bytes`, a memory map, a buffer of Arrow, a `Cow`, or a
    /// type of yours around one of another crate. The value is kept in a box, and dropped with the lease. The memory counts as
    /// that of the host alone, whatever else it is.
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
        let (owner, place) = Owner::boxed(owner);
        // SAFETY: the value is in its box until the owner is dropped, which comes after the last use of the elements;
        // nobody else gets at it until then, so this borrow of it goes on.
        let elements: &[T] = unsafe { place.as_ref() }.as_ref();
        let memory = LeasedMemory::from_owned_memory(
            elements.as_ptr().expose_provenance(),
            size_of_val(elements),
            owner,
        );
        Self { memory, marker: PhantomData }
    }
}

impl<T: Element> LeaseMut<T> {
    /// As [`Lease::from_owner`], for reading and writing: of a value that lends its elements as a mutable slice.
    ///
    /// Not of `bool`, at compile time: a consumer may leave a byte that is none where the value's drop reads it.
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
        const {
            assert!(
                T::TYPE.any_bits,
                "not every byte that a consumer may write is a `bool`: lend it as `u8`"
            );
        };
        let (owner, mut place) = Owner::boxed(owner);
        // SAFETY: as for `Lease`; the borrow is the only one.
        let elements: &mut [T] = unsafe { place.as_mut() }.as_mut();
        let bytes = size_of_val(elements);
        let memory = LeasedMemory::from_owned_memory(elements.as_mut_ptr().expose_provenance(), bytes, owner);
        Self { memory, marker: PhantomData }
    }
}

impl LeasedMemory {
    /// Memory of the host that its owner lends for as long as it is there.
    fn from_owned_memory(address: usize, bytes: usize, owner: Owner) -> Self {
        let pending = PendingWork::on(StreamHandle::NothingPending);
        Self { address, range: address..address + bytes, device: Device::CPU, pending, owner }
    }
}

macro_rules! lease {
    ($lease:ident, $mutability:expr, $check:path) => {
        impl<T: Element> $lease<T> {
            /// The owner of the memory, to be kept instead of the lease.
            #[must_use]
            pub fn into_owner(self) -> Owner {
                self.memory.owner
            }
        }

        // SAFETY: 1 to 3: the owner keeps the memory as it is, which an import was made with the promise of, and which a value
        // that lends it is borrowed for. 4: the lease lends no reference.
        unsafe impl<T: Element> Storage for $lease<T> {
            #[inline]
            fn memory(&self) -> MemoryRegion {
                let LeasedMemory { address, ref range, device, .. } = self.memory;
                MemoryRegion {
                    address,
                    range: range.clone(),
                    element: T::TYPE,
                    device,
                    mutability: $mutability,
                }
            }

            #[inline]
            fn stream(&self) -> StreamHandle {
                self.memory.pending.stream(self.memory.device)
            }
        }

        impl<T: Element> FromImport for $lease<T> {
            const COPIES: bool = false;

            #[inline]
            fn element() -> Option<ElementType> {
                Some(T::TYPE)
            }

            #[inline]
            fn check(info: &ArrayInfo) -> Result<()> {
                $check(info)
            }

            fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
                Self::take(&mut import, order).map_err(|error| Refused { value: import, error })
            }

            #[inline(always)]
            fn take(import: &mut Import, _order: Order) -> Result<Self> {
                let info = import.info();
                $check(info)?;
                info.check_element(&T::TYPE)?;
                let (address, range, device) = (info.address(), info.byte_range(), info.device());
                let pending = import.pending_work()?;
                let owner = import.take_owner();
                let memory = LeasedMemory { address, range, device, pending, owner };
                Ok(Self { memory, marker: PhantomData })
            }
        }

        impl<T: Element> fmt::Debug for $lease<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let LeasedMemory { address, device, .. } = &self.memory;
                let name = stringify!($lease);
                write!(f, "{name}({} at {address:#x}, {device})", T::TYPE.describe())
            }
        }
    };
}

lease!(Lease, Mutability::ReadOnly, anything);

lease!(LeaseMut, Mutability::Writable, writable);

#[expect(clippy::unnecessary_wraps, reason = "the signature of `FromImport::check`")]
fn anything(_: &ArrayInfo) -> Result<()> {
    Ok(())
}

pub(crate) fn writable(info: &ArrayInfo) -> Result<()> {
    if info.mutability() != Mutability::ReadOnly {
        return Ok(());
    }
    let error = read_only().with_rust_hint(
        "import into `Lease<T>` to read it, or copy it into `Vec<T>` or `HostVec<T>`; what came in DLPack's legacy form, \
         which cannot say who may write, counts as read-only",
    );
    Err(error.with_python_hint(
        "`numpy.array` makes one of host memory; what a library hands out in DLPack's legacy form, as Warp does, counts as read-only",
    ))
}

/// Refuses an offset into a struct: the bytes between its fields may hold nothing that can be read.
pub(crate) fn check_whole(bytes: isize, item: usize) -> Result<()> {
    if bytes.unsigned_abs() % item == 0 {
        return Ok(());
    }
    let allowed = text!("a multiple of {item} bytes, the size of a struct element");
    Err(Error::new(ErrorKind::Alignment, "offset", text!("{bytes} bytes"), allowed))
}
