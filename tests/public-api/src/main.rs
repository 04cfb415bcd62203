//! Prints the public items of a crate, a line each, from the JSON that rustdoc wrote about it.
//!
//! Implementations that follow from others are left out; derived ones are not, because users rely on a `Clone`. Of what the
//! compiler decides about, `Send` and `Sync` are there: a private field takes them away, and no line of ours would change.

use std::env;
use std::error::Error;
use std::path::PathBuf;

/// What the compiler decides about besides, in implementations.
const OTHER_AUTO: [&str; 5] = [
    "core::marker::Freeze for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

fn main() -> Result<(), Box<dyn Error>> {
    let json = env::args_os().nth(1).map(PathBuf::from).ok_or("the JSON file of rustdoc is missing")?;
    let api = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).build()?;
    for item in api.items() {
        let line = item.to_string();
        if !OTHER_AUTO.iter().any(|of| line.contains(of)) {
            println!("{line}");
        }
    }
    Ok(())
}
