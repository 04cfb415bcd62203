//! The data of all typed views, and what they do with it.
#![expect(unsafe_code, reason = "makes references to cells of memory whose lifetime the caller promises")]
#![expect(clippy::inline_always, reason = "fields of a view that are not read are not computed")]

use core::any::type_name;
use core::{fmt, ptr};
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::elements::Elements;
use crate::array::layout::Layout;
use crate::array::layout::axes::{Axis, Offsets, Steps, offsets};
use crate::array::layout::errors::{axes_in_words, wrong_rank};
use crate::array::layout::offset_range;
use crate::array::layout::order::Order;
use crate::array::stream_handle::StreamHandle;
use crate::driver::functions::to_usize;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::host::cells::{check_any_bits, check_readable};
use crate::order::array_info::{ArrayInfo, kernel_address, launch_address};
use crate::order::claim::{Claim, is_shared};
use crate::order::handover::ArrayWork;
use crate::order::memory_state::MemoryState;
use crate::order::placement::Placement;
use crate::order::uses::Uses;

/// The data of a typed view: the element type and the rank were checked.
#[derive(Clone, Copy)]
pub(crate) struct RawView<const N: usize> {
    pub(crate) address: usize,
    pub(crate) shape: [usize; N],
    pub(crate) strides: [isize; N],
    pub(crate) device: Device,
    pub(crate) placement: Placement,
    /// How the memory was used. It lives as long as the owner of the memory, and so as the view.
    pub(crate) uses: Option<&'static Uses>,
    /// Whether other Rust code may reach the elements too.
    pub(crate) is_shared: bool,
}

/// The offsets of the runs of elements along the last axis.
pub(crate) type Runs = Offsets<Dims<Axis>>;

impl<const N: usize> RawView<N> {
    /// # Safety
    ///
    /// The memory is live for the lifetime of the result.
    #[inline(always)]
    pub(crate) unsafe fn new<T: Element>(info: &ArrayInfo) -> Result<Self> {
        // SAFETY: whoever has the owner of the memory keeps the record, and never replaces it.
        let uses = info.state.uses.as_ref().map(|uses| unsafe { &*Arc::as_ptr(uses) });
        if info.has_scalar_type(&T::TYPE) {
            return Self::over(info, info.layout(), uses);
        }
        let joined = info.join(T::TYPE)?;
        Self::over(info, joined.as_ref().unwrap_or(info.layout()), uses)
    }

    #[inline(always)]
    fn over(info: &ArrayInfo, layout: &Layout, uses: Option<&'static Uses>) -> Result<Self> {
        let axes = |what: &[usize]| <[usize; N]>::try_from(what).ok();
        let Some(shape) = axes(layout.shape()) else {
            return Err(wrong_rank(layout.shape(), N));
        };
        let mut strides = [0; N];
        strides.copy_from_slice(layout.strides());
        let (address, device) = (info.unwatched_address, info.device());
        let placement = info.state.on_one_stream();
        Ok(Self { address, shape, strides, device, placement, uses, is_shared: is_shared(info) })
    }

    /// Notes that the memory may be used in a way that this crate does not see.
    pub(crate) fn note_unknown(&self) {
        self.uses.into_iter().for_each(Uses::note_unknown);
    }

    /// Formats a view of this name. The elements need not implement `Debug`.
    pub(crate) fn describe<T>(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, shape, strides, device, placement, .. } = self;
        write!(f, "{name}({} {shape:?} at {address:#x}, strides {strides:?}, {device}", type_name::<T>())?;
        match placement.handle() {
            Some(StreamHandle::NothingPending) => {}
            Some(stream) => write!(f, ", work pending on the {stream}")?,
            None => f.write_str(", work pending on an unknown stream")?,
        }
        f.write_str(")")
    }

    /// The layout, which was checked when the view was made.
    pub(crate) fn layout(&self) -> Layout {
        Layout::strided(&self.shape, &self.strides)
            .unwrap_or_else(|_| unreachable!("a view has a checked layout"))
    }

    /// Records a use by the host, and waits for pending work. Fails for memory that the host cannot access, or that is not aligned
    /// for `T`.
    pub(crate) fn claim_host<T: Element>(&self, writes: bool) -> Result<Claim> {
        let claim = Claim::by_host(self.is_shared.then(|| self.elements::<T>()), writes)?;
        let (state, address, device) = (MemoryState::new(self.placement), self.address, self.device);
        check_readable(ArrayWork { state: &state, is_followed: false, address, device }, &claim)?;
        if self.address % align_of::<T>() != 0 {
            let found = text!("address {:#x}", self.address);
            let allowed = text!("a multiple of {}, the alignment of the element", align_of::<T>());
            let error = Error::new(ErrorKind::Alignment, "data", found, allowed);
            return Err(error.with_python_hint(Cure::Copy));
        }
        Ok(claim)
    }

    /// The bytes of the elements, of which there is at least one.
    fn elements<T>(&self) -> Elements {
        let (axes, item) = (self.shape.into_iter().zip(self.strides), size_of::<T>());
        // They were checked when the view was made.
        let offsets = offset_range(axes.clone()).unwrap_or(0..0);
        let at = |offset: isize| self.address.wrapping_add_signed(offset * item as isize);
        let in_bytes = axes.map(|(extent, stride)| (extent, stride.unsigned_abs().saturating_mul(item)));
        Elements::of(at(offsets.start)..at(offsets.end), self.shape.iter().product(), item, in_bytes)
    }

    /// Returns a pointer to the element at `index`.
    #[inline]
    pub(crate) fn element<T>(&self, index: [usize; N]) -> Result<*mut T> {
        let (mut offset, mut is_inside) = (0_isize, true);
        for (at, (extent, stride)) in index.iter().zip(self.shape.iter().zip(&self.strides)) {
            is_inside &= at < extent;
            // The offset is not used if the index is out of bounds.
            offset = offset.wrapping_add((*at as isize).wrapping_mul(*stride));
        }
        if !is_inside {
            return Err(self.outside(index));
        }
        Ok(ptr::with_exposed_provenance_mut::<T>(self.address).wrapping_offset(offset))
    }

    #[cold]
    fn outside(&self, index: [usize; N]) -> Error {
        let axis = (0..N).find(|axis| index[*axis] >= self.shape[*axis]).unwrap_or(0);
        let allowed = text!("less than the extent {}", self.shape[axis]);
        Error::new(ErrorKind::IndexOutOfBounds, format_args!("index[{axis}]"), index[axis], allowed)
    }

    /// Returns a pointer to the first element. It dangles without elements.
    pub(crate) fn pointer<T>(&self) -> *mut T {
        if self.shape.contains(&0) {
            ptr::dangling_mut()
        } else {
            ptr::with_exposed_provenance_mut(self.address)
        }
    }

    /// Returns a pointer to the first element, and the number of elements, if the array is contiguous in this order.
    pub(crate) fn run<T>(&self, order: Order) -> Result<(*mut T, usize)> {
        let layout = self.layout();
        let with_hint =
            |error: Error| error.with_rust_hint("`iter` and the `fold` of the struct take any strides");
        layout.check_contiguous(order).map_err(with_hint)?;
        Ok((self.pointer(), layout.numel()))
    }

    /// # Safety
    ///
    /// The elements are live and initialized for `'c`. `C` is a cell with the layout of `T`.
    pub(crate) unsafe fn cells<'c, T: Element, C>(&self) -> Result<&'c [C]> {
        check_any_bits::<T>()?;
        let (first, count) = self.run::<T>(Order::C)?;
        // SAFETY: `count` contiguous elements, aligned because of `claim_host`, and otherwise as the caller promises.
        // The `UnsafeCell` in a cell permits writes by others.
        Ok(unsafe { core::slice::from_raw_parts(first.cast_const().cast::<C>(), count) })
    }

    /// # Safety
    ///
    /// As [`cells`](Self::cells), while the view is borrowed.
    pub(crate) unsafe fn rows<'c, T: Element, C: 'c>(
        &'c self,
    ) -> Result<impl ExactSizeIterator<Item = &'c [C]> + fmt::Debug> {
        check_any_bits::<T>()?;
        let Some(axis) = N.checked_sub(1) else {
            return Err(Error::new(ErrorKind::Rank, "shape", axes_in_words(0), "1 axis or more, for rows"));
        };
        let len = self.shape[axis];
        if len > 1 && self.strides[axis] != 1 && !self.shape.contains(&0) {
            let found = text!("{} along axis {axis}", self.strides[axis]);
            let error =
                Error::new(ErrorKind::Strides, "strides", found, "1, for contiguous elements in a row");
            let error = error.with_rust_hint("`iter` and the `fold` of the struct take any strides");
            return Err(error.with_python_hint(Cure::COrder));
        }
        let first = core::ptr::with_exposed_provenance::<C>(self.address);
        let row = move |[start, _]: Steps| match len {
            0 => &[][..],
            // SAFETY: the elements of a row are contiguous, aligned because of `claim_host`, and otherwise as the caller
            // promises.
            _ => unsafe { core::slice::from_raw_parts(first.wrapping_offset(start), len) },
        };
        Ok(self.runs().map(row))
    }

    /// Returns the pointer, the extents and the strides of an argument of a kernel.
    pub(crate) fn kernel_argument<T>(&self) -> Result<(*mut T, [i64; N], [i64; N])> {
        Ok(self.argument(kernel_address(self.address, self.device, align_of::<T>())?))
    }

    /// As [`kernel_argument`](Self::kernel_argument), for a scope: over arrays of the CPU a kernel runs there.
    pub(crate) fn launch_argument<T>(&self) -> Result<(*mut T, [i64; N], [i64; N])> {
        Ok(self.argument(launch_address(self.address, self.device, align_of::<T>())?))
    }

    fn argument<T>(&self, address: u64) -> (*mut T, [i64; N], [i64; N]) {
        let pointer = ptr::with_exposed_provenance_mut(to_usize(address));
        // Layouts are checked to fit `isize`, which no host has wider than 64 bits.
        (pointer, self.shape.map(|extent| extent as i64), self.strides.map(|stride| stride as i64))
    }

    /// Returns the offsets of the runs along the last axis, in row-major order of the other indices.
    pub(crate) fn runs(&self) -> Runs {
        let count = N.saturating_sub(1);
        let axis = |number: usize| {
            let at = count - 1 - number;
            Axis { extent: self.shape[at], steps: [self.strides[at], 0] }
        };
        offsets(Dims::from_fn(count, axis), [0; 2])
    }
}

/// What all views have: extents, strides, and `Debug` for elements that need not implement it.
macro_rules! viewed {
    ($($view:ident)*) => {
        $(
            impl<T, const N: usize> $view<'_, T, N> {
                /// The extents.
                #[must_use]
                pub fn shape(&self) -> [usize; N] {
                    self.raw.shape
                }

                /// The strides, in elements.
                #[must_use]
                pub fn strides(&self) -> [isize; N] {
                    self.raw.strides
                }
            }

            impl<T, const N: usize> ::core::fmt::Debug for $view<'_, T, N> {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    self.raw.describe::<T>(stringify!($view), f)
                }
            }
        )*
    };
}

pub(crate) use viewed;
