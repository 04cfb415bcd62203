//! Behaviour of derived structs: each attribute alone, combined with others, and in contexts that macros often handle
//! wrong.
#![allow(missing_docs, reason = "tests are named for what they show")]

mod combinations;
mod data;
mod defaults;
mod device;
mod directions;
mod element;
mod extents;
mod generics;
mod hygiene;
mod inner;
mod lints;
mod macros;
mod raw;
mod shape;
mod stream;
mod support;
