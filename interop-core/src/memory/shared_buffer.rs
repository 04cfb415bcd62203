//! `SharedBuffer`: a storage of any element type that several structs share.
#![expect(unsafe_code, reason = "vouches for its memory in an unsafe impl")]
#![expect(
    clippy::inline_always,
    reason = "a storage that comes back through memory is read at once, which stalls"
)]

use core::fmt;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;
use crate::cuda::pending_work::PendingWork;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::from_import::FromImport;
use crate::memory::import::Import;
use crate::memory::lease::check_whole;
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::owner::Owner;
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

/// Memory of any element type that several structs share: slices of one array, or one import in many views.
///
/// A struct with this storage imports arrays of every element type, and its clones see the same memory.
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
    /// 1: not to be written through this handle. A whole word, for the reason given at `Dims`.
    readonly: usize,
    all: Arc<Inner>,
}

/// The whole of the memory, which every handle has.
struct Inner<K: ?Sized = dyn StreamSource> {
    memory: MemoryRegion,
    struct_type: Option<StructType>,
    keep: K,
}

/// A value that is kept for its drop and knows where work is pending, unless the struct says it.
trait StreamSource: Send + Sync {
    fn stream(&self) -> StreamHandle;
}

/// A storage is asked each time: its next work may be on another stream.
impl<S: Storage + Send + Sync> StreamSource for MaybeDangling<S> {
    fn stream(&self) -> StreamHandle {
        self.get().stream()
    }
}

impl StreamSource for (Owner, PendingWork, Device) {
    fn stream(&self) -> StreamHandle {
        self.1.stream(self.2)
    }
}

impl SharedBuffer {
    /// Shares this storage. What its sole owner might write (a `Vec`) is read-only from now on.
    pub fn new(storage: impl Storage + Send + Sync + 'static) -> Self {
        // Described first and moved afterwards.
        let keep = MaybeDangling::new(storage);
        let (memory, struct_type) = (keep.get().memory(), keep.get().struct_type().cloned());
        Self::of(Inner { memory, struct_type, keep })
    }

    #[inline(always)]
    fn of(all: Inner<impl StreamSource + 'static>) -> Self {
        let (address, readonly) =
            (all.memory.address, usize::from(all.memory.mutability != Mutability::Writable));
        Self { address, readonly, all: Arc::new(all) }
    }

    /// The same memory, with the first element `bytes` further on; in memory of structs a whole number of elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfBounds`] outside the memory; [`ErrorKind::Alignment`] within a struct, where a field would be read as
    /// what lies between two others.
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
        let MemoryRegion { range, element, .. } = &self.all.memory;
        if element.fields.is_some() || self.all.struct_type.is_some() {
            check_whole(bytes, element.dtype.packed_bits() / 8)?;
        }
        let address = self.address.checked_add_signed(bytes);
        let address =
            address.filter(|address| (range.start..=range.end).contains(address)).ok_or_else(|| {
                let allowed = text!("a place in the {} bytes of memory", range.len());
                Error::new(ErrorKind::OutOfBounds, "offset", format_args!("{bytes} bytes"), allowed)
            })?;
        Ok(Self { address, ..self.clone() })
    }

    /// The same memory, not to be written through this handle or exports of it.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { readonly: 1, ..self }
    }
}

// SAFETY: 1 to 3: as the storage that is kept; `byte_offset` stays within its range. 4: what is writable only when owned is
// reported as read-only.
unsafe impl Storage for SharedBuffer {
    #[inline]
    fn memory(&self) -> MemoryRegion {
        let MemoryRegion { ref range, element, device, .. } = self.all.memory;
        let mutability = if self.readonly == 0 { Mutability::Writable } else { Mutability::ReadOnly };
        MemoryRegion { address: self.address, range: range.clone(), element, device, mutability }
    }

    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
        self.all.struct_type.as_ref()
    }

    #[inline]
    fn stream(&self) -> StreamHandle {
        self.all.keep.stream()
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
        Self::take(&mut import, order).map_err(|error| Refused { value: import, error })
    }

    #[inline(always)]
    fn take(import: &mut Import, _order: Order) -> Result<Self> {
        let info = import.info();
        let (dtype, padded) = (info.dtype(), info.is_padded());
        let size = dtype.packed_bits().div_ceil(8);
        let memory = MemoryRegion {
            address: info.address(),
            range: info.byte_range(),
            element: ElementType { padded, ..ElementType::of_bytes(dtype, size) },
            device: info.device(),
            mutability: info.mutability(),
        };
        let (struct_type, device) = (info.struct_type().cloned(), info.device());
        let pending = import.pending_work()?;
        Ok(Self::of(Inner { memory, struct_type, keep: (import.take_owner(), pending, device) }))
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, MemoryRegion { element, device, .. }) = (self.address, &self.all.memory);
        write!(f, "SharedBuffer({} at {address:#x}, {device})", element.describe())
    }
}
