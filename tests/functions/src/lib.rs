//! Functions for the tests of `interop-tvm-ffi`: those of the project `hello-functions`, and one for each kind of arguments
//! and results.

mod arguments;
#[expect(unsafe_code, reason = "names its PTX")]
#[expect(clippy::needless_pass_by_value, reason = "a function takes its arguments")]
#[path = "../../../examples/hello-functions/src/lib.rs"]
mod hello_functions;
mod names;
mod operators;
#[cfg(target_os = "linux")]
mod simulated;
