//! Exports: arrays of other libraries as results of functions.

pub(crate) mod allocate;
mod jax;
pub(crate) mod library;
pub(crate) mod numpy;
pub(crate) mod results;
