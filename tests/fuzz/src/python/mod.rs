//! Exchanges between Python objects: the arguments of `__dlpack__`, the results of producers of every kind, exchange
//! tables, interface dicts, streams.
//!
//! An input is a program: an object and an operation on it. The expected result comes from a second implementation of
//! the rules, in the modules `import` and `export`. An error must have a class that the rules name. Nothing may be left behind
//! (an exception, an export, an allocation, a reference). A struct that was handed over must be released exactly once.
//!
//! The module `world.py` contains the classes. No driver may be visible: whoever runs the target hides it.

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
/// If the crate and the rules differ.
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
