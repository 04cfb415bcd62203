//! Imports: imports objects of every kind.
#![expect(unsafe_code, reason = "structs are handed out as producers do")]

use std::cell::RefCell;

use interop_core::protocols::dlpack::{Legacy, Versioned};
use interop_core::python::{import, import_as};
use interop_core::storage::Protocol;
use interop_core::{CudaArray, DType, Import, Lease, StreamHandle};
use pyo3::ffi;
use pyo3::prelude::*;

use super::model::{Asked, Model};
use super::outcome::{REFUSED, judge};
use super::tables::{Conduct, OFFERS};
use super::values::Value;
use super::world::World;
use crate::input::Input;
use crate::oracle::check;
use crate::tensor::{self, Claims, Form, Pages, RELEASED};

/// The address of an array whose memory is never accessed.
const ADDRESS: u64 = 0x7000;

/// The result of `__dlpack__`.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// A capsule with this name. Name 0 is the correct one.
    Capsule(u8),
    Value(Value),
    Raises(u8),
}

/// The description of a producer object.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) claims: Claims,
    /// Which arguments `__dlpack__` accepts. The last value is not callable, and `None` means that there is no method.
    pub(super) takes: Option<u8>,
    /// The same value for a class whose attribute `__dlpack__` is `None`.
    disowned: Option<u8>,
    /// The error that `__dlpack__` raises if it is a property that raises.
    pub(super) raising: Option<u8>,
    pub(super) answers: [Answer; 3],
    /// The result of `__dlpack_device__`, or the error that it raises.
    pub(super) device: Option<Result<Value, u8>>,
    /// The same for `__cuda_array_interface__`.
    pub(super) interface: Option<Result<Value, u8>>,
    pub(super) host_only: bool,
    pub(super) table: Option<usize>,
    pub(super) conduct: Conduct,
    pub(super) remembered: bool,
    pub(super) stream: Option<StreamHandle>,
    /// Whether the object is passed as an argument of a struct type.
    typed: bool,
}

/// A struct as functions take it.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Matrix {
    #[cuda_array(data)]
    elements: Lease<f32>,
    rows: usize,
    columns: usize,
}

impl Matrix {
    /// Returns the extents if the array fits this struct. The claims must be legal.
    fn expected(claims: &Claims) -> Option<[i128; 2]> {
        let (shape, strides) = tensor::legal(claims)?;
        let dtype = (DType::F32.code, DType::F32.bits, DType::F32.lanes);
        let extents: [i128; 2] = shape[..].try_into().ok()?;
        let compact = [extents[1], 1];
        let idle = |axis: usize| extents[axis] == 1 || extents.contains(&0);
        let fits = (0..2).all(|axis| idle(axis) || strides[axis] == compact[axis]);
        (claims.dtype == dtype && fits).then_some(extents)
    }
}

/// A producer in use.
pub(super) struct Producer {
    pub(super) program: Program,
    pages: Pages,
    answered: usize,
    handed: bool,
}

thread_local! {
    /// The producer whose methods are currently called.
    pub(super) static PRODUCER: RefCell<Option<Producer>> = const { RefCell::new(None) };
    static PAGES: RefCell<Option<Pages>> = const { RefCell::new(None) };
}

impl Program {
    fn read(input: &mut Input<'_>) -> Self {
        let [shape, more] = input.bytes();
        let typed = shape & 1 != 0 && input.byte() % 2 == 1;
        let raises = |input: &mut Input<'_>| input.byte() % 6;
        let member = |input: &mut Input<'_>, usual: Value| match input.byte() % 8 {
            0 => None,
            1 => Some(Err(raises(input))),
            2 | 3 => Some(Ok(Value::read(input))),
            _ => Some(Ok(usual)),
        };
        let pair = |[kind, ordinal]: [i32; 2]| {
            Value::Tuple(vec![Value::Int(kind.into()), Value::Int(ordinal.into())])
        };
        let host_only = more & 0x30 == 0x30;
        let claims = if shape % 4 == 0 { tensor::read(input) } else { usual_claims(shape, input) };
        let device = member(input, pair(claims.device));
        let takes = input.byte() % 10;
        Self {
            claims,
            takes: Some(takes).filter(|takes| *takes < 8).map(|takes| if takes > 6 { 0 } else { takes }),
            disowned: (takes == 8).then_some(7),
            raising: (more % 16 == 1).then(|| raises(input)),
            answers: std::array::from_fn(|_| match input.byte() % 8 {
                0 => Answer::Capsule(input.byte() % 4),
                1 => Answer::Value(Value::read(input)),
                2 | 3 => Answer::Raises(raises(input)),
                _ => Answer::Capsule(0),
            }),
            device,
            interface: if more % 4 == 2 { member(input, Value::Dict) } else { None },
            host_only,
            table: (more & 0xc0 == 0xc0).then(|| usize::from(input.byte()) % OFFERS.len()),
            conduct: match input.byte() % 8 {
                0 => Conduct::Refuses,
                1 => Conduct::Raises(raises(input)),
                2 => Conduct::Fails,
                3 => Conduct::Nothing,
                _ => Conduct::Hands,
            },
            // A class that broke its promise to be on the host is cached as such.
            remembered: input.byte() % 8 != 0 && !host_only,
            typed,
            stream: match input.byte() % 8 {
                // An argument has no stream.
                _ if typed => None,
                0 => Some(StreamHandle::NothingPending),
                1 => Some(StreamHandle::LegacyDefault),
                2 => Some(StreamHandle::PerThreadDefault),
                // SAFETY: no driver is loaded, so nothing uses the handle.
                3 => Some(unsafe { StreamHandle::from_raw(0x5000) }),
                _ => None,
            },
        }
    }
}

/// Returns the description of a legal array.
fn usual_claims(byte: u8, input: &mut Input<'_>) -> Claims {
    let kind = [1, 1, 1, 1, 2, 3, 13, 10][usize::from(byte >> 2 & 7)];
    Claims {
        versioned: byte & 0x20 != 0,
        version: [1, 3],
        flags: u64::from(byte >> 6 & 1),
        data: ADDRESS,
        device: [kind, i32::from(input.byte() % 4 == 1)],
        ndim: 2,
        dtype: (DType::F32.code, DType::F32.bits, DType::F32.lanes),
        shape: Some(vec![2, 3]),
        strides: None,
        byte_offset: 0,
        deleter: true,
    }
}

impl Producer {
    /// Returns the struct, but only once.
    pub(super) fn hand<A: Form>(&mut self) -> Option<*mut A> {
        let fits = A::IS_VERSIONED == self.program.claims.versioned;
        if self.handed || !fits {
            return None;
        }
        self.handed = true;
        Some(tensor::build::<A>(&self.program.claims, &mut self.pages).into_raw())
    }

    /// Returns a capsule with the struct and without a destructor: only its consumer releases it.
    fn capsule<'py>(&mut self, py: Python<'py>, name: u8) -> PyResult<Option<Bound<'py, PyAny>>> {
        let versioned = self.program.claims.versioned;
        let tensor = if versioned {
            self.hand::<Versioned>().map(<*mut _>::cast)
        } else {
            self.hand::<Legacy>().map(<*mut _>::cast)
        };
        let Some(tensor) = tensor else { return Ok(None) };
        let fresh = if versioned { c"dltensor_versioned" } else { c"dltensor" };
        let name = [fresh, c"used_dltensor", c"", c"dltensor "][usize::from(name)];
        // SAFETY: the pointer is not null, and the name is static.
        let capsule = unsafe { ffi::PyCapsule_New(tensor, name.as_ptr(), None) };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Some)
    }
}

/// Returns the result of a method of the current producer.
pub(super) fn answer<'py>(world: &World<'py>, which: u8) -> PyResult<Bound<'py, PyAny>> {
    let raise = |own: u8| Err(PyErr::from_value(world.raised(own)?));
    PRODUCER.with_borrow_mut(|producer| {
        let producer = producer.as_mut().expect("a producer that is asked");
        let member = match which {
            0 => None,
            1 => producer.program.device.clone(),
            _ => producer.program.interface.clone(),
        };
        match member {
            Some(Ok(value)) => return value.object(world),
            Some(Err(own)) => return raise(own),
            None => {}
        }
        if let Some(own) = producer.program.raising {
            return raise(own);
        }
        let at = producer.answered.min(2);
        producer.answered += 1;
        match producer.program.answers[at].clone() {
            Answer::Raises(own) => raise(own),
            Answer::Value(value) => value.object(world),
            Answer::Capsule(name) => Ok(producer
                .capsule(world.py(), name)?
                .unwrap_or_else(|| world.py().None().into_bound(world.py()))),
        }
    })
}

/// Imports an object.
pub(super) fn run(world: &World<'_>, input: &mut Input<'_>) {
    let program = Program::read(input);
    let mut model = Model::new(&program);
    let expected = model.import();
    RELEASED.set(0);
    let pages = PAGES.take().unwrap_or_else(Pages::new);
    PRODUCER.set(Some(Producer { program: program.clone(), pages, answered: 0, handed: false }));
    let Program { takes, disowned, raising, table, host_only, remembered, .. } = program;
    let takes = takes.or(disowned);
    let (device, interface) = (program.device.is_some(), program.interface.is_some());
    let made =
        world.call("producer", (takes, raising.is_some(), device, interface, host_only, table, remembered));
    let made = made.expect("an object");
    if program.typed {
        let expected = expected.and_then(|_| Matrix::expected(&program.claims).ok_or(REFUSED));
        if let Some((found, shape)) = judge(world, import_as::<Matrix>(&made), expected, &program) {
            let info = found.info().expect("an array");
            assert_eq!([found.rows as i128, found.columns as i128], shape, "{program:?}");
            assert_eq!(info.numel() == 0, shape.contains(&0), "{program:?}");
        }
    } else if let Some((found, expected)) = judge(world, import(&made, program.stream), expected, &program) {
        compare(&program, &found, expected);
    }
    assert_eq!(
        RELEASED.get(),
        usize::from(model.taken() && program.claims.deleter),
        "one release: {program:?}"
    );
    assert_eq!(super::export::references(&made), 1, "{program:?}");
    let producer = PRODUCER.take().expect("it was put there");
    PAGES.set(Some(producer.pages));
}

/// Compares an import with the claims.
fn compare(program: &Program, found: &Import, expected: Asked) {
    let info = found.info();
    let protocol = match expected {
        Asked::Interface => Protocol::CudaArrayInterface,
        Asked::Table => Protocol::ExchangeTable,
        Asked::Method if program.claims.versioned => Protocol::DlpackVersioned,
        Asked::Method => Protocol::DlpackLegacy,
    };
    assert_eq!(found.protocol(), Some(protocol), "{program:?}");
    if expected == Asked::Interface {
        return;
    }
    let (shape, strides) = tensor::legal(&program.claims).expect("something that is wrong was taken");
    let first = i128::from(program.claims.data) + i128::from(program.claims.byte_offset);
    check(info, &shape, &strides, first, info.dtype().item_bits(info.is_padded()) as i128);
}
