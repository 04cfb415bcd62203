//! The import half of the derive: checks an import against the struct, then moves its parts into fields. `FromImport` is the
//! trait of storages that it can fill.
#![expect(unsafe_code, reason = "an import may be lent for a time that its type does not state")]
#![expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]

use crate::array::device::{Device, DeviceType};
use crate::array::element::ElementType;
use crate::array::layout::Layout;
use crate::array::layout::errors::wrong_rank;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::driver::stream::Stream;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::import::Import;
use crate::memory::storage::Storage;
use crate::order::array_info::ArrayInfo;
use crate::order::default_streams::join_default_stream;
use crate::order::handover::hand_over;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;

/// A [`Storage`] that can be made from an import, by copying the elements or by using the memory in place.
///
/// ```
/// use interop_core::storage::FromImport;
/// use interop_core::Lease;
/// assert!(Vec::<f32>::COPIES);
/// assert!(!Lease::<f32>::COPIES);
/// ```
///
/// The expanded code first calls [`check`](Self::check) and compares [`element`](Self::element) with the import. It then fills
/// the other fields, and calls [`from_import`](Self::from_import) last, so that the import is whole after an error.
///
/// A storage that copies into memory of its own allocator calls [`copy_import`](crate::storage::copy_import()): see the example of
/// [the module `storage`](crate::storage). Any other storage wraps one of the existing ones. It repeats the constants of that one,
/// and forwards all methods of [`Storage`], for example `stream` of a lease, because work may be pending on the memory:
///
/// ```
/// use interop_core::element::ElementType;
/// use interop_core::storage::{FromImport, MemoryRegion};
/// use interop_core::{ArrayInfo, Import, Order, Storage};
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
///     fn from_import(import: &mut Import, order: Order) -> interop_core::Result<Self> {
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

    /// Makes the storage. If it copies, the copy is contiguous in `order`, and the import stays as it is. Otherwise the storage
    /// takes the memory, and the import has no elements afterwards.
    ///
    /// Anybody may call this without [`check`](Self::check). So it checks again what soundness depends on; `copy_import` and the
    /// storages of this crate check the element type and the bytes of `bool`.
    ///
    /// A type with axes takes the last axes of the import: there are
    /// `import.info().numel() / T::TYPE.axes().iter().product::<usize>()` elements `T`.
    ///
    /// If the storage copies, or the memory is pinned or managed, a Python function calls this without the lock of the
    /// interpreter (but see [`COPIES_TO_HOST`](Self::COPIES_TO_HOST)).
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and for example [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) for a copy. The import
    /// is as it was.
    fn from_import(import: &mut Import, order: Order) -> Result<Self>;

    /// Called by expanded code before anything is taken.
    #[doc(hidden)]
    #[inline(always)]
    fn open(from: &mut Extraction<'_>, requirements: Requirements) -> CheckedStorage<Self> {
        if from.refusal.is_none() {
            from.refusal = from.check_storage::<Self>(requirements).err();
        }
        // SAFETY: the caller of this `unsafe fn` promises it.
        |from| unsafe { from.storage() }
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

    /// Whether the struct writes to the memory of the caller.
    #[must_use]
    pub const fn is_written(&self) -> bool {
        self.is_written
    }

    /// The data of a struct with `order = "F"`.
    #[must_use]
    pub const fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }
}

/// [`Extraction::storage`] for a storage type whose check against the extraction has been done.
pub type CheckedStorage<T> = unsafe fn(&mut Extraction<'_>) -> Option<T>;

/// The requirements of a struct on an import, besides the element type.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// The number of axes, or `None` for any number.
    pub axes: Option<usize>,
    /// The required contiguous order, or `None` if the struct has a strides field and accepts any strides.
    pub order: Option<Order>,
}

/// The value of a `stream` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldStream {
    /// The stream of the import.
    OfImport,
    /// The legacy default stream. It waits for a copy that is made for the struct.
    Default,
    /// The legacy default stream. The copy is complete when the struct is made.
    DefaultAfterCopy,
}

/// An import that is being moved into the fields of a struct. Until the storage or owner is taken, the whole import can
/// be returned.
///
/// The first error is stored here, and later steps do nothing. Steps that can return a placeholder do so;
/// [`storage`](Self::storage), [`owner`](Self::owner) and the stream return `None`. So expanded code branches there
/// only and not after each field, which compiles faster.
#[derive(Debug)]
pub struct Extraction<'a> {
    /// In the slot where it was made.
    import: &'a mut Import,
    refusal: Option<Error>,
    /// The layout of the struct, if it differs from that of the import.
    layout: Option<Layout>,
    order: Order,
    item_bytes: usize,
    /// Whether the struct outlives the call that imported it.
    is_kept: bool,
    field_stream: FieldStream,
    /// Whether a raw pointer of the struct writes to the memory.
    is_written: bool,
    /// Runs a closure that may wait for a device.
    wait: fn(&mut dyn FnMut()),
}

impl<'a> Extraction<'a> {
    /// Starts the extraction of an import.
    #[inline]
    pub(crate) fn new(import: &'a mut Import) -> Self {
        // A previous, failed extraction into another struct may have set the stream field.
        import.stream_field = None;
        let wait = |run: &mut dyn FnMut()| run();
        Self {
            import,
            refusal: None,
            layout: None,
            order: Order::C,
            item_bytes: 0,
            is_kept: false,
            field_stream: FieldStream::OfImport,
            is_written: false,
            wait,
        }
    }

    /// Sets the function that runs waiting closures. The Python layer detaches from the interpreter in it.
    #[inline]
    #[cfg(feature = "python")]
    pub(crate) fn waiting_in(self, wait: fn(&mut dyn FnMut())) -> Self {
        Self { wait, ..self }
    }

    #[inline(always)]
    fn info(&self) -> &ArrayInfo {
        self.import.info()
    }

    /// The layout in units of the struct's elements.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        self.layout.as_ref().unwrap_or(self.import.info().layout())
    }

    /// Runs a step, unless an earlier one failed.
    #[inline]
    pub(crate) fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Option<T> {
        if self.refusal.is_some() {
            return None;
        }
        match step(self) {
            Ok(value) => Some(value),
            Err(error) => self.refuse(error),
        }
    }

    /// Returns the stored error after a step that returned `None`.
    ///
    /// # Errors
    ///
    /// Always.
    #[cold]
    pub fn refused<T>(&mut self) -> Result<T> {
        Err(self
            .refusal
            .take()
            .unwrap_or_else(|| unreachable!("a step that returns `None` has stored an error")))
    }

    /// Returns a stored error before user code runs.
    ///
    /// # Errors
    ///
    /// The error of the first failed step.
    #[inline(always)]
    pub fn check(&mut self) -> Result<()> {
        self.refusal.take().map_or(Ok(()), Err)
    }

    #[inline(always)]
    fn check_storage<S: FromImport>(&mut self, requirements: Requirements) -> Result<()> {
        S::check(self.info())?;
        if S::IS_FREED_ON_DEFAULT_STREAM {
            self.field_stream = FieldStream::Default;
        }
        self.check_layout(S::element().as_ref(), requirements, S::COPIES)
    }

    #[inline(always)]
    fn check_layout(
        &mut self,
        element: Option<&ElementType>,
        requirements: Requirements,
        copies: bool,
    ) -> Result<()> {
        let info = self.info();
        let item_bits = element.map_or_else(|| info.dtype().item_bits(info.is_padded()), |e| e.size * 8);
        if let Some(element) = element.filter(|element| !info.has_scalar_type(element)) {
            self.layout = info.join(*element)?;
        }
        let layout = self.layout();
        if let Some(rank) = requirements.axes.filter(|rank| *rank != layout.ndim()) {
            // As the caller sees the array: with the axes that an element takes.
            let info = self.import.info();
            return Err(wrong_rank(info.shape(), rank + info.ndim().saturating_sub(layout.ndim())));
        }
        let order = requirements.order.unwrap_or_default();
        if copies {
            self.layout = Some(Layout::contiguous(layout.shape(), order)?);
        } else if let Some(order) = requirements.order {
            layout.check_contiguous(order)?;
        }
        if self.is_kept {
            self.leave_callers_stream(copies)?;
        }
        self.order = order;
        self.item_bytes = if item_bits % 8 == 0 { item_bits / 8 } else { 0 };
        Ok(())
    }

    /// The value of a `stream` field: `field` converts the stream on which the import is ready, and the device.
    ///
    /// Fails if `field` fails.
    pub(crate) fn stream<F>(&mut self, field: fn(StreamHandle, Device) -> Result<F>) -> Option<F> {
        self.step(|this| {
            // The stream of the caller lives until the end of the call.
            if let Placement::Settled(Some(callers)) = this.import.info.state.placement {
                this.import.move_to_default_stream(callers)?;
            }
            let (stream, device) = (this.import.known_stream()?, this.info().device());
            // The caller has named its stream by the handle that means it here.
            let is_callers = this.import.info.state.placement.is_argument();
            let handle = match stream {
                None => Some(StreamHandle::NothingPending),
                Some(stream) if is_callers => Some(stream.handle()),
                Some(stream) => stream.handle_here(device),
            };
            let handle = if let Some(handle) = handle {
                handle
            } else {
                // No handle means the default stream of another context here, so nothing may be pending on it.
                this.import.synchronize()?;
                StreamHandle::NothingPending
            };
            let may_copy_later = this.field_stream != FieldStream::DefaultAfterCopy;
            let stated = stream.filter(|_| handle != StreamHandle::NothingPending);
            this.import.stream_field = may_copy_later.then(|| Placement::all_on(stated));
            let is_own = this.field_stream == FieldStream::OfImport || handle == StreamHandle::NothingPending;
            field(if is_own { handle } else { StreamHandle::LegacyDefault }, device)
        })
    }

    /// Makes the struct's own stream wait for pending work on the import. If the field is `NothingPending`, the host
    /// waits instead.
    ///
    /// Fails like [`cuda::stream_wait`](crate::cuda::stream_wait), with the field as the origin.
    pub(crate) fn order_before_field(&mut self, stream: StreamHandle, field: &'static str) {
        self.step(|this| {
            let own = Stream::named(stream, this.import.info.device);
            this.import.stream_field = Some(Placement::all_on(own));
            let ready = if stream == StreamHandle::NothingPending {
                this.finish()
            } else {
                let info = this.info();
                hand_over(info, own).and_then(|()| join_default_stream(stream, info.device()))
            };
            ready.map_err(|error| error.with_origin(format_args!("the field `{field}`")))
        });
    }

    /// The device of the memory.
    pub(crate) fn device(&mut self) -> Device {
        self.step(|this| Ok(this.info().device())).unwrap_or(Device::UNKNOWN)
    }

    /// States that the struct is kept after the call that imported it. Comes before the check of the layout.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Makes a struct that is kept independent of the stream on which the caller works. Memory that is used in place
    /// [settles](Import::settle). A copy is made on that stream, and the struct gets another one.
    #[cold]
    fn leave_callers_stream(&mut self, copies: bool) -> Result<()> {
        if !copies {
            return self.import.settle();
        }
        if self.field_stream == FieldStream::OfImport {
            self.field_stream = FieldStream::DefaultAfterCopy;
        }
        Ok(())
    }

    /// As [`check_layout`](Self::check_layout), for a struct with a pointer or address, which needs writable memory
    /// unless `mutability` is `ReadOnly`.
    pub(crate) fn check_in_place(
        &mut self,
        element: ElementType,
        mutability: Mutability,
        requirements: Requirements,
    ) {
        self.step(|this| {
            this.is_written = mutability != Mutability::ReadOnly;
            if this.is_written {
                this.info().check_import_writable()?;
            }
            this.check_layout(Some(&element), requirements, false)
        });
    }

    /// The value of the `data` field. The import may have no elements afterwards.
    ///
    /// Fails if the storage refuses the import, which then stays in the extraction.
    ///
    /// # Safety
    ///
    /// If the memory of the import is lent for `'a`, the storage is [`BorrowedFor<'a>`](crate::lent::BorrowedFor).
    #[inline(always)]
    pub unsafe fn storage<S: FromImport>(&mut self) -> Option<S> {
        self.step(|this| {
            if takes_at_once::<S>(this.info()) {
                return S::from_import(this.import, this.order);
            }
            this.storage_in_wait()
        })
    }

    /// Makes the storage in the closure that may wait.
    #[cold]
    fn storage_in_wait<S: FromImport>(&mut self) -> Result<S> {
        let mut storage = None;
        let Self { import, order, wait, .. } = self;
        wait(&mut || storage = Some(S::from_import(import, *order)));
        storage.unwrap_or_else(|| unreachable!("`wait` runs its closure"))
    }

    /// Takes the owner for an `owner` field next to a raw pointer. The import has no elements afterwards.
    ///
    /// Fails like [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn owner(&mut self) -> Option<Owner> {
        self.step(|this| {
            this.finish()?;
            if this.is_written {
                this.import.announce_write()?;
            }
            Ok(this.import.take_owner())
        })
    }

    /// Checks the device of the import against the list in `device = ...`.
    ///
    /// Fails with [`ErrorKind::Device`].
    pub fn on_one_of(&mut self, devices: &[DeviceType]) {
        self.step(|this| {
            let found = this.info().device();
            if devices.contains(&found.device_type) { Ok(()) } else { Err(wrong_device(found, devices)) }
        });
    }

    /// Checks an extent against a literal of `shape = [...]`.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn literal(&mut self, axis: usize, extent: usize) {
        self.step(|this| {
            let found = this.layout().shape()[axis];
            if found == extent {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), found, extent))
        });
    }

    /// As [`literal`](Self::literal), for a constant of any integer type.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn constant(&mut self, axis: usize, extent: i128) {
        if let Some(extent) =
            self.step(|_| usize::try_from(extent).map_err(|_| negative_constant(axis, extent)))
        {
            self.literal(axis, extent);
        }
    }

    /// Checks that two axes with the same field have the same extent.
    ///
    /// Fails with [`ErrorKind::Shape`] and the axis.
    pub fn same_extent(&mut self, axis: usize, other: usize, field: &'static str) {
        self.step(|this| {
            let (extent, found) = (this.layout().shape()[axis], this.layout().shape()[other]);
            if extent == found {
                return Ok(());
            }
            let allowed = text!("{extent}, as on axis {axis}, because both use the field `{field}`");
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{other}]"), found, allowed))
        });
    }

    /// The strides in bytes, for a `strides(bytes)` field.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] for elements packed below the byte.
    pub(crate) fn strides_in_bytes(&self, field: &'static str) -> Result<Vec<isize>> {
        if self.item_bytes == 0 {
            let found = "elements packed below the byte";
            let allowed = "elements of whole bytes, because the field holds strides in bytes";
            return Err(Error::new(ErrorKind::Strides, field, found, allowed));
        }
        Ok(self.layout().strides_in_bytes(self.item_bytes))
    }

    /// The address of the first element, for a `data(unsafe_raw)` field.
    pub(crate) fn address(&mut self) -> usize {
        self.step(|this| Ok(this.info().address())).unwrap_or(0)
    }

    /// Stores the error.
    #[cold]
    fn refuse<T>(&mut self, error: Error) -> Option<T> {
        self.refusal = Some(error);
        None
    }

    /// Waits on the host for pending work, if the struct has no field that states it.
    #[cold]
    fn finish(&mut self) -> Result<()> {
        if self.import.is_stream_known() {
            return Ok(());
        }
        let mut finished = Ok(());
        let Self { import, wait, .. } = self;
        wait(&mut || finished = import.synchronize());
        finished
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

/// The error for a negative constant, which no extent can equal.
#[cold]
fn negative_constant(axis: usize, extent: i128) -> Error {
    Error::new(
        ErrorKind::Shape,
        format_args!("shape[{axis}]"),
        format_args!("{extent} in the struct"),
        "0 or greater",
    )
}

#[cold]
fn wrong_device(found: Device, devices: &[DeviceType]) -> Error {
    let allowed: Vec<String> = devices.iter().map(DeviceType::to_string).collect();
    let error = Error::new(ErrorKind::Device, "device", found, allowed.join(" or "));
    if devices.contains(&DeviceType::CPU) {
        return error.with_python_hint(Cure::ToHost);
    }
    if devices.contains(&DeviceType::CUDA) { error.with_python_hint(Cure::ToDevice) } else { error }
}
