//! `SharedBuffer`: a storage of any element type that several structs share.
#![expect(unsafe_code, reason = "implements `Storage`, and reads the bytes of `bool` to check them")]
#![expect(clippy::inline_always, reason = "otherwise the storage goes through memory, which stalls the CPU")]

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::extraction::FromImport;
use crate::memory::host::strided::{Strided, with_elements};
use crate::memory::import::Import;
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::storage::{InfoBuilder, MemoryRegion, Storage};
use crate::order::memory_state::StorageState;
use crate::order::owned_memory::OwnedMemory;

/// Memory of any element type that several structs share: slices of one array, or several views of one import.
///
/// A struct with this storage imports arrays of every element type. Clones refer to the same memory.
///
/// ```
/// use interop_core::{HostVec, SharedBuffer, Storage};
///
/// let all = SharedBuffer::new(HostVec::from([0.0_f32, 1.0, 2.0]));
/// let rest = all.byte_offset(4)?;
/// assert_eq!(rest.memory()?.address, all.memory()?.address + 4);
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
    /// Or the refusal of the storage, which every use of the buffer returns.
    memory: Result<MemoryRegion>,
    struct_type: Option<StructType>,
    owner: K,
}

/// The owner of the memory.
trait SharedOwner: Send + Sync {
    fn state(&self) -> StorageState<'_>;

    fn note_read(&self, stream: StreamHandle) -> bool;

    fn note_write(&mut self, stream: StreamHandle) -> bool;

    fn is_only_handle(&mut self) -> bool;
}

/// The storage is asked at each call, because its stream may change.
impl<S: Storage + Send + Sync> SharedOwner for MaybeDangling<S> {
    fn state(&self) -> StorageState<'_> {
        self.get().state()
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        self.get().note_read(stream)
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.get_mut().note_write(stream)
    }

    fn is_only_handle(&mut self) -> bool {
        self.get_mut().is_only_handle()
    }
}

impl SharedOwner for OwnedMemory {
    fn state(&self) -> StorageState<'_> {
        self.state()
    }

    fn note_read(&self, _: StreamHandle) -> bool {
        !self.placement().is_unknown()
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.note_read(stream)
    }

    fn is_only_handle(&mut self) -> bool {
        true
    }
}

impl SharedBuffer {
    /// Shares a storage. If only a sole owner may write to it (a `Vec`), it becomes read-only. The error of a storage that
    /// [refuses](Storage::memory) is that of every use of the buffer.
    pub fn new(storage: impl Storage + Send + Sync + 'static) -> Self {
        // The storage is described first and moved afterwards.
        let owner = MaybeDangling::new(storage);
        let (memory, struct_type) = (owner.get().memory_unwatched(), owner.get().struct_type().cloned());
        Self::from_inner(Inner { memory, struct_type, owner })
    }

    #[inline(always)]
    fn from_inner(inner: Inner<impl SharedOwner + 'static>) -> Self {
        let (address, writable) = match &inner.memory {
            Ok(memory) => (memory.address, memory.mutability == Mutability::Writable),
            Err(_) => (0, false),
        };
        Self { address, readonly: usize::from(!writable), inner: Arc::new(inner) }
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
        let MemoryRegion { range, element, .. } = self.inner.memory.as_ref().map_err(Clone::clone)?;
        if self.has_struct_elements(element) {
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

    /// Returns a handle to these bytes, counted from the first element, as elements of another type, in place. The type is
    /// known at run time only: a tensor in a `safetensors` file, a chunk of a Zarr array, a data set of HDF5.
    ///
    /// The bytes of `bool` elements are checked here. To use other bits, reinterpret them as `u8`.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`]:
    ///
    /// - `OutOfBounds` for bytes outside the memory, or if their number is not a multiple of the element size.
    /// - `Alignment` if the first byte is not aligned for the type.
    /// - `DType` for a type packed below the byte, for memory that holds structs, and for a byte that is not a valid
    ///   `bool`.
    /// - `Device` for `bool` in memory that the host cannot access; as
    ///   [`to_vec`](crate::derive::cuda_array::CudaArray::to_vec) for `bool`.
    ///
    /// ```
    /// use interop_core::{CudaArray, DType, ErrorKind, Lease, SharedBuffer};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(export)]
    /// struct Tensor {
    ///     #[cuda_array(data)]
    ///     bytes: SharedBuffer,
    ///     #[cuda_array(shape)]
    ///     shape: Vec<usize>,
    /// }
    ///
    /// // A file in memory: two `int32`, then three `bool`.
    /// let file = vec![1_u8, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1];
    /// let file = SharedBuffer::new(Lease::<u8>::from_owner(file));
    /// let numbers = Tensor { bytes: file.reinterpret(DType::I32, 0..8)?, shape: vec![2] };
    /// let flags = Tensor { bytes: file.reinterpret(DType::BOOL, 8..11)?, shape: vec![3] };
    /// assert_eq!((numbers.to_vec::<i32>()?, flags.to_vec::<bool>()?), (vec![1, 2], vec![true, false, true]));
    ///
    /// let refused = |dtype, bytes| file.reinterpret(dtype, bytes).unwrap_err();
    /// assert_eq!(refused(DType::BOOL, 4..8).found(), "the byte 2 in a bool");
    /// assert_eq!(refused(DType::I16, 1..3).kind(), ErrorKind::Alignment);
    /// assert_eq!(refused(DType::F64, 8..16).kind(), ErrorKind::OutOfBounds);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn reinterpret(&self, dtype: DType, bytes: Range<usize>) -> Result<Self> {
        let MemoryRegion { range, element: old, device, mutability, .. } = self.memory_unwatched()?;
        let element = ElementType::from_whole_bytes(dtype, false)?;
        if self.has_struct_elements(&old) {
            let found = text!("elements of {}", old.describe());
            return Err(Error::new(ErrorKind::DType, "dtype", found, "memory of numbers or bytes"));
        }
        let space = range.end - self.address;
        if bytes.start > bytes.end || bytes.end > space {
            let allowed = text!("a range in the {space} bytes of memory");
            return Err(Error::new(ErrorKind::OutOfBounds, "bytes", format_args!("{bytes:?}"), allowed));
        }
        let (address, len) = (self.address + bytes.start, bytes.len());
        ElementType { align: dtype.align(), ..element }.check_span(address, len)?;
        let memory = MemoryRegion { address, range: address..address + len, element, device, mutability };
        let owner = MaybeDangling::new(self.clone());
        if (DType { lanes: 1, ..dtype }) == DType::BOOL {
            let flags = MemoryRegion { element: <bool as Element>::TYPE, ..memory.clone() };
            let info = InfoBuilder::new(flags, None, true, self.state()).finish(&[len as i64])?;
            // SAFETY: the handle keeps the memory alive.
            unsafe { with_elements(&info, false, |flags: Strided<'_, bool>| flags.fold((), |(), _| ())) }?;
        }
        Ok(Self::from_inner(Inner { memory: Ok(memory), struct_type: None, owner }))
    }

    /// Whether padding could be read as elements of another type.
    fn has_struct_elements(&self, element: &ElementType) -> bool {
        element.fields.is_some() || self.inner.struct_type.is_some()
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
    fn memory(&self) -> Result<MemoryRegion> {
        if let Some(uses) = self.state().uses {
            uses.note_unknown();
        }
        self.memory_unwatched()
    }

    #[inline]
    fn memory_unwatched(&self) -> Result<MemoryRegion> {
        let MemoryRegion { ref range, element, device, .. } =
            *self.inner.memory.as_ref().map_err(Clone::clone)?;
        let mutability = if self.readonly == 0 { Mutability::Writable } else { Mutability::ReadOnly };
        Ok(MemoryRegion { address: self.address, range: range.clone(), element, device, mutability })
    }

    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
        self.inner.struct_type.as_ref()
    }

    #[inline]
    fn stream(&self) -> Option<StreamHandle> {
        let device = self.inner.memory.as_ref().map_or(Device::UNKNOWN, |memory| memory.device);
        self.state().placement.handle_here(device)
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        self.inner.owner.note_read(stream)
    }

    // Other handles may use the storage now, so the host waits instead.
    fn note_write(&mut self, stream: StreamHandle) -> bool {
        Arc::get_mut(&mut self.inner).is_some_and(|inner| inner.owner.note_write(stream))
    }

    fn is_only_handle(&mut self) -> bool {
        Arc::get_mut(&mut self.inner).is_some_and(|inner| inner.owner.is_only_handle())
    }

    #[inline]
    fn state(&self) -> StorageState<'_> {
        self.inner.owner.state()
    }
}

impl FromImport for SharedBuffer {
    const COPIES: bool = false;

    fn element() -> Option<ElementType> {
        None
    }

    #[inline(always)]
    fn from_import(import: &mut Import, _order: Order) -> Result<Self> {
        if !import.info().is_read_only() {
            import.announce_write()?;
        }
        let info = import.info();
        let (dtype, padded) = (info.dtype(), info.is_padded());
        let size = dtype.packed_bits().div_ceil(8);
        let memory = MemoryRegion {
            address: info.unwatched_address,
            range: info.unwatched_range(),
            element: ElementType { padded, ..ElementType::from_size(dtype, size) },
            device: info.device(),
            mutability: info.mutability(),
        };
        let struct_type = info.struct_type().cloned();
        Ok(Self::from_inner(Inner { memory: Ok(memory), struct_type, owner: import.take_memory()? }))
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory_unwatched() {
            Ok(MemoryRegion { address, element, device, .. }) => {
                write!(f, "SharedBuffer({} at {address:#x}, {device})", element.describe())
            }
            Err(error) => write!(f, "SharedBuffer({error})"),
        }
    }
}

/// Returns an error for an offset into the middle of a struct element, where padding could be read as a field.
fn check_whole(bytes: isize, item: usize) -> Result<()> {
    if bytes.unsigned_abs() % item == 0 {
        return Ok(());
    }
    let allowed = text!("a multiple of {item} bytes, the size of a struct element");
    Err(Error::new(ErrorKind::Alignment, "offset", text!("{bytes} bytes"), allowed))
}
