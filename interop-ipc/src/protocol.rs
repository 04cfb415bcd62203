//! What a visitor asks of an office, and what the office answers, in the format of [`encode`](crate::message::encode).
//!
//! The end of the connection or of the visitor's process gives back all that it has open.

use serde::{Deserialize, Serialize};

use crate::message::Nonce;

/// A slot of the page, and the number that an array has there.
pub(crate) type Place = (u32, u64);

#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens an array.
    Open { nonce: Nonce, lacks: Lacks },
    /// Gives an array back.
    Close(Place),
    /// Gives back an array that the visitor could not map: it can be opened once more.
    Refuse(Place),
    /// An array is not used any more, but its block stays mapped until it is closed, or another array of the block rests in its place:
    /// that is closed.
    Rest(Place, Option<Place>),
}

/// What a visitor does not have yet. Their descriptors come with the answer, in this order.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Lacks {
    pub(crate) page: bool,
    pub(crate) block: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Given(Given),
    Refused(Refusal),
}

/// An array that a visitor may map.
#[derive(Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) place: Place,
    /// The message says it too, but may have been changed.
    pub(crate) is_read_only: bool,
    /// Whether the array may rest.
    pub(crate) may_rest: bool,
    /// How the visitor maps the block that it lacks.
    pub(crate) block: Option<Handle>,
}

/// How a visitor maps a block.
#[derive(Serialize, Deserialize)]
pub(crate) enum Handle {
    /// A sealed memory file.
    File,
    /// An allocation of a GPU, by the bytes of the driver's handle.
    Allocation(Vec<u8>),
    /// Mapped memory of a GPU: the bytes of each piece, which has one descriptor.
    Pieces(Vec<u64>),
    /// Memory of a pool: the number of the pool, which has the descriptor, and the driver's bytes for the allocation.
    Pool(u64, Vec<u8>),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotOffered,
    NoSlot,
    Driver,
}
