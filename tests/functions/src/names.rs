//! Functions and parameters with names that the expansion of `export!` uses or could use, beside macros and types of such names.
#![forbid(unsafe_code)]
#![expect(
    unused_macros,
    non_camel_case_types,
    dead_code,
    reason = "names of a crate's own that nothing here uses"
)]

macro_rules! concat {
    ($($any:tt)*) => {
        compile_error!("the crate's own macro")
    };
}

macro_rules! stringify {
    ($($any:tt)*) => {
        compile_error!("the crate's own macro")
    };
}

struct i32;
struct Result;
struct Ok;
mod core {}
mod interop_tvm_ffi {}

fn entry(arguments: i64, count: i64) -> i64 {
    arguments - count
}

fn function(function: i64, lent_for_the_call: i64) -> i64 {
    function - lent_for_the_call
}

fn r#type(r#in: i64) -> i64 {
    2 * r#in
}

::interop_tvm_ffi::export! {
    entry(arguments, count);
    function(function, lent_for_the_call);
    r#type(r#in);
}
