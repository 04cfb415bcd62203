//! What the runtime tests share: fake producers and memory, an allocator that keeps a tally, and brute force.

pub(crate) mod allocator;
pub(crate) mod arrays;
pub(crate) mod brute;
pub(crate) mod compiler;
pub(crate) mod foreign;
pub(crate) mod owners;

use std::env;
use std::process::Command;

use interop_core::{Error, ErrorKind};

/// What an error has to say: its kind and place, and words of what was found and what is allowed.
pub(crate) type Told = (ErrorKind, &'static str, &'static str, &'static str);

/// Compares an error with what it has to say.
#[track_caller]
pub(crate) fn assert_told(error: &Error, told: (ErrorKind, &str, &str, &str)) {
    let (kind, place, found, allowed) = told;
    assert_eq!((error.kind(), error.place()), (kind, place), "{error}");
    assert!(error.found().contains(found), "no {found:?} in what was found: {error}");
    // What is allowed, and what the author of the code is advised to do.
    let text = error.to_string();
    let (_, rest) = text.split_once(", allowed: ").unwrap_or_default();
    assert!(rest.contains(allowed), "no {allowed:?} in what is allowed: {error}");
}

/// Runs `test` in a process of its own, where nothing else changes the counters of the crate: the test of this name
/// starts its own binary again, with the name as the only one to run. Miri starts no processes and runs one test at a
/// time.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    const INSIDE: &str = "INTEROP_RUNTIME_ALONE";
    if cfg!(miri) || env::var_os(INSIDE).is_some() {
        return test();
    }
    let binary = env::current_exe().expect("the path of the test binary");
    let arguments = [name, "--exact", "--test-threads=1"];
    let output = Command::new(binary).args(arguments).env(INSIDE, "1").output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "no test is called {name}: {said}");
}

/// A number of elements or bytes as the protocols count it.
pub(crate) fn signed<T: TryInto<S>, S>(number: T) -> S
where
    T::Error: std::fmt::Debug,
{
    number.try_into().expect("a number of a test fits")
}
