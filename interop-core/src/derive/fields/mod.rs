//! What the types of a derived struct's fields must be for their roles. The messages here are what users read when a
//! field has the wrong type.
//!
//! Each role has hidden methods for the derive beside its own: `describe_field` on the way out, `take` on the way in.

pub(crate) mod axes;
pub(crate) mod device_and_owner;
pub(crate) mod raw_pointer;
pub(crate) mod stream;
