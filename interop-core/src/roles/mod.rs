//! What the types of a derived struct's fields must be for their roles. The messages here are what users read when a
//! field has the wrong type.
//!
//! Each role has hidden methods for the derive beside its own: `tell` on the way out, `take` on the way in.

mod axes;
mod place;
mod pointer;
mod stream;

pub use axes::{Extent, ShapeField, StridesField};
pub(crate) use axes::{extent_of, signed};
pub use place::{DeviceField, FromOwner};
pub use pointer::{RawAddress, RawPointer};
pub use stream::{AsStream, FromStream};
