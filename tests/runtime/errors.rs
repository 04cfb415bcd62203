//! Errors, and refusals that return the value.

use std::error::Error as _;
use std::sync::Arc;

use interop_core::arrays::Dims;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Error, ErrorKind, FromArray, Import, Kept, Lease, Refused};

use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::Claims;

/// A refusal displays its error and implements `Error`; the value is inside.
#[test]
fn a_refusal_is_an_error_with_a_value() {
    let error = Error::new(ErrorKind::Rank, "shape", "3 axes", "2 axes");
    let count = Count::default();
    let refused = Refused { value: Box::new(Counted(count.clone(), ())), error: error.clone() };
    assert_eq!(refused.to_string(), "`shape`: found 3 axes, allowed: 2 axes");
    assert_eq!(format!("{refused:?}"), format!("Refused({error})"));
    assert!(refused.source().is_none(), "the message says it all, once");
    assert_eq!(count.get(), 0);
    assert_eq!((Error::from(refused), count.get()), (error, 1));
}

/// With `?` the refused value is released immediately.
#[test]
fn a_question_mark_releases() {
    fn wanted(import: Import) -> interop_core::Result<Array<Lease<f32>>> {
        Ok(Array::from_import(import)?)
    }
    let (ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    let error = wanted(Import::from_dlpack(tensor).unwrap()).unwrap_err();
    assert_eq!((error.kind(), ledger.released()), (ErrorKind::DType, 1));
}

/// Returns the message for an array of `int16`.
fn refused<A: FromArray>() -> String {
    let (_ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    let by_import = A::from_import(Import::from_dlpack(tensor).unwrap()).err().unwrap().error;
    let (_ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    assert_eq!(A::from_dlpack(tensor).err().as_ref(), Some(&by_import));
    by_import.to_string()
}

/// The error of an import names the struct, so that it tells several arguments apart; also within a wrapper.
#[test]
fn an_import_that_does_not_fit_names_the_struct() {
    let message = "`Array`: `dtype`: found int16, allowed: float32";
    assert_eq!(refused::<Array<Lease<f32>>>(), message);
    assert_eq!(refused::<Kept<Array<Lease<f32>>>>(), message);
    assert_eq!(refused::<Arc<Array<Lease<f32>>>>(), message);
}

/// The path of such a struct begins with the type of the method, which has parameters of its own.
#[test]
fn a_struct_in_a_method_has_its_own_name() {
    struct Reader<T>(T);
    impl<T> Reader<T> {
        fn message() -> String {
            #[derive(CudaArray)]
            #[cuda_array(shape = [len])]
            struct Samples<S> {
                #[cuda_array(data)]
                values: S,
                len: usize,
            }
            refused::<Samples<Lease<f32>>>()
        }
    }
    impl<T> From<Reader<T>> for String {
        fn from(_: Reader<T>) -> Self {
            #[derive(CudaArray)]
            #[cuda_array(shape = [len])]
            struct Pair {
                #[cuda_array(data)]
                values: Lease<f32>,
                len: usize,
            }
            refused::<Pair>()
        }
    }
    let message = ": `dtype`: found int16, allowed: float32";
    assert_eq!(Reader::<u8>::message(), format!("`Samples`{message}"));
    assert_eq!(String::from(Reader([0_u8])), format!("`Pair`{message}"));
}

/// Errors can be compared by all their parts and sent between threads.
#[test]
fn errors_are_values() {
    fn portable<T: Send + Sync + 'static>(_: &T) {}
    let error = |found: &str| Error::new(ErrorKind::Shape, "shape[0]", found, "0 or greater");
    portable(&error("-1"));
    assert_eq!(error("-1"), error("-1"));
    assert_ne!(error("-1"), error("-2"));
    assert_ne!(error("-1"), error("-1").with_origin("torch.Tensor"));
    assert_eq!(
        (error("-1").origin(), error("-1").found(), error("-1").allowed()),
        (None, "-1", "0 or greater")
    );
}

/// Lists of extents dereference to slices, whether they are stored in place or not.
#[test]
fn lists_are_slices() {
    for len in [0, 1, 5, 6, 7, 64] {
        let numbers: Vec<usize> = (0..len).collect();
        let mut dims = Dims::from(&numbers[..]);
        assert_eq!((&*dims, dims.len(), format!("{dims:?}")), (&numbers[..], len, format!("{numbers:?}")));
        assert_eq!(AsRef::<[usize]>::as_ref(&dims), numbers);
        let before = dims.clone();
        assert_eq!(dims, before);
        dims.iter_mut().for_each(|number| *number += 1);
        assert!(dims.iter().copied().eq(1..=len));
        assert_eq!(dims == before, len == 0);
    }
}
