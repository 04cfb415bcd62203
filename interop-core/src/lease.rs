//! Storage that holds foreign memory: typed leases, and shared memory of any type.
#![expect(unsafe_code, reason = "each storage vouches for its memory in an unsafe impl")]
#![expect(
    clippy::inline_always,
    reason = "a storage that comes back through memory is read at once, which stalls"
)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use crate::cuda::Pending;
use crate::descriptor::Writes;
use crate::device::Device;
use crate::element::{Element, ElementType};
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::facts::Facts;
use crate::import::Import;
use crate::layout::Order;
use crate::owner::{MaybeDangling, Owner};
use crate::record::Record;
use crate::storage::{FromImport, Memory, Storage};
use crate::stream::StreamHandle;
use crate::view::read_only;

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
/// assert_eq!(borrowed.facts()?.address(), samples.values.as_ptr().addr());
/// assert_eq!(Arc::strong_count(&samples), 2);
/// drop(borrowed);
/// assert_eq!(Arc::strong_count(&samples), 1);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct Lease<T> {
    held: Held,
    marker: PhantomData<fn() -> T>,
}

/// Memory of elements `T` that is used in place, for reading and writing: imported, or [lent](Self::from_owner) by its owner.
///
/// An import of a read-only array into it is refused. Exports of the lease are writable. It knows of pending work as
/// [`Lease`] does, but not of the kernels that Rust code launches on it: for those the struct needs a `stream` field.
pub struct LeaseMut<T> {
    held: Held,
    marker: PhantomData<fn() -> T>,
}

/// What a lease holds.
struct Held {
    address: usize,
    range: Range<usize>,
    device: Device,
    /// Where work is pending, unless the struct says it.
    pending: Pending,
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
    /// assert_eq!(table.view::<f64, 2>()?.host()?.get([0, 1])?, 4.0);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner<O: AsRef<[T]> + Send + 'static>(owner: O) -> Self {
        let (owner, place) = Owner::boxed(owner);
        // SAFETY: the value is in its box until the owner is dropped, which comes after the last use of the elements;
        // nobody else gets at it until then, so this borrow of it goes on.
        let elements: &[T] = unsafe { place.as_ref() }.as_ref();
        let held = Held::lent(elements.as_ptr().expose_provenance(), size_of_val(elements), owner);
        Self { held, marker: PhantomData }
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
        let held = Held::lent(elements.as_mut_ptr().expose_provenance(), bytes, owner);
        Self { held, marker: PhantomData }
    }
}

impl Held {
    /// Memory of the host that its owner lends for as long as it is there.
    fn lent(address: usize, bytes: usize, owner: Owner) -> Self {
        let pending = Pending::on(StreamHandle::NothingPending);
        Self { address, range: address..address + bytes, device: Device::CPU, pending, owner }
    }
}

macro_rules! lease {
    ($lease:ident, $writes:expr, $check:path) => {
        impl<T: Element> $lease<T> {
            /// The owner of the memory, to be kept instead of the lease.
            #[must_use]
            pub fn into_owner(self) -> Owner {
                self.held.owner
            }
        }

        // SAFETY: 1 to 3: the owner keeps the memory as it is, which an import was made with the promise of, and which a value
        // that lends it is borrowed for. 4: the lease lends no reference.
        unsafe impl<T: Element> Storage for $lease<T> {
            #[inline]
            fn memory(&self) -> Memory {
                let Held { address, ref range, device, .. } = self.held;
                Memory { address, range: range.clone(), element: T::TYPE, device, writes: $writes }
            }

            #[inline]
            fn stream(&self) -> StreamHandle {
                self.held.pending.stream(self.held.device)
            }
        }

        impl<T: Element> FromImport for $lease<T> {
            const COPIES: bool = false;

            #[inline]
            fn element() -> Option<ElementType> {
                Some(T::TYPE)
            }

            #[inline]
            fn check(facts: &Facts) -> Result<()> {
                $check(facts)
            }

            fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
                Self::take(&mut import, order).map_err(|error| Refused { value: import, error })
            }

            #[inline(always)]
            fn take(import: &mut Import, _order: Order) -> Result<Self> {
                let facts = import.facts();
                $check(facts)?;
                facts.check_element(&T::TYPE)?;
                let (address, range, device) = (facts.address(), facts.byte_range(), facts.device());
                let pending = import.pending_in_place()?;
                let owner = import.take_owner();
                let held = Held { address, range, device, pending, owner };
                Ok(Self { held, marker: PhantomData })
            }
        }

        impl<T: Element> fmt::Debug for $lease<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Held { address, device, .. } = &self.held;
                let name = stringify!($lease);
                write!(f, "{name}({} at {address:#x}, {device})", T::TYPE.describe())
            }
        }
    };
}

lease!(Lease, Writes::Never, anything);
lease!(LeaseMut, Writes::Always, writable);

#[expect(clippy::unnecessary_wraps, reason = "the signature of `FromImport::check`")]
fn anything(_: &Facts) -> Result<()> {
    Ok(())
}

pub(crate) fn writable(facts: &Facts) -> Result<()> {
    if facts.writes() != Writes::Never {
        return Ok(());
    }
    let error = read_only().with_advice(
        "import into `Lease<T>` to read it, or copy it into `Vec<T>` or `HostVec<T>`; what came in DLPack's legacy form, \
         which cannot say who may write, counts as read-only",
    );
    Err(error.with_remedy(
        "`numpy.array` makes one of host memory; what a library hands out in DLPack's legacy form, as Warp does, counts as read-only",
    ))
}

/// Memory of any element type that several structs share: slices of one array, or one import in many views.
///
/// A struct with this storage imports arrays of every element type, and its clones see the same memory.
///
/// ```
/// use interop_core::{HostVec, Shared, Storage};
///
/// let all = Shared::new(HostVec::from_slice(&[0.0_f32, 1.0, 2.0]));
/// let rest = all.byte_offset(4)?;
/// assert_eq!(rest.memory().address, all.memory().address + 4);
/// assert!(all.byte_offset(13).is_err());
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Shared {
    address: usize,
    /// 1: not to be written through this handle. A whole word, for the reason given at `Dims`.
    readonly: usize,
    all: Arc<All>,
}

/// The whole of the memory, which every handle has.
struct All<K: ?Sized = dyn Keep> {
    memory: Memory,
    record: Option<Record>,
    keep: K,
}

/// A value that is kept for its drop and knows where work is pending, unless the struct says it.
trait Keep: Send + Sync {
    fn stream(&self) -> StreamHandle;
}

/// A storage is asked each time: its next work may be on another stream.
impl<S: Storage + Send + Sync> Keep for MaybeDangling<S> {
    fn stream(&self) -> StreamHandle {
        self.get().stream()
    }
}

impl Keep for (Owner, Pending, Device) {
    fn stream(&self) -> StreamHandle {
        self.1.stream(self.2)
    }
}

impl Shared {
    /// Shares this storage. What its sole owner might write (a `Vec`) is read-only from now on.
    pub fn new(storage: impl Storage + Send + Sync + 'static) -> Self {
        // Described first and moved afterwards.
        let keep = MaybeDangling::new(storage);
        let (memory, record) = (keep.get().memory(), keep.get().record().cloned());
        Self::of(All { memory, record, keep })
    }

    #[inline(always)]
    fn of(all: All<impl Keep + 'static>) -> Self {
        let (address, readonly) = (all.memory.address, usize::from(all.memory.writes != Writes::Always));
        Self { address, readonly, all: Arc::new(all) }
    }

    /// The same memory, with the first element `bytes` further on; in memory of structs a whole number of elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bounds`] outside the memory; [`ErrorKind::Alignment`] within a struct, where a field would be read as
    /// what lies between two others.
    ///
    /// ```
    /// use interop_core::{Element, ErrorKind, Shared};
    ///
    /// #[derive(Clone, Copy, Element)]
    /// #[repr(C)]
    /// struct Hit { detector: u8, energy: f64 }
    ///
    /// let hits = Shared::new(vec![Hit { detector: 1, energy: 0.5 }; 2]);
    /// assert!(hits.byte_offset(16).is_ok());
    /// assert_eq!(hits.byte_offset(8).unwrap_err().kind(), ErrorKind::Alignment);
    /// ```
    pub fn byte_offset(&self, bytes: isize) -> Result<Self> {
        let Memory { range, element, .. } = &self.all.memory;
        if element.fields.is_some() || self.all.record.is_some() {
            check_whole(bytes, element.dtype.packed_bits() / 8)?;
        }
        let address = self.address.checked_add_signed(bytes);
        let address =
            address.filter(|address| (range.start..=range.end).contains(address)).ok_or_else(|| {
                let allowed = text!("a place in the {} bytes of memory", range.len());
                Error::new(ErrorKind::Bounds, "offset", format_args!("{bytes} bytes"), allowed)
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
unsafe impl Storage for Shared {
    #[inline]
    fn memory(&self) -> Memory {
        let Memory { ref range, element, device, .. } = self.all.memory;
        let writes = if self.readonly == 0 { Writes::Always } else { Writes::Never };
        Memory { address: self.address, range: range.clone(), element, device, writes }
    }

    #[inline]
    fn record(&self) -> Option<&Record> {
        self.all.record.as_ref()
    }

    #[inline]
    fn stream(&self) -> StreamHandle {
        self.all.keep.stream()
    }
}

impl FromImport for Shared {
    const COPIES: bool = false;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(_: &Facts) -> Result<()> {
        Ok(())
    }

    fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
        Self::take(&mut import, order).map_err(|error| Refused { value: import, error })
    }

    #[inline(always)]
    fn take(import: &mut Import, _order: Order) -> Result<Self> {
        let facts = import.facts();
        let (dtype, padded) = (facts.dtype(), facts.is_padded());
        let size = dtype.packed_bits().div_ceil(8);
        let memory = Memory {
            address: facts.address(),
            range: facts.byte_range(),
            element: ElementType { padded, ..ElementType::of_bytes(dtype, size) },
            device: facts.device(),
            writes: facts.writes(),
        };
        let (record, device) = (facts.record().cloned(), facts.device());
        let pending = import.pending_in_place()?;
        Ok(Self::of(All { memory, record, keep: (import.take_owner(), pending, device) }))
    }
}

/// Refuses an offset into a struct: the bytes between its fields may hold nothing that can be read.
fn check_whole(bytes: isize, item: usize) -> Result<()> {
    if bytes.unsigned_abs() % item == 0 {
        return Ok(());
    }
    let allowed = text!("a multiple of {item} bytes, the size of a struct element");
    Err(Error::new(ErrorKind::Alignment, "offset", text!("{bytes} bytes"), allowed))
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, Memory { element, device, .. }) = (self.address, &self.all.memory);
        write!(f, "Shared({} at {address:#x}, {device})", element.describe())
    }
}
