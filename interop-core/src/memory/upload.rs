//! Copies of strided host arrays to a device. Each piece is made contiguous in pinned memory while the piece before it
//! is copied.
#![expect(unsafe_code, reason = "reads host memory and fills memory that the caller vouches for")]

use core::ptr::{null_mut, with_exposed_provenance_mut};

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::cuda::allocation::with_usable_stream;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::copy_plan::{CopyAxis, visit};
use crate::cuda::driver::{Driver, Outcome, RawStream};
use crate::cuda::event::Event;
use crate::cuda::per_context::PerContext;
use crate::cuda::pointer::allocation_id;
use crate::error::Result;
use crate::memory::host::elements::HostElements;
use crate::memory::host::strided::Strided;

/// The size of a piece in bytes. Two pieces are used in turn.
const PIECE: usize = 4 << 20;

/// Smaller arrays are made contiguous in pageable memory, because pinning memory would cost more.
pub(crate) const LEAST_BYTES: usize = 1 << 20;

/// Two pieces of pinned memory for each context. They are kept, because pinning memory takes longer than filling it.
static PIECES: PerContext<Pieces> = PerContext::new();

/// Copies elements to memory of a device, contiguous in `order`. The copy is complete on return. Returns `false` if an
/// element is larger than a piece, and if no pinned memory can be allocated.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::ErrorKind::Driver) if a driver call fails;
/// [`ErrorKind::DType`](crate::ErrorKind::DType) for a byte that is not a valid `bool`.
///
/// # Safety
///
/// `target` has room for the elements, in memory that the driver can access, and nothing else uses it.
pub(crate) unsafe fn upload<T: Element>(
    (driver, context): (&Driver, Context),
    elements: &HostElements<T>,
    order: Order,
    target: usize,
) -> Result<bool> {
    if size_of::<T>() > PIECE {
        return Ok(false);
    }
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    let mut copied = Ok(());
    let work = |pieces: &mut Pieces| -> Outcome<Outcome> {
        let pieces = pieces.live(driver)?;
        Ok(with_usable_stream(driver, |stream| {
            let mut turns = Turns { driver, context, stream, pieces, queued: [None, None], next: 0 };
            // SAFETY: as the caller promises. Only this call uses the pieces while they are locked. An element fits
            // into a piece, as checked above.
            copied = unsafe { copy_pieces(&mut turns, elements, order, target) };
            // Wait after an error, too, because the next call uses the pieces.
            // SAFETY: the stream is live.
            unsafe { driver.stream_synchronize(stream) }
        }))
    };
    match PIECES.with(driver, context, || Pieces::pin(driver), work) {
        Err(_) | Ok(Err(_)) => Ok(false),
        Ok(Ok(finished)) => copied.and(finished.map_err(Into::into)).map(|()| true),
    }
}

/// Two pieces of pinned memory. The driver's identifier of the allocation distinguishes them from later memory at the
/// same address.
struct Pieces {
    address: usize,
    id: usize,
}

impl Pieces {
    /// Allocates them in the current context.
    fn pin(driver: &Driver) -> Outcome<Self> {
        let mut memory = null_mut();
        // SAFETY: the pointer is valid for a write. A context is current.
        unsafe { driver.memory_host_alloc(&raw mut memory, 2 * PIECE, 0) }?;
        let address = memory.expose_provenance();
        Ok(Self { address, id: allocation_id(driver, address)? })
    }

    /// Returns their address. A reset of the primary context, which keeps its handle, freed them: then they are
    /// allocated again.
    fn live(&mut self, driver: &Driver) -> Outcome<usize> {
        if allocation_id(driver, self.address)? != self.id {
            *self = Self::pin(driver)?;
        }
        Ok(self.address)
    }
}

/// The two pieces, and the pending copies from them.
struct Turns<'d> {
    driver: &'d Driver,
    context: Context,
    stream: RawStream,
    pieces: usize,
    queued: [Option<Event<'d>>; 2],
    next: usize,
}

impl Turns<'_> {
    /// Fills a free piece and queues its copy.
    ///
    /// # Safety
    ///
    /// `fill` writes `bytes` bytes, at most [`PIECE`]. `target` has room for as many.
    unsafe fn take(
        &mut self,
        target: usize,
        bytes: usize,
        fill: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        let Self { driver, context, stream, .. } = *self;
        if let Some(event) = self.queued[self.next].take() {
            event.wait()?;
        }
        let piece = self.pieces + self.next * PIECE;
        fill(piece)?;
        // SAFETY: both sides have `bytes` bytes, and are live until the stream has been waited for.
        unsafe { driver.copy(target as u64, piece as u64, bytes, stream) }?;
        self.queued[self.next] = Some(Event::of_stream(driver, Some(context), stream)?);
        self.next = 1 - self.next;
        Ok(())
    }
}

/// # Safety
///
/// As [`upload`]. Nothing else uses the pieces of `turns`. An element is at most as large as a piece.
unsafe fn copy_pieces<T: Element>(
    turns: &mut Turns<'_>,
    elements: &HostElements<T>,
    order: Order,
    target: usize,
) -> Result<()> {
    let (first, layout) = elements.address_and_layout();
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    if order == Order::F {
        shape.reverse();
        strides.reverse();
    }
    let item = size_of::<T>();
    let mut at = target;
    each_piece(&mut shape, &strides, PIECE / item, &mut |offset, shape| {
        let count: usize = shape.iter().product();
        let strides = &strides[strides.len() - shape.len()..];
        let from = first.wrapping_add_signed(offset * item as isize);
        // SAFETY: the elements of the array are live.
        let part = unsafe { Strided::<T>::new(from, shape, strides) };
        // SAFETY: a piece has room for this many elements, because an element is not larger than a piece. So has the
        // target from `at` on.
        let fill = |piece: usize| unsafe { part.copy_to(Order::C, with_exposed_provenance_mut(piece)) };
        // SAFETY: as above.
        unsafe { turns.take(at, count * item, fill) }?;
        at += count * item;
        Ok(())
    })
}

/// Calls `see` with consecutive parts of an array, of at most `most` elements each. The arguments are the offset of the
/// part, in elements, and the extents of its last axes.
fn each_piece(
    shape: &mut [usize],
    strides: &[isize],
    most: usize,
    see: &mut dyn FnMut(isize, &[usize]) -> Result<()>,
) -> Result<()> {
    let (mut whole, mut elements) = (shape.len(), 1_usize);
    while whole > 0 && elements.saturating_mul(shape[whole - 1]) <= most {
        whole -= 1;
        elements *= shape[whole];
    }
    let Some(cut) = whole.checked_sub(1) else { return see(0, shape) };
    let (extent, rows) = (shape[cut], (most / elements).max(1));
    let (outer, inner) = shape.split_at_mut(cut);
    let axis = |(extent, stride): (&usize, &isize)| CopyAxis { extent: *extent, from: *stride, to: 0 };
    // `visit` expects the outermost axis last.
    let outer: Vec<CopyAxis> = outer.iter().zip(strides).map(axis).rev().collect();
    visit(&outer, (0, 0), &mut |offset, _| {
        for start in (0..extent).step_by(rows) {
            inner[0] = rows.min(extent - start);
            see(offset + start as isize * strides[cut], inner)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(shape: &[usize], strides: &[isize], most: usize) -> Vec<(isize, Vec<usize>)> {
        let mut found = Vec::new();
        each_piece(&mut shape.to_vec(), strides, most, &mut |offset, shape| {
            found.push((offset, shape.to_vec()));
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn pieces_follow_one_another_in_row_major_order() {
        assert_eq!(pieces(&[2, 3], &[1, 2], 6), [(0, vec![2, 3])], "all of it");
        assert_eq!(pieces(&[5, 3], &[10, 2], 6), [(0, vec![2, 3]), (20, vec![2, 3]), (40, vec![1, 3])]);
        assert_eq!(
            pieces(&[2, 3], &[30, -1], 2),
            [(0, vec![2]), (-2, vec![1]), (30, vec![2]), (28, vec![1])]
        );
        assert_eq!(
            pieces(&[2, 2, 3], &[100, 10, 1], 5),
            [(0, vec![1, 3]), (10, vec![1, 3]), (100, vec![1, 3]), (110, vec![1, 3])]
        );
        assert_eq!(pieces(&[], &[], 1), [(0, vec![])], "a single element");
    }
}
