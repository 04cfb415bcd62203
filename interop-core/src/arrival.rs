//! The import half of the derive: what arrived is compared with what the struct wants, then taken apart.
#![expect(
    clippy::inline_always,
    reason = "what is known of the struct where it is made is not compared there"
)]

use crate::cuda::{bring_back, hand_over};
use crate::descriptor::Writes;
use crate::device::{Device, DeviceType};
use crate::element::{Element, ElementType};
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::import::Import;
use crate::layout::{Layout, Order, wrong_rank};
use crate::lease::writable;
use crate::roles::{Extent, FromOwner, RawAddress, RawPointer, ShapeField, StridesField, extent_of};
use crate::storage::FromImport;
use crate::stream::StreamHandle;

/// What a struct demands of an import beside the type of its elements.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How many axes; `None`: any number.
    pub axes: Option<usize>,
    /// Compact, in this order; `None`: any strides, because the struct has a field for them.
    pub order: Option<Order>,
}

/// An import on its way into a struct. Until its storage or owner is taken it can be given back whole.
///
/// The first thing that does not fit is kept here, and the steps after it do nothing. Those that can make a placeholder
/// return one, for a struct that is not made; [`storage`](Self::storage), [`owner`](Self::owner) and the stream return
/// `None`. So the expansion of a derive branches there and not at every field, which compiles faster.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// It stays where it was made until it is taken: it is some two hundred bytes, and a move of what was just made waits for
    /// every store.
    import: &'a mut Import,
    taken: bool,
    refusal: Option<Error>,
    /// The layout of the struct, where it differs from that of the import.
    layout: Option<Layout>,
    order: Order,
    item_bytes: usize,
    /// Runs a closure that may wait for a device.
    wait: fn(&mut dyn FnMut()),
}

impl<'a> Arrival<'a> {
    /// The import before anything was compared.
    #[inline]
    pub(crate) fn new(import: &'a mut Import) -> Self {
        // What another struct was to keep, which refused the import or gave it back, says nothing of this one.
        import.keep_beside(StreamHandle::NothingPending);
        let wait = |run: &mut dyn FnMut()| run();
        Self { import, taken: false, refusal: None, layout: None, order: Order::C, item_bytes: 0, wait }
    }

    /// The same, with another way to run what may wait for a device: the Python layer releases the interpreter's lock.
    #[inline]
    #[cfg(feature = "python")]
    pub(crate) fn waiting_in(self, wait: fn(&mut dyn FnMut())) -> Self {
        Self { wait, ..self }
    }

    /// Whether the import is still whole.
    pub(crate) fn is_whole(&self) -> bool {
        !self.taken
    }

    #[inline(always)]
    fn facts(&self) -> Result<&Facts> {
        if self.taken { Err(taken()) } else { Ok(self.import.facts()) }
    }

    /// The layout in units of the struct's elements.
    #[inline(always)]
    fn layout(&self) -> &Layout {
        self.layout.as_ref().unwrap_or(self.import.facts().layout())
    }

    /// Takes a step, unless something was refused before.
    #[inline]
    fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Option<T> {
        if self.refusal.is_some() {
            return None;
        }
        match step(self) {
            Ok(taken) => Some(taken),
            Err(error) => self.refuse(error),
        }
    }

    /// What was refused, for the step that returned `None`.
    ///
    /// # Errors
    ///
    /// Always.
    #[cold]
    pub fn refused<T>(&mut self) -> Result<T> {
        Err(self.refusal.take().unwrap_or_else(|| unreachable!("a step that returns nothing has refused")))
    }

    /// Stops here if something was refused, because code of the user comes next.
    ///
    /// # Errors
    ///
    /// What did not fit.
    #[inline(always)]
    pub fn check(&mut self) -> Result<()> {
        self.refusal.take().map_or(Ok(()), Err)
    }

    /// Compares the import with the devices that `device = ...` lists.
    ///
    /// Refuses by [`ErrorKind::Device`].
    pub fn on_one_of(&mut self, devices: &[DeviceType]) {
        self.step(|this| {
            let found = this.facts()?.device();
            if devices.contains(&found.device_type) { Ok(()) } else { Err(elsewhere(found, devices)) }
        });
    }

    /// Compares the import with what a struct with this storage wants.
    ///
    /// Refuses by [`ErrorKind::DType`], [`ErrorKind::Rank`], [`ErrorKind::Strides`], [`ErrorKind::ReadOnly`],
    /// [`ErrorKind::Device`].
    #[inline(always)]
    pub fn open<S: FromImport>(&mut self, wanted: Wanted) {
        if self.refusal.is_none() {
            self.refusal = self.compare::<S>(wanted).err();
        }
    }

    #[inline(always)]
    fn compare<S: FromImport>(&mut self, wanted: Wanted) -> Result<()> {
        S::check(self.facts()?)?;
        self.settle(S::element().as_ref(), wanted, S::COPIES)
    }

    /// As [`open`](Self::open), for a struct with a raw pointer.
    pub fn open_raw<P: RawPointer>(&mut self, wanted: Wanted) {
        self.settle_in_place(P::Element::TYPE, P::WRITES, wanted);
    }

    /// As [`open`](Self::open), for a struct with an address.
    pub fn open_address<T: Element, A: RawAddress>(&mut self, wanted: Wanted) {
        self.settle_in_place(T::TYPE, A::WRITES, wanted);
    }

    /// As [`settle`](Self::settle), for a struct that has the memory by address, and may write to it if `writes` says so.
    fn settle_in_place(&mut self, element: ElementType, writes: Writes, wanted: Wanted) {
        self.step(|this| {
            if writes != Writes::Never {
                writable(this.facts()?)?;
            }
            this.settle(Some(&element), wanted, false)
        });
    }

    #[inline(always)]
    fn settle(&mut self, element: Option<&ElementType>, wanted: Wanted, copies: bool) -> Result<()> {
        let facts = self.facts()?;
        let item_bits = element.map_or_else(|| facts.dtype().item_bits(facts.is_padded()), |e| e.size * 8);
        if let Some(element) = element.filter(|element| !facts.is_of_scalars(element)) {
            self.layout = facts.join(*element)?;
        }
        let layout = self.layout();
        if let Some(rank) = wanted.axes.filter(|rank| *rank != layout.ndim()) {
            return Err(wrong_rank(layout, rank));
        }
        let order = wanted.order.unwrap_or_default();
        if copies {
            self.layout = Some(Layout::compact(layout.shape(), order)?);
        } else if let Some(order) = wanted.order {
            layout.check_contiguous(order)?;
        }
        self.order = order;
        self.item_bytes = if item_bits % 8 == 0 { item_bits / 8 } else { 0 };
        Ok(())
    }

    /// Compares an extent with a literal of `shape = [...]`.
    ///
    /// Refuses by [`ErrorKind::Shape`], with the axis.
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
    /// Refuses by [`ErrorKind::Shape`], with the axis.
    pub fn constant(&mut self, axis: usize, extent: i128) {
        if let Some(extent) = self.step(|_| usize::try_from(extent).map_err(|_| never(axis, extent))) {
            self.literal(axis, extent);
        }
    }

    /// Compares two extents that one field stands for.
    ///
    /// Refuses by [`ErrorKind::Shape`], with the axis.
    pub fn same_extent(&mut self, axis: usize, other: usize, field: &'static str) {
        self.step(|this| {
            let (extent, found) = (this.layout().shape()[axis], this.layout().shape()[other]);
            if extent == found {
                return Ok(());
            }
            let allowed = text!("{extent}, as on axis {axis}: the field `{field}` is both extents");
            Err(Error::new(ErrorKind::Shape, format_args!("shape[{other}]"), found, allowed))
        });
    }

    /// The field for an extent.
    ///
    /// Refuses by [`ErrorKind::Overflow`] when its type cannot hold the extent.
    #[inline(always)]
    pub fn extent<I: Extent>(&mut self, axis: usize, field: &'static str) -> I {
        self.step(|this| extent_of(this.layout().shape()[axis], field)).unwrap_or_default()
    }

    /// The `shape` field.
    ///
    /// Refuses by [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the extents.
    pub fn shape<F: ShapeField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_extents(this.layout().shape(), field)).unwrap_or_else(F::blank)
    }

    /// The `strides` field.
    ///
    /// Refuses by [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] when its type cannot hold the strides.
    pub fn strides<F: StridesField>(&mut self, field: &'static str) -> F {
        self.step(|this| F::from_strides(this.layout().strides(), field)).unwrap_or_else(F::blank)
    }

    /// The `strides(bytes)` field.
    ///
    /// Refuses as [`strides`](Self::strides), and by [`ErrorKind::Strides`] for elements packed below the byte.
    pub fn strides_in_bytes<F: StridesField>(&mut self, field: &'static str) -> F {
        let strides = self.step(|this| {
            if this.item_bytes == 0 {
                let found = "elements packed below the byte";
                let allowed = "elements of whole bytes, for a field that holds strides in bytes";
                return Err(Error::new(ErrorKind::Strides, field, found, allowed));
            }
            F::from_strides(&this.layout().strides_in_bytes(this.item_bytes), field)
        });
        strides.unwrap_or_else(F::blank)
    }

    /// The field for the stream on which the import is ready, which the struct keeps beside it. `field` makes it of the
    /// stream and of where the memory is.
    ///
    /// Refuses what `field` refuses.
    pub(crate) fn stream<F>(&mut self, field: fn(StreamHandle, Device) -> Result<F>) -> Option<F> {
        self.step(|this| {
            let facts = this.facts()?;
            let (stream, device) = (facts.stream(), facts.device());
            this.import.keep_beside(stream);
            field(stream, device)
        })
    }

    /// Makes the struct's own stream wait for the work that is pending on the import. A field that says that nothing is
    /// pending says so of the import too, which is waited for.
    ///
    /// Refuses as [`cuda::order`](crate::cuda::order), with the field.
    pub(crate) fn order_before(&mut self, stream: StreamHandle, field: &'static str) {
        self.step(|this| {
            this.import.keep_beside(stream);
            let ready = if stream == StreamHandle::NothingPending {
                this.finish()
            } else {
                let facts = this.facts()?;
                hand_over(facts, stream).and_then(|()| bring_back(stream, facts.device()))
            };
            ready.map_err(|error| error.with_origin(format_args!("the field `{field}`")))
        });
    }

    /// Where the memory is.
    pub(crate) fn device(&mut self) -> Device {
        self.step(|this| Ok(this.facts()?.device())).unwrap_or(Device::UNKNOWN)
    }

    /// The address of the first element, for a `data(unsafe_raw)` field.
    pub(crate) fn address(&mut self) -> usize {
        self.step(|this| Ok(this.facts()?.address())).unwrap_or(0)
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
        let kind = self.import.facts().device().device_type;
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

    /// Keeps what was refused.
    #[cold]
    fn refuse<T>(&mut self, error: Error) -> Option<T> {
        self.refusal = Some(error);
        None
    }

    /// A storage that waits for the work that is pending, as copies do, or whatever holds memory that the host reaches.
    #[cold]
    fn waited_for<S: FromImport>(&mut self) -> Result<S> {
        let mut storage = None;
        let Self { import, order, wait, .. } = self;
        wait(&mut || storage = Some(S::take(import, *order)));
        storage.unwrap_or_else(|| unreachable!("`wait` runs what it is given"))
    }

    /// Waits for the work that is pending, for a struct that cannot say, or does not, that some is.
    #[cold]
    fn finish(&mut self) -> Result<()> {
        if self.import.is_told_or_finished() {
            return Ok(());
        }
        let mut finished = Ok(());
        let Self { import, wait, .. } = self;
        wait(&mut || finished = import.finish_in_place());
        finished
    }

    /// The `owner` field beside a raw pointer. Nothing may be taken afterwards.
    ///
    /// Refuses as [`cuda::wait`](crate::cuda::wait).
    pub fn owner<F: FromOwner>(&mut self) -> Option<F> {
        self.step(|this| {
            this.facts()?;
            this.finish()?;
            this.taken = true;
            Ok(F::from_owner(this.import.take_owner()))
        })
    }
}

/// A constant that no array has as an extent.
#[cold]
fn never(axis: usize, extent: i128) -> Error {
    Error::new(
        ErrorKind::Shape,
        format_args!("shape[{axis}]"),
        format_args!("{extent} in the struct"),
        "0 and up",
    )
}

#[cold]
fn elsewhere(found: Device, devices: &[DeviceType]) -> Error {
    let devices: Vec<String> = devices.iter().map(DeviceType::to_string).collect();
    Error::new(ErrorKind::Device, "device", found, devices.join(" or "))
}

#[cold]
fn taken() -> Error {
    Error::new(ErrorKind::Unsupported, "import", "memory that was taken before", "one field that takes it")
}
