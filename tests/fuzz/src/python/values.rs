//! Arbitrary Python values, and the results of their conversions.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::outcome::{Expected, MAY_BE_CAUSED, OWN, REFUSED, TYPE};
use super::world::World;
use crate::input::Input;

/// The maximum nesting depth.
const DEPTH: usize = 3;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    /// An integer beyond 128 bits.
    Huge,
    Float,
    Text(String),
    /// An object whose `__index__` returns this value.
    Index(Box<Self>),
    /// An object whose `__index__` raises.
    Raising,
    /// An object whose `__cuda_stream__` returns this value.
    Stream(Box<Self>),
    Tuple(Vec<Self>),
    List(Vec<Self>),
    Dict,
    Foreign,
}

impl Value {
    /// Decodes an arbitrary value.
    pub(super) fn read(input: &mut Input<'_>) -> Self {
        Self::nested(input, DEPTH)
    }

    fn nested(input: &mut Input<'_>, depth: usize) -> Self {
        let Some(deeper) = depth.checked_sub(1) else { return Self::Int(input.number().into()) };
        let list = |input: &mut Input<'_>| {
            let len = input.byte() % 4;
            (0..len).map(|_| Self::nested(input, deeper)).collect()
        };
        match input.byte() % 20 {
            0 => Self::None,
            1 => Self::Bool(input.byte() % 2 == 1),
            2..=5 => Self::Int(input.number().into()),
            6 => Self::Int(i128::from(input.number()) << (input.byte() % 64)),
            7 => Self::Huge,
            8 => Self::Float,
            9 => Self::Text(input.text(8)),
            10 | 11 => Self::Index(Box::new(Self::nested(input, deeper))),
            12 => Self::Raising,
            13 => Self::Stream(Box::new(Self::nested(input, deeper))),
            14 => Self::Tuple(list(input)),
            15 => Self::List(list(input)),
            16 => Self::Dict,
            17 => Self::Foreign,
            // The usual form of most arguments.
            _ => Self::Tuple(vec![Self::Int(input.number().into()), Self::Int(input.number().into())]),
        }
    }

    /// Returns the value as a Python object.
    pub(super) fn object<'py>(&self, world: &World<'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = world.py();
        let objects =
            |values: &[Self]| values.iter().map(|value| value.object(world)).collect::<PyResult<Vec<_>>>();
        Ok(match self {
            Self::None => py.None().into_bound(py),
            Self::Bool(truth) => truth.into_bound_py_any(py)?,
            Self::Int(number) => number.into_bound_py_any(py)?,
            Self::Huge => world.huge()?,
            Self::Float => 1.0_f64.into_bound_py_any(py)?,
            Self::Text(text) => text.into_bound_py_any(py)?,
            Self::Index(answer) => world.call("Index", (answer.object(world)?,))?,
            Self::Raising => world.call("Index", (world.raised(0)?,))?,
            Self::Stream(answer) => world.call("Stream", (answer.object(world)?,))?,
            Self::Tuple(values) => PyTuple::new(py, objects(values)?)?.into_any(),
            Self::List(values) => PyList::new(py, objects(values)?)?.into_any(),
            Self::Dict => PyDict::new(py).into_any(),
            Self::Foreign => world.call("Foreign", ())?,
        })
    }

    /// Returns the integer value of anything with `__index__`, except a bool.
    pub(super) fn extract_integer(&self) -> Expected<i128> {
        match self {
            Self::Int(number) => Ok(*number),
            Self::Huge => Err(REFUSED),
            Self::Raising => Err(OWN),
            Self::Index(answer) => match &**answer {
                Self::Int(number) => Ok(*number),
                Self::Huge => Err(REFUSED),
                // A bool is an int, and Python's own functions accept it here.
                Self::Bool(truth) => Ok((*truth).into()),
                _ => Err(TYPE | MAY_BE_CAUSED),
            },
            _ => Err(TYPE),
        }
    }

    /// Returns the two values of a tuple.
    fn pair(&self) -> Expected<[&Self; 2]> {
        match self {
            Self::Tuple(values) => match &values[..] {
                [first, second] => Ok([first, second]),
                _ => Err(TYPE),
            },
            _ => Err(TYPE),
        }
    }

    /// Returns the two integers of a tuple. If both are wrong, the errors of both are expected, because either may be
    /// checked first.
    pub(super) fn integers(&self) -> Expected<[i128; 2]> {
        match self.pair()?.map(Self::extract_integer) {
            [Ok(first), Ok(second)] => Ok([first, second]),
            [first, second] => Err(first.err().unwrap_or(0) | second.err().unwrap_or(0)),
        }
    }

    /// Returns device type and ordinal: two 32-bit integers. The ordinal may be `None` for host memory.
    pub(super) fn device(&self) -> Expected<[i32; 2]> {
        let wrong =
            |found: Expected<i128>| found.and_then(|number| i32::try_from(number).map_err(|_| REFUSED));
        let [kind, ordinal] = self.pair()?;
        match [kind, ordinal].map(|value| wrong(value.extract_integer())) {
            [Ok(kind), Ok(ordinal)] => Ok([kind, ordinal]),
            [Ok(kind @ (1 | 3 | 13)), Err(_)] if *ordinal == Self::None => Ok([kind, 0]),
            [first, second] => Err(first.err().unwrap_or(0) | second.err().unwrap_or(0)),
        }
    }
}
