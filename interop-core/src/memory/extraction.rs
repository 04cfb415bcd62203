//! The import half of the derive: checks an import against the struct, then moves its parts into fields.
#![expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]

use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::errors::wrong_rank;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::cuda::handover::{hand_over, join_default_stream};
use crate::driver::device::{Device, DeviceType};
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::import::Import;
use crate::memory::owner::Owner;

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
pub(crate) enum FieldStream {
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
    /// The import is used where it was made, because a move of 200 freshly written bytes stalls the CPU.
    pub(crate) import: &'a mut Import,
    pub(crate) taken: bool,
    pub(crate) refusal: Option<Error>,
    /// The layout of the struct, if it differs from that of the import.
    layout: Option<Layout>,
    pub(crate) order: Order,
    pub(crate) item_bytes: usize,
    /// Whether the struct outlives the call that imported it.
    is_kept: bool,
    /// The caller's stream, which memory that is kept has left.
    left: Option<StreamHandle>,
    pub(crate) field_stream: FieldStream,
    /// Whether a raw pointer of the struct writes to the memory.
    is_written: bool,
    /// Runs a closure that may wait for a device.
    pub(crate) wait: fn(&mut dyn FnMut()),
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
            taken: false,
            refusal: None,
            layout: None,
            order: Order::C,
            item_bytes: 0,
            is_kept: false,
            left: None,
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
    pub(crate) fn info(&self) -> Result<&ArrayInfo> {
        if self.taken { Err(already_taken()) } else { Ok(self.import.info()) }
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
            Ok(taken) => Some(taken),
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
    pub(crate) fn check_layout(
        &mut self,
        element: Option<&ElementType>,
        requirements: Requirements,
        copies: bool,
    ) -> Result<()> {
        let info = self.info()?;
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
            if let Some(callers) = this.left {
                this.import.move_to_default_stream(callers)?;
            }
            let (stream, device) = (this.import.known_stream()?, this.info()?.device());
            let may_copy_later = this.field_stream != FieldStream::DefaultAfterCopy;
            this.import.stream_field = may_copy_later.then_some(stream);
            let is_own = this.field_stream == FieldStream::OfImport || stream == StreamHandle::NothingPending;
            field(if is_own { stream } else { StreamHandle::LegacyDefault }, device)
        })
    }

    /// Makes the struct's own stream wait for pending work on the import. If the field is `NothingPending`, the host
    /// waits instead.
    ///
    /// Fails like [`cuda::stream_wait`](crate::cuda::stream_wait), with the field as the origin.
    pub(crate) fn make_stream_wait(&mut self, stream: StreamHandle, field: &'static str) {
        self.step(|this| {
            this.import.stream_field = Some(stream);
            let ready = if stream == StreamHandle::NothingPending {
                this.finish()
            } else {
                let info = this.info()?;
                hand_over(info, stream).and_then(|()| join_default_stream(stream, info.device()))
            };
            ready.map_err(|error| error.with_origin(format_args!("the field `{field}`")))
        });
    }

    /// The device of the memory.
    pub(crate) fn device(&mut self) -> Device {
        self.step(|this| Ok(this.info()?.device())).unwrap_or(Device::UNKNOWN)
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
            let stream = self.import.info.pending.name();
            self.import.settle()?;
            self.left = stream.filter(|_| self.import.is_settled());
            return Ok(());
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
                check_import_writable(this.info()?)?;
            }
            this.check_layout(Some(&element), requirements, false)
        });
    }

    /// Takes the owner for an `owner` field next to a raw pointer. Nothing can be taken afterwards.
    ///
    /// Fails like [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn owner(&mut self) -> Option<Owner> {
        self.step(|this| {
            this.info()?;
            this.finish()?;
            if this.is_written {
                this.import.note_write()?;
            }
            this.taken = true;
            Ok(this.import.take_owner())
        })
    }

    /// Checks the device of the import against the list in `device = ...`.
    ///
    /// Fails with [`ErrorKind::Device`].
    pub fn on_one_of(&mut self, devices: &[DeviceType]) {
        self.step(|this| {
            let found = this.info()?.device();
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
        self.step(|this| Ok(this.info()?.address())).unwrap_or(0)
    }

    /// Stores the error.
    #[cold]
    pub(crate) fn refuse<T>(&mut self, error: Error) -> Option<T> {
        self.refusal = Some(error);
        None
    }

    /// Waits on the host for pending work, if the struct has no field that states it.
    #[cold]
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.import.is_stream_known() {
            return Ok(());
        }
        let mut finished = Ok(());
        let Self { import, wait, .. } = self;
        wait(&mut || finished = import.synchronize());
        finished
    }
}

#[cold]
pub(crate) fn already_taken() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "import",
        "memory that another field has taken",
        "one field that takes the memory",
    )
}

/// Returns an error for an import that must not be written.
pub(crate) fn check_import_writable(info: &ArrayInfo) -> Result<()> {
    if info.mutability() != Mutability::ReadOnly {
        return Ok(());
    }
    let error =
        Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array, or a copy");
    let hint = "import into `Lease<T>` to read it, or copy it into `Vec<T>` or `HostVec<T>`; a legacy DLPack tensor, \
                which cannot state who may write, is read-only";
    Err(error.with_rust_hint(hint).with_python_hint(Cure::Copy))
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
