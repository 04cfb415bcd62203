//! `SharedBuffer`: a storage of any element type that several structs share.
#![expect(unsafe_code, reason = "implements `Storage`")]
#![expect(clippy::inline_always, reason = "otherwise the storage goes through memory, which stalls the CPU")]

use core::fmt;
use std::sync::Arc;

use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::array::struct_type::StructType;
use crate::array::use_record::UseRecord;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::from_import::FromImport;
use crate::memory::import::Import;
use crate::memory::lease::check_whole;
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::owner::Owner;
use crate::memory::storage::MemoryRegion;
use crate::memory::storage::Storage;

/// Memory of any element type that several structs share: slices of one array, or several views of one import.
///
/// A struct with this storage imports arrays of every element type. Clones refer to the same memory.
///
/// ```
/// use interop_core::{HostVec, SharedBuffer, Storage};
///
/// let all = SharedBuffer::new(HostVec::from_slice(&[0.0_f32, 1.0, 2.0]));
/// let rest = all.byte_offset(4)?;
/// assert_eq!(rest.memory().address, all.memory().address + 4);
/// assert!(all.byte_offset(13).is_err());
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedBuffer {
    address: usize,
    /// 1 if this handle must not write. It is a word for the reason given at `Dims`.
    readonly: usize,
    inner: Arc<Inner>,
}

/// The whole memory, shared by all handles.
struct Inner<K: ?Sized = dyn SharedOwner> {
    memory: MemoryRegion,
    struct_type: Option<StructType>,
    owner: K,
}

/// The owner of the memory, which may know its pending work.
trait SharedOwner: Send + Sync {
    fn pending(&self) -> PendingWork;

    /// As [`Storage::uses`].
    fn uses(&self) -> Option<UseRecord>;

    /// As [`Storage::drops_in_order`].
    fn drops_in_order(&self) -> bool;
}

/// The storage is asked at each call, because its stream may change.
impl<S: Storage + Send + Sync> SharedOwner for MaybeDangling<S> {
    fn pending(&self) -> PendingWork {
        self.get().pending()
    }

    fn uses(&self) -> Option<UseRecord> {
        self.get().uses()
    }

    fn drops_in_order(&self) -> bool {
        self.get().drops_in_order()
    }
}

impl SharedOwner for (Owner, PendingWork) {
    fn pending(&self) -> PendingWork {
        self.1
    }

    fn uses(&self) -> Option<UseRecord> {
        self.0.uses()
    }

    fn drops_in_order(&self) -> bool {
        self.0.scope().is_some()
    }
}

impl SharedBuffer {
    /// Shares a storage. If only a sole owner may write to it (a `Vec`), it becomes read-only.
    pub fn new(storage: impl Storage + Send + Sync + 'static) -> Self {
        // The storage is described first and moved afterwards.
        let owner = MaybeDangling::new(storage);
        let (memory, struct_type) = (owner.get().region(), owner.get().struct_type().cloned());
        Self::of(Inner { memory, struct_type, owner })
    }

    #[inline(always)]
    fn of(inner: Inner<impl SharedOwner + 'static>) -> Self {
        let (address, readonly) =
            (inner.memory.address, usize::from(inner.memory.mutability != Mutability::Writable));
        Self { address, readonly, inner: Arc::new(inner) }
    }

    /// Returns a handle whose first element is `bytes` further on. For struct elements, `bytes` must be a multiple of
    /// their size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfBounds`] outside the memory; [`ErrorKind::Alignment`] inside a struct element, where padding
    /// could be read as a field.
    ///
    /// ```
    /// use interop_core::{Element, ErrorKind, SharedBuffer};
    ///
    /// #[derive(Clone, Copy, Element)]
    /// #[repr(C)]
    /// struct Hit { detector: u8, energy: f64 }
    ///
    /// let hits = SharedBuffer::new(vec![Hit { detector: 1, energy: 0.5 }; 2]);
    /// assert!(hits.byte_offset(16).is_ok());
    /// assert_eq!(hits.byte_offset(8).unwrap_err().kind(), ErrorKind::Alignment);
    /// ```
    pub fn byte_offset(&self, bytes: isize) -> Result<Self> {
        let MemoryRegion { range, element, .. } = &self.inner.memory;
        if element.fields.is_some() || self.inner.struct_type.is_some() {
            check_whole(bytes, element.dtype.packed_bits() / 8)?;
        }
        let address = self.address.checked_add_signed(bytes);
        let address =
            address.filter(|address| (range.start..=range.end).contains(address)).ok_or_else(|| {
                let allowed = text!("an offset into the {} bytes of memory", range.len());
                Error::new(ErrorKind::OutOfBounds, "offset", format_args!("{bytes} bytes"), allowed)
            })?;
        Ok(Self { address, ..self.clone() })
    }

    /// Returns a handle to the same memory that must not write, and whose exports are read-only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { readonly: 1, ..self }
    }
}

// SAFETY: 1 to 3 and 5: as for the inner storage; `byte_offset` stays within its range. 4: `UniqueOwner` memory is reported
// as read-only.
unsafe impl Storage for SharedBuffer {
    #[inline]
    fn memory(&self) -> MemoryRegion {
        if let Some(uses) = self.uses() {
            uses.note_used();
        }
        self.region()
    }

    #[inline]
    fn region(&self) -> MemoryRegion {
        let MemoryRegion { ref range, element, device, .. } = self.inner.memory;
        let mutability = if self.readonly == 0 { Mutability::Writable } else { Mutability::ReadOnly };
        MemoryRegion { address: self.address, range: range.clone(), element, device, mutability }
    }

    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
        self.inner.struct_type.as_ref()
    }

    #[inline]
    fn uses(&self) -> Option<UseRecord> {
        self.inner.owner.uses()
    }

    #[inline]
    fn stream(&self) -> Option<StreamHandle> {
        self.pending().stream(self.inner.memory.device)
    }

    #[inline]
    fn pending(&self) -> PendingWork {
        self.inner.owner.pending()
    }

    #[inline]
    fn drops_in_order(&self) -> bool {
        self.inner.owner.drops_in_order()
    }
}

impl FromImport for SharedBuffer {
    const COPIES: bool = false;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(_: &ArrayInfo) -> Result<()> {
        Ok(())
    }

    fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
        Self::take(&mut import, order).map_err(|error| Refused::new(import, error))
    }

    #[inline(always)]
    fn take(import: &mut Import, _order: Order) -> Result<Self> {
        let info = import.info();
        let (dtype, padded) = (info.dtype(), info.is_padded());
        let size = dtype.packed_bits().div_ceil(8);
        let memory = MemoryRegion {
            address: info.address,
            range: info.span(),
            element: ElementType { padded, ..ElementType::of_bytes(dtype, size) },
            device: info.device(),
            mutability: info.mutability(),
        };
        let struct_type = info.struct_type().cloned();
        let pending = import.pending_work()?;
        Ok(Self::of(Inner { memory, struct_type, owner: (import.take_owner(), pending) }))
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, MemoryRegion { element, device, .. }) = (self.address, &self.inner.memory);
        write!(f, "SharedBuffer({} at {address:#x}, {device})", element.describe())
    }
}
