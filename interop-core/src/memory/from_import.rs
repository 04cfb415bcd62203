//! Storages that an import can fill.
#![expect(
    clippy::inline_always,
    reason = "what is known of the struct where it is made is not compared there"
)]

use crate::array::device::DeviceType;
use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::error::{Refused, Result};
use crate::memory::extraction::{Extraction, Requirements, taken};
use crate::memory::import::Import;
use crate::memory::storage::Storage;

impl Extraction<'_> {
    /// Compares the import with what a struct with this storage wants.
    ///
    /// Refuses by [`ErrorKind::DType`](crate::ErrorKind::DType), [`ErrorKind::Rank`](crate::ErrorKind::Rank), [`ErrorKind::Strides`](crate::ErrorKind::Strides), [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly),
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
        self.check_layout(S::element().as_ref(), requirements, S::COPIES)
    }

    /// The `data` field. Nothing may be taken afterwards.
    ///
    /// Refuses what the storage refuses. The arrival has the import then.
    #[inline(always)]
    pub fn storage<S: FromImport>(&mut self) -> Option<S> {
        if self.refusal.is_some() {
            return None;
        }
        if self.taken {
            return self.refuse(taken());
        }
        let kind = self.import.info().device().device_type;
        // One call, which is inlined then, and no result that both branches share: what goes through memory is read back at
        // once, and stalls.
        let storage = if kind == DeviceType::CPU || (kind == DeviceType::CUDA && !S::COPIES) {
            match S::take(self.import, self.order) {
                Ok(storage) => storage,
                Err(error) => return self.refuse(error),
            }
        } else {
            match self.waited_for() {
                Ok(storage) => storage,
                Err(error) => return self.refuse(error),
            }
        };
        self.taken = true;
        Some(storage)
    }

    /// A storage that waits for the work that is pending, as copies do, or whatever holds memory that the host reaches.
    #[cold]
    fn waited_for<S: FromImport>(&mut self) -> Result<S> {
        let mut storage = None;
        let Self { import, order, wait, .. } = self;
        wait(&mut || storage = Some(S::take(import, *order)));
        storage.unwrap_or_else(|| unreachable!("`wait` runs what it is given"))
    }
}

/// The storage of an arrival that was compared with it.
#[must_use]
pub struct CheckedStorage<T> {
    take: fn(&mut Extraction<'_>) -> Option<T>,
}

impl<T> CheckedStorage<T> {
    #[inline]
    pub(crate) const fn new(take: fn(&mut Extraction<'_>) -> Option<T>) -> Self {
        Self { take }
    }

    /// As [`Extraction::storage`].
    #[inline]
    pub fn take(self, from: &mut Extraction<'_>) -> Option<T> {
        (self.take)(from)
    }
}

/// A [`Storage`] that an import can make: by copying the elements, or by holding on to the memory in place.
///
/// ```
/// use interop_core::{FromImport, Lease};
/// assert!(Vec::<f32>::COPIES);
/// assert!(!Lease::<f32>::COPIES);
/// ```
///
/// A storage of your own is made of one of these. One around a lease hands on its [`stream`](Storage::stream) too: work may
/// be pending on memory that is used in place.
///
/// ```
/// use interop_core::{ElementType, ArrayInfo, FromImport, Import, MemoryRegion, Order, Refused, Storage};
///
/// struct Volts(Vec<f32>);
///
/// // SAFETY: as the vector, of which no more is lent than by the vector itself.
/// unsafe impl Storage for Volts {
///     fn memory(&self) -> MemoryRegion {
///         self.0.memory()
///     }
/// }
///
/// impl FromImport for Volts {
///     const COPIES: bool = Vec::<f32>::COPIES;
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
    label = "an import cannot make this storage",
    note = "`Vec<T>`, `Box<[T]>`, `Arc<[T]>` and `HostVec<T>` copy an import, `Lease<T>` and `LeaseMut<T>` use it in place",
    note = "for a struct that is only exported write `#[cuda_array(export)]`",
    note = "for a storage of your own implement `interop_core::FromImport`"
)]
pub trait FromImport: Storage + Sized {
    /// Whether the elements are copied, so that the result is compact whatever the strides of the import are.
    const COPIES: bool;

    /// The type of the elements; `None` takes any.
    fn element() -> Option<ElementType>;

    /// Refuses imports that the storage cannot be made from, before anything is taken.
    ///
    /// # Errors
    ///
    /// Such as [`ErrorKind::Device`](crate::ErrorKind::Device) for memory that cannot be reached, or [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) for a writable lease.
    fn check(info: &ArrayInfo) -> Result<()>;

    /// Makes the storage; compact in `order` if it copies.
    ///
    /// # Errors
    ///
    /// The import comes back with the reason.
    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>>;

    /// As [`from_import`](Self::from_import), for an import that is taken where it is; it stays there if it is refused.
    #[doc(hidden)]
    fn take(import: &mut Import, order: Order) -> Result<Self> {
        let taken = core::mem::replace(import, Import::EMPTY);
        Self::from_import(taken, order).map_err(|Refused { value, error }| {
            *import = value;
            error
        })
    }

    /// The derive's call on the way in, before anything is taken.
    #[doc(hidden)]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`, like the call in it")]
    fn open(from: &mut Extraction<'_>, requirements: Requirements) -> CheckedStorage<Self> {
        from.open::<Self>(requirements);
        CheckedStorage::new(storage_of::<Self>)
    }
}

/// As [`Extraction::storage`], for an arrival of any lifetime.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the call in `FromArray::assemble`")]
fn storage_of<S: FromImport>(from: &mut Extraction<'_>) -> Option<S> {
    from.storage()
}
