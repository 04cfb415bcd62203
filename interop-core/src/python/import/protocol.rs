//! Which protocol an import came by.

use crate::memory::import::Import;

/// The protocol that an array came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange table of the object's type.
    ExchangeTable,
    /// A `dltensor_versioned` capsule.
    DlpackVersioned,
    /// A `dltensor` capsule.
    Dlpack,
    /// A `__cuda_array_interface__`.
    Cai,
}

impl Protocol {
    /// The name in messages and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExchangeTable => "exchange",
            Self::DlpackVersioned => "dlpack_versioned",
            Self::Dlpack => "dlpack",
            Self::Cai => "cai",
        }
    }
}

/// An array that came from Python, and how.
#[derive(Debug)]
pub struct ImportedArray {
    /// The array.
    pub import: Import,
    /// The protocol that it came by.
    pub protocol: Protocol,
}
