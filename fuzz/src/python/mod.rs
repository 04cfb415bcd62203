//! What Python objects say to each other: the arguments of `__dlpack__`, the answers of producers of every kind, exchange
//! tables, interface dicts, streams.
//!
//! Bytes are a program: an object, and what is asked of it. What comes of it is worked out by rules that are written down once
//! more, in [`import`] and [`export`]; an error has to be of a class that the rules name, nothing may be left behind (an exception, an
//! export, an allocation, a reference), and a struct that was handed over is released once.
//!
//! The module `world.py` has the classes. There is no driver: whoever runs the target hides it.

mod array;
mod dict;
mod export;
mod import;
mod model;
mod outcome;
mod stream;
mod tables;
mod values;
mod world;

use pyo3::prelude::*;

use crate::input::Input;
use world::World;

/// Runs the target.
///
/// # Panics
///
/// When the crate and the rules differ.
pub fn run(data: &[u8]) {
    Python::attach(|py| {
        let (world, mut input) = (World::of(py), Input::new(data));
        match input.byte() % 8 {
            0 | 1 => export::run(&world, &mut input),
            2 | 3 => dict::run(&world, &mut input),
            4 => stream::run(&world, &mut input),
            _ => import::run(&world, &mut input),
        }
        assert!(PyErr::take(py).is_none(), "an exception was left behind");
        assert_eq!(interop_core::python::deferred_ref_count(), 0);
    });
}
