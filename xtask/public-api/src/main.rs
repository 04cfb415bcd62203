//! Prints the public items of a crate, one per line, from the JSON output of rustdoc.
//!
//! Blanket implementations are left out. Derived ones are included, because users rely on a `Clone`. Of the auto
//! traits, `Send` and `Sync` are included, because a private field can remove them without any other visible change.

use std::env;
use std::error::Error;
use std::path::PathBuf;

/// The other auto traits that rustdoc lists.
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
