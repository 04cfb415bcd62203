//! Storages that can be made from an import.
#![expect(unsafe_code, reason = "an import may be lent for a time that its type does not state")]
#![expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]

use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::driver::device::DeviceType;
use crate::error::{Refused, Result};
use crate::memory::extraction::{Extraction, FieldStream, Requirements};
use crate::memory::import::Import;
use crate::memory::storage::Storage;

impl Extraction<'_> {
    /// Checks the import against the requirements of a struct with this storage.
    ///
    /// Fails with [`ErrorKind::DType`](crate::ErrorKind::DType), [`ErrorKind::Rank`](crate::ErrorKind::Rank),
    /// [`ErrorKind::Strides`](crate::ErrorKind::Strides), [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) or
    /// [`ErrorKind::Device`](crate::ErrorKind::Device).
    #[inline(always)]
    pub fn open<S: FromImport>(&mut self, requirements: Requirements) {
        if self.refusal.is_none() {
            self.refusal = self.compare::<S>(requirements).err();
        }
    }

    #[inline(always)]
    fn compare<S: FromImport>(&mut self, requirements: Requirements) -> Result<()> {
        S::check(self.info()?)?;
        if S::IS_FREED_ON_DEFAULT_STREAM {
            self.field_stream = FieldStream::Default;
        }
        self.check_layout(S::element().as_ref(), requirements, S::COPIES)
    }

    /// The value of the `data` field. Nothing can be taken afterwards.
    ///
    /// Fails if the storage refuses the import, which then stays in the extraction.
    ///
    /// # Safety
    ///
    /// If the memory of the import is lent for `'a`, the storage is [`BorrowedFor<'a>`](crate::lent::BorrowedFor).
    #[inline(always)]
    pub unsafe fn storage<S: FromImport>(&mut self) -> Option<S> {
        self.step(|this| {
            let at_once = takes_at_once::<S>(this.info()?);
            let storage = if at_once { S::take(this.import, this.order) } else { this.storage_in_wait() }?;
            this.taken = true;
            Ok(storage)
        })
    }

    /// Makes the storage in the closure that may wait.
    #[cold]
    fn storage_in_wait<S: FromImport>(&mut self) -> Result<S> {
        let mut storage = None;
        let Self { import, order, wait, .. } = self;
        wait(&mut || storage = Some(S::take(import, *order)));
        storage.unwrap_or_else(|| unreachable!("`wait` runs its closure"))
    }
}

/// The largest copy on the host that is made with the locks of the embedding program held. To give them up and take them
/// again costs as much as a copy of some kilobytes.
pub(crate) const SHORT_COPY: usize = 1 << 16;

/// Returns whether a storage is made without waiting for a device and without a long copy.
///
/// Memory that the host and devices share is waited for. A copy waits for pending work, and one into memory of a device
/// waits for that device.
#[inline(always)]
fn takes_at_once<S: FromImport>(info: &ArrayInfo) -> bool {
    match info.device().device_type {
        DeviceType::CPU => !S::COPIES || (S::COPIES_TO_HOST && info.nbytes() <= SHORT_COPY),
        DeviceType::CUDA => !S::COPIES,
        _ => false,
    }
}

/// What is known at compile time of the field with the data.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for arguments of Python functions"))]
pub struct DataField {
    /// The element type, or `None` for any.
    pub(crate) element: fn() -> Option<ElementType>,
    /// Whether the struct writes to the memory of the caller.
    pub(crate) is_written: bool,
    /// The memory order of a converted array.
    pub(crate) order: Order,
}

impl DataField {
    /// A raw pointer.
    pub(crate) const RAW: Self = Self::new(|| None, true);

    pub(crate) const fn new(element: fn() -> Option<ElementType>, is_written: bool) -> Self {
        Self { element, is_written, order: Order::C }
    }

    /// The data of a struct with `order = "F"`.
    #[must_use]
    pub const fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }
}

/// A storage type whose check against the extraction has been done.
#[must_use]
pub struct CheckedStorage<T> {
    take: unsafe fn(&mut Extraction<'_>) -> Option<T>,
}

impl<T> CheckedStorage<T> {
    #[inline]
    pub(crate) const fn new(take: unsafe fn(&mut Extraction<'_>) -> Option<T>) -> Self {
        Self { take }
    }

    /// As [`Extraction::storage`].
    ///
    /// # Safety
    ///
    /// As for that function.
    #[inline]
    pub unsafe fn take(self, from: &mut Extraction<'_>) -> Option<T> {
        // SAFETY: as the caller promises.
        unsafe { (self.take)(from) }
    }
}

/// A [`Storage`] that can be made from an import, by copying the elements or by using the memory in place.
///
/// ```
/// use interop_core::storage::FromImport;
/// use interop_core::Lease;
/// assert!(Vec::<f32>::COPIES);
/// assert!(!Lease::<f32>::COPIES);
/// ```
///
/// Build your own storage on one of the existing ones, whose constants it repeats. If it wraps a lease, forward
/// [`stream`](Storage::stream) too, because work may be pending on the memory. A storage that copies into memory of its own
/// allocator calls [`copy_import`](crate::storage::copy_import()).
///
/// ```
/// use interop_core::element::ElementType;
/// use interop_core::storage::{FromImport, MemoryRegion};
/// use interop_core::{ArrayInfo, Import, Order, Refused, Storage};
///
/// struct Volts(Vec<f32>);
///
/// // SAFETY: as for the vector, and `Volts` gives no other access to it.
/// unsafe impl Storage for Volts {
///     fn memory(&self) -> interop_core::Result<MemoryRegion> {
///         self.0.memory()
///     }
/// }
///
/// impl FromImport for Volts {
///     const COPIES: bool = Vec::<f32>::COPIES;
///     const COPIES_TO_HOST: bool = Vec::<f32>::COPIES_TO_HOST;
///
///     fn element() -> Option<ElementType> {
///         Vec::<f32>::element()
///     }
///
///     fn check(info: &ArrayInfo) -> interop_core::Result<()> {
///         Vec::<f32>::check(info)
///     }
///
///     fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
///         Vec::from_import(import, order).map(Self)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be filled by an import",
    label = "this storage cannot be made from an import",
    note = "`Vec<T>`, `Box<[T]>`, `Arc<[T]>` and `HostVec<T>` copy an import, `Lease<T>` and `LeaseMut<T>` use it in place",
    note = "for a struct that is only exported write `#[cuda_array(export)]`",
    note = "for a storage of your own implement `interop_core::storage::FromImport`"
)]
pub trait FromImport: Storage + Sized {
    /// Whether elements are copied. The result is then contiguous for any strides of the import.
    const COPIES: bool;

    /// Whether the storage frees device memory in the order of the legacy default stream, as `CudaSlice` of `cudarc` does. A
    /// `stream` field of the struct then gets that stream, because work on another one could come after the memory was freed.
    /// A storage that wraps such a storage repeats its constant.
    const IS_FREED_ON_DEFAULT_STREAM: bool = false;

    /// Whether the elements are copied into memory of the host without the help of a device. If not, a Python function gives up
    /// the lock of the interpreter for the copy.
    const COPIES_TO_HOST: bool = false;

    /// Whether the struct writes to the memory of the caller, as [`LeaseMut`](crate::LeaseMut) does. An argument that is converted
    /// if it does not fit (`python::ArrayLike`) refuses such a storage, because the caller would not see what is written.
    const WRITES: bool = false;

    /// What is known of the `data` field of a struct with this storage.
    #[doc(hidden)]
    const DATA_FIELD: DataField = DataField::new(Self::element, Self::WRITES);

    /// The element type, or `None` to accept any.
    fn element() -> Option<ElementType>;

    /// Checks, before anything is taken, whether the storage can be made from the import. By default it always can.
    ///
    /// # Errors
    ///
    /// For example [`ErrorKind::Device`](crate::ErrorKind::Device) for memory that cannot be accessed, or
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) for a writable lease.
    fn check(info: &ArrayInfo) -> Result<()> {
        let _ = info;
        Ok(())
    }

    /// Makes the storage. If it copies, the copy is contiguous in `order`.
    ///
    /// # Errors
    ///
    /// Returns the import together with the reason.
    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>>;

    /// As [`from_import`](Self::from_import), but takes the import by reference; on failure it stays there.
    #[doc(hidden)]
    fn take(import: &mut Import, order: Order) -> Result<Self> {
        let taken = core::mem::replace(import, Import::empty());
        Self::from_import(taken, order).map_err(|Refused { value, error }| {
            *import = *value;
            error
        })
    }

    /// Called by expanded code before anything is taken.
    #[doc(hidden)]
    #[inline(always)]
    fn open(from: &mut Extraction<'_>, requirements: Requirements) -> CheckedStorage<Self> {
        from.open::<Self>(requirements);
        CheckedStorage::new(storage_of::<Self>)
    }
}

/// As [`Extraction::storage`], for an extraction of any lifetime.
///
/// # Safety
///
/// As for that function.
#[inline(always)]
unsafe fn storage_of<S: FromImport>(from: &mut Extraction<'_>) -> Option<S> {
    // SAFETY: as the caller promises.
    unsafe { from.storage() }
}
