//! Who may write to the memory of an array.

/// Who may write the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutability {
    /// Nobody.
    ReadOnly,
    /// The sole owner: an export that consumes the array is writable, one that shares it is not. This is for a `Vec`, to
    /// which Rust code may hold plain references.
    WhenOwned,
    /// All who have the array: for memory that Rust code never borrows as plain references, such as device memory.
    Writable,
}
