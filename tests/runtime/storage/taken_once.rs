//! The memory of an import is taken by one part of a struct: nothing would keep it alive for a second one.
#![expect(unsafe_code, reason = "takes memory as expanded code does")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::__private::Extraction;
use interop_core::dlpack::Versioned;
use interop_core::{ErrorKind, FromArray, Import, Lease, Result};

use crate::support::assert_told;
use crate::support::foreign_tensors::Claims;

/// Takes one part of an import. The derive takes the memory last and once.
type Ask = fn(&mut Extraction<'_>) -> Option<Box<dyn Send>>;

// SAFETY: the imports here own their memory.
const STORAGE: Ask = |arrival| Some(Box::new(unsafe { arrival.storage::<Lease<i16>>() }?));
const OWNER: Ask = |arrival| Some(Box::new(arrival.owner()?));

/// A struct that takes two parts.
struct Two<const FIRST: bool, const SECOND: bool>([Box<dyn Send>; 2]);

const fn ask(owner: bool) -> Ask {
    if owner { OWNER } else { STORAGE }
}

impl<const FIRST: bool, const SECOND: bool> FromArray for Two<FIRST, SECOND> {
    unsafe fn assemble(arrival: &mut Extraction<'_>) -> Result<Self> {
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
    // The import should be returned with the error, but it has been consumed.
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
