//! What arrives has one taker, whatever a struct asks for: behind a second one nobody would keep the memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::__private::Extraction;
use interop_core::dlpack::Versioned;
use interop_core::{ErrorKind, FromArray, Import, Lease, Owner, Result};

use crate::support::assert_told;
use crate::support::foreign_tensors::Claims;

/// A part of what arrives; the derive asks for one that takes the memory, and for that last.
type Ask = fn(&mut Extraction<'_>) -> Option<Box<dyn Send>>;

const STORAGE: Ask = |arrival| Some(Box::new(arrival.storage::<Lease<i16>>()?));
const OWNER: Ask = |arrival| Some(Box::new(arrival.owner::<Owner>()?));

/// A struct that asks for two parts.
struct Two<const FIRST: bool, const SECOND: bool>([Box<dyn Send>; 2]);

const fn ask(owner: bool) -> Ask {
    if owner { OWNER } else { STORAGE }
}

impl<const FIRST: bool, const SECOND: bool> FromArray for Two<FIRST, SECOND> {
    fn assemble(arrival: &mut Extraction<'_>) -> Result<Self> {
        let Some(first) = ask(FIRST)(arrival) else { return arrival.refused() };
        let Some(second) = ask(SECOND)(arrival) else { return arrival.refused() };
        Ok(Self([first, second]))
    }
}

fn refuses<const FIRST: bool, const SECOND: bool>() {
    let told = (
        ErrorKind::Unsupported,
        "import",
        "memory that another field has taken",
        "one field that takes the memory",
    );
    let (ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    assert_told(&Two::<FIRST, SECOND>::from_dlpack(tensor).map(|two| two.0.len()).unwrap_err(), told);
    assert_eq!(ledger.released(), 1);
    // Here the import should come back with the error, and there is none any more.
    let (ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    let import = Import::from_dlpack(tensor).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| Two::<FIRST, SECOND>::from_import(import).is_ok())).is_err());
    assert_eq!(ledger.released(), 1);
}

#[test]
fn memory_is_taken_once() {
    refuses::<false, false>();
    refuses::<false, true>();
    refuses::<true, false>();
    refuses::<true, true>();
}
