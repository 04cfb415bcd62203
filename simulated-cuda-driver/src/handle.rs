//! Numbers of the driver's objects and of its operations.

/// A driver handle: an opaque number, never an address. It is never reused unless a test enables
/// [`Reuse`](crate::state::Reuse).
pub(crate) type Handle = u64;

/// The number of an operation, in the order of queueing. Never reused.
pub(crate) type OpId = u64;
