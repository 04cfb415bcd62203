//! The import half of the derive: what arrived is compared with what the struct wants, then taken apart.
#![expect(
    clippy::inline_always,
    reason = "what is known of the struct where it is made is not compared there"
)]

use crate::array::device::Device;
use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::errors::wrong_rank;
use crate::array::layout::order::Order;
use crate::array::stream::StreamHandle;
use crate::cuda::default_stream::join_default_stream;
use crate::cuda::handover::make_consumer_wait;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::import::Import;

/// What a struct demands of an import beside the type of its elements.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
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
pub struct Extraction<'a> {
    /// It stays where it was made until it is taken: it is some two hundred bytes, and a move of what was just made waits for
    /// every store.
    pub(crate) import: &'a mut Import,
    pub(crate) taken: bool,
    pub(crate) refusal: Option<Error>,
    /// The layout of the struct, where it differs from that of the import.
    layout: Option<Layout>,
    pub(crate) order: Order,
    pub(crate) item_bytes: usize,
    /// Runs a closure that may wait for a device.
    pub(crate) wait: fn(&mut dyn FnMut()),
}

impl<'a> Extraction<'a> {
    /// The import before anything was compared.
    #[inline]
    pub(crate) fn new(import: &'a mut Import) -> Self {
        // What another struct was to keep, which refused the import or gave it back, says nothing of this one.
        import.set_stream_field(StreamHandle::NothingPending);
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
    pub(crate) fn is_untaken(&self) -> bool {
        !self.taken
    }

    #[inline(always)]
    pub(crate) fn info(&self) -> Result<&ArrayInfo> {
        if self.taken { Err(taken()) } else { Ok(self.import.info()) }
    }

    /// The layout in units of the struct's elements.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        self.layout.as_ref().unwrap_or(self.import.info().layout())
    }

    /// Takes a step, unless something was refused before.
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

    #[inline(always)]
    pub(crate) fn check_layout(
        &mut self,
        element: Option<&ElementType>,
        requirements: Requirements,
        copies: bool,
    ) -> Result<()> {
        let info = self.info()?;
        let item_bits = element.map_or_else(|| info.dtype().item_bits(info.is_padded()), |e| e.size * 8);
        if let Some(element) = element.filter(|element| !info.is_of_scalars(element)) {
            self.layout = info.join(*element)?;
        }
        let layout = self.layout();
        if let Some(rank) = requirements.axes.filter(|rank| *rank != layout.ndim()) {
            return Err(wrong_rank(layout.shape(), rank));
        }
        let order = requirements.order.unwrap_or_default();
        if copies {
            self.layout = Some(Layout::contiguous(layout.shape(), order)?);
        } else if let Some(order) = requirements.order {
            layout.check_contiguous(order)?;
        }
        self.order = order;
        self.item_bytes = if item_bits % 8 == 0 { item_bits / 8 } else { 0 };
        Ok(())
    }

    /// The field for the stream on which the import is ready, which the struct keeps beside it. `field` makes it of the
    /// stream and of where the memory is.
    ///
    /// Refuses what `field` refuses.
    pub(crate) fn stream<F>(&mut self, field: fn(StreamHandle, Device) -> Result<F>) -> Option<F> {
        self.step(|this| {
            let info = this.info()?;
            let (stream, device) = (info.stream(), info.device());
            this.import.set_stream_field(stream);
            field(stream, device)
        })
    }

    /// Makes the struct's own stream wait for the work that is pending on the import. A field that says that nothing is
    /// pending says so of the import too, which is waited for.
    ///
    /// Refuses as [`cuda::stream_wait`](crate::cuda::stream_wait), with the field.
    pub(crate) fn make_stream_wait(&mut self, stream: StreamHandle, field: &'static str) {
        self.step(|this| {
            this.import.set_stream_field(stream);
            let ready = if stream == StreamHandle::NothingPending {
                this.finish()
            } else {
                let info = this.info()?;
                make_consumer_wait(info, stream).and_then(|()| join_default_stream(stream, info.device()))
            };
            ready.map_err(|error| error.with_origin(format_args!("the field `{field}`")))
        });
    }

    /// Where the memory is.
    pub(crate) fn device(&mut self) -> Device {
        self.step(|this| Ok(this.info()?.device())).unwrap_or(Device::UNKNOWN)
    }

    /// The address of the first element, for a `data(unsafe_raw)` field.
    pub(crate) fn address(&mut self) -> usize {
        self.step(|this| Ok(this.info()?.address())).unwrap_or(0)
    }

    /// Keeps what was refused.
    #[cold]
    pub(crate) fn refuse<T>(&mut self, error: Error) -> Option<T> {
        self.refusal = Some(error);
        None
    }

    /// Waits for the work that is pending, for a struct that cannot say, or does not, that some is.
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
pub(crate) fn taken() -> Error {
    Error::new(ErrorKind::Unsupported, "import", "memory that was taken before", "one field that takes it")
}
