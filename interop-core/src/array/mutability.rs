//! Who may write to the memory of an array.

/// Who may write to the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutability {
    /// Nobody.
    ReadOnly,
    /// Only a sole owner. An export that consumes the array is writable; an export that shares it is read-only. This is
    /// the rule for a `Vec`, because Rust code may hold references to its elements.
    UniqueOwner,
    /// Everybody who shares the array. This is the rule for memory to which Rust code never makes references, such as
    /// device memory.
    Writable,
}
