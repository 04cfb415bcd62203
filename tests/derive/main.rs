//! What derived structs do: every word by itself and with the others, and in surroundings that macros get wrong.
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
mod lints;
mod macros;
mod raw;
mod shape;
mod stream;
mod support;
