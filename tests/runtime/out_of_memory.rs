//! Each allocation fails once. Where the input determines its size the result is an error, with one release.
//!
//! A failed allocation of the standard library, such as a `Box` or a `Vec`, aborts the program. That remains so for
//! allocations that are small for any input: errors and their texts; the shape and strides of an array with more than
//! five axes; the block of an export; the box of an owner, a handle, or a borrow record. For a `descr` the size
//! depends on its entries, whose number and length are limited.
#![expect(unsafe_code, reason = "facts are exported with owners that have nothing to do with them")]

use std::env;
use std::process::Command;
use std::sync::Arc;

use interop_core::protocols::RawDescriptor;
use interop_core::protocols::cai::{CudaArrayInterface, DescrEntry, DescrType};
use interop_core::protocols::dlpack::{Legacy, ManagedTensor, Ownership, Versioned, export};
use interop_core::storage::HostBuffer;
use interop_core::{
    CudaArray, DType, Device, Error, ErrorKind, FromArray, HostVec, Import, Lease, LeaseMut, SharedBuffer,
};

use crate::support::allocator::{Fault, failing};
use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::{Claims, Ledger};

/// The largest size in bytes of an allocation that may abort the program: two numbers for each of 64 axes, and a
/// struct.
const SMALL: usize = 2048;
/// The number of elements of an array that is not small.
const MANY: usize = 20_000;

/// Work that is ready to run, and the number of releases after it.
struct Scene {
    released: Box<dyn Fn() -> usize>,
    run: Box<dyn FnOnce() -> Result<(), Error>>,
}

/// Work on an array with a given number of elements.
struct Work {
    name: &'static str,
    set: fn(usize) -> Scene,
    /// The result if there is enough memory.
    usual: Option<ErrorKind>,
    /// Whether the work allocates as much memory as the array has.
    copies: bool,
}

const fn work(name: &'static str, set: fn(usize) -> Scene) -> Work {
    Work { name, set, usual: None, copies: false }
}

const fn copying(name: &'static str, set: fn(usize) -> Scene) -> Work {
    Work { copies: true, ..work(name, set) }
}

const WORKS: [Work; 17] = [
    work("imported", |len| foreign(len, |tensor| Import::from_dlpack(tensor).map(drop).map_err(Error::from))),
    work("imported, of many axes", |_| {
        taken(Claims::new(&[1; 64]), |tensor| Import::from_dlpack(tensor).map(drop).map_err(Error::from))
    }),
    work("looked at", |len| foreign(len, |tensor| tensor.info().map(drop))),
    Work {
        usual: Some(ErrorKind::DType),
        ..work("refused", |len| foreign(len, |tensor| Array::<Lease<f64>>::from_dlpack(tensor).map(drop)))
    },
    work("leased", |len| foreign(len, |tensor| Array::<Lease<i16>>::from_dlpack(tensor).map(drop))),
    work("leased for writing", |len| {
        foreign(len, |tensor| Array::<LeaseMut<i16>>::from_dlpack(tensor)?.info().map(drop))
    }),
    work("shared, and handed on", |len| {
        foreign(len, |tensor| {
            let shared = Arc::new(Array::<SharedBuffer>::from_dlpack(tensor)?);
            shared.share_dlpack().map(drop)
        })
    }),
    copying("copied to a vector", |len| {
        foreign(len, |tensor| Array::<Vec<i16>>::from_dlpack(tensor).map(drop))
    }),
    copying("copied to a box", |len| {
        foreign(len, |tensor| Array::<Box<[i16]>>::from_dlpack(tensor).map(drop))
    }),
    copying("copied to a shared slice", |len| {
        foreign(len, |tensor| Array::<Arc<[i16]>>::from_dlpack(tensor).map(drop))
    }),
    copying("copied to a vector for sharing", |len| {
        foreign(len, |tensor| Array::<HostVec<i16>>::from_dlpack(tensor).map(drop))
    }),
    copying("read", |len| {
        foreign(len, |tensor| {
            let array = Array::<Lease<i16>>::from_dlpack(tensor)?;
            array.to_vec::<i16>().map(drop)
        })
    }),
    work("exported", |len| exported::<Versioned>(&[2, 1, 1, 1, 1, 1, len as i64])),
    work("exported in the legacy form", |len| exported::<Legacy>(&[len as i64])),
    work("described by an interface", |len| interface(len, None)),
    work("described by an interface with fields", |len| interface(len, Some(fields()))),
    copying("made", |len| {
        let run = move || {
            HostBuffer::zeroed(DType::I16, len)?;
            HostVec::<i16>::try_zeroed(len).map(drop)
        };
        Scene { released: Box::new(|| 1), run: Box::new(run) }
    }),
];

/// A foreign tensor with two axes, and the function that consumes it.
fn foreign(len: usize, take: fn(ManagedTensor<Versioned>) -> Result<(), Error>) -> Scene {
    taken(Claims { strides: Some(vec![1, 2]), ..Claims::new(&[2, len as i64 / 2]) }, take)
}

fn taken(claims: Claims, take: fn(ManagedTensor<Versioned>) -> Result<(), Error>) -> Scene {
    let (ledger, tensor): (Ledger, _) = claims.send();
    Scene { released: Box::new(move || ledger.released()), run: Box::new(move || take(tensor)) }
}

/// An export of this shape that is dropped again.
fn exported<A: interop_core::protocols::dlpack::TensorAbi>(shape: &[i64]) -> Scene {
    let info = RawDescriptor::new(0x1000, Device::CPU, shape).validate().expect("a legal array");
    let count = Count::default();
    let owner = Counted(count.clone(), [0_u64; 4]);
    // SAFETY: nothing is read at the address.
    let run =
        move || unsafe { export::<A, _>(&info, owner, Ownership::Owned) }.map(drop).map_err(Error::from);
    Scene { released: Box::new(move || count.get()), run: Box::new(run) }
}

/// An array that is imported and exported through the CUDA Array Interface.
fn interface(len: usize, descr: Option<Vec<DescrEntry>>) -> Scene {
    let interface = CudaArrayInterface {
        shape: vec![1, 1, 1, 1, 1, 1, len as i64],
        typestr: if descr.is_some() { "|V8" } else { "<f8" }.into(),
        data: (0x1000, false),
        version: 3,
        descr,
        ..CudaArrayInterface::default()
    };
    let count = Count::default();
    let owner = Counted(count.clone(), ());
    let run = move || {
        // SAFETY: nothing is read at the address.
        let import = unsafe { Import::from_cai_on_device(&interface, Device::cuda(0), owner) }?;
        CudaArrayInterface::try_from(import.info()).map(drop)
    };
    Scene { released: Box::new(move || count.get()), run: Box::new(run) }
}

fn fields() -> Vec<DescrEntry> {
    let field = |name: &str, dtype| DescrEntry { name: name.into(), dtype, shape: vec![2] };
    let inner = vec![field("inner", DescrType::Typestr("<i2".into()))];
    vec![field("outer", DescrType::Nested(inner))]
}

/// All larger allocations fail. Work that needs memory as large as the array returns an error, other work succeeds,
/// and the program continues.
#[test]
fn what_the_input_decides_is_an_error() {
    for Work { name, set, usual, copies } in WORKS {
        let Scene { released, run } = set(MANY);
        let (result, _) = failing(Fault::Above(SMALL), run);
        let expected = if copies { Some(ErrorKind::OutOfMemory) } else { usual };
        assert_eq!(result.as_ref().err().map(Error::kind), expected, "{name}: {result:?}");
        assert_eq!(released(), 1, "{name}");
    }
}

/// The environment variable that selects the work and the allocation that fails in a child process.
const INSIDE: &str = "INTEROP_NO_MEMORY";

/// One allocation after the other fails, each in its own process, because a failed small allocation aborts it.
#[test]
#[cfg_attr(miri, ignore = "starts processes, which Miri does not")]
fn every_allocation_fails_once() {
    if let Ok(chosen) = env::var(INSIDE) {
        return fail_once(&chosen);
    }
    let binary = env::current_exe().expect("the path of the test binary");
    for (number, Work { name, .. }) in WORKS.iter().enumerate() {
        let (mut errors, mut ends) = (0, 0);
        for step in 0.. {
            let chosen = format!("{number} {step}");
            let arguments = ["out_of_memory::every_allocation_fails_once", "--exact", "--nocapture"];
            let mut inner = Command::new(&binary);
            // A backtrace would take longer than everything else.
            inner.args(arguments).env(INSIDE, &chosen).env("RUST_BACKTRACE", "0");
            let output = inner.output().expect("the binary starts");
            let [said, complaint] =
                [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            let lost =
                complaint.split_once("memory allocation of ").and_then(|(_, rest)| rest.split_once(' '));
            match lost {
                _ if said.contains("an error, one release") => errors += 1,
                _ if said.contains("no more allocations") => break,
                Some((bytes, _)) => {
                    let bytes: usize = bytes.parse().expect("a number of bytes");
                    assert!(bytes <= SMALL, "{name}, allocation {step}: {bytes} bytes end the program");
                    ends += 1;
                }
                None => panic!("{name}, allocation {step}: {said}\n{complaint}"),
            }
        }
        println!("{name}: {errors} are errors, {ends} end the program");
        assert!(!WORKS[number].copies || errors > 0, "{name}: no allocation of the copy failed");
    }
}

/// The child's part of [`every_allocation_fails_once`].
fn fail_once(chosen: &str) {
    let (number, step) = chosen.split_once(' ').expect("two numbers");
    let (number, step): (usize, usize) = (number.parse().expect("a work"), step.parse().expect("a step"));
    let Work { set, usual, .. } = WORKS[number];
    let Scene { released, run } = set(8);
    let (result, left) = failing(Fault::After(step), run);
    let kind = result.as_ref().err().map(Error::kind);
    assert_eq!(released(), 1, "{result:?}");
    if left.is_some() {
        assert_eq!(kind, usual, "{result:?}");
        println!("no more allocations");
    } else {
        assert_eq!(kind, Some(ErrorKind::OutOfMemory), "{result:?}");
        println!("an error, one release");
    }
}
