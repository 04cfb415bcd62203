//! Faults that others have shipped, by hand and with this crate: the handle of an array is that of its whole block, so its offset is lost.

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, LONG, handle, share};
use crate::other::{Other, hex};
use crate::rows::{BLOCK, Block, get_handle, hold, set, value};

/// `PyTorch`'s allocator cuts its blocks at multiples of this.
const ALIGNMENT: u64 = 512;

/// Arrays by their addresses and bytes; the number of each is its value.
fn read(arrays: &[(u64, usize)], stream: usize, other: &mut Other) -> Result<(usize, usize), String> {
    let (count, mut wrong_by_hand, mut wrong) = (Count::default(), 0, 0);
    for (index, (address, bytes)) in arrays.iter().enumerate() {
        set(*address, value(index), *bytes, stream);
    }
    ok(cuStreamSynchronize(stream));
    for (index, (address, bytes)) in arrays.iter().enumerate() {
        // The other process takes the address that the handle opens for that of the array.
        other.tell(&format!("hand {}", hex(&get_handle(*address))));
        wrong_by_hand += usize::from(other.ask(&format!("first {}", value(index))) != "true");
        let parcel = share(*address, *bytes, Some(stream), &count);
        let opened = other.open("trip", &parcel);
        if opened != "ok" {
            return Err(opened);
        }
        wrong += usize::from(other.ask(&format!("first {}", value(index))) != "true");
        parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
    }
    Ok((wrong_by_hand, wrong))
}

/// <https://github.com/dora-rs/dora/issues/978>: a tensor that was stacked from two others arrives as the first of them.
pub(crate) fn dora_978(_: usize) -> Result<String, String> {
    let (stream, mut other, block) = (stream(), Other::start(), Block::new(BLOCK));
    let arrays = [(block.0, 24), (block.0 + ALIGNMENT, 24), (block.0 + 2 * ALIGNMENT, 48)];
    let (by_hand, ours) = read(&arrays, stream, &mut other)?;
    hold(by_hand == 2 && ours == 0, format!("by hand {by_hand} of 3 wrong, ours {ours}"))
}

/// <https://github.com/kvcache-ai/Mooncake/pull/1622>: tensors of 64 bytes to 512 KiB in one block, and one of 4 MiB in a block of its
/// own, which alone is right.
pub(crate) fn mooncake_1622(_: usize) -> Result<String, String> {
    let (stream, mut other, block, large) =
        (stream(), Other::start(), Block::new(BLOCK), Block::new(4 << 20));
    let mut next = block.0 + ALIGNMENT;
    let mut arrays = Vec::new();
    for bytes in [64, 16 << 10, 128 << 10, 512 << 10] {
        arrays.push((next, bytes));
        next += (bytes as u64).next_multiple_of(ALIGNMENT);
    }
    arrays.push((large.0, 4 << 20));
    let (by_hand, ours) = read(&arrays, stream, &mut other)?;
    hold(by_hand == 4 && ours == 0, format!("by hand {by_hand} of 5 wrong, ours {ours}"))
}
