//! Prints the public items of a crate, a line each, from the JSON that rustdoc wrote about it.
//!
//! Implementations that follow from others, or that the compiler decides about (`Send`, `Unpin`), are left out; derived ones are
//! not, because users rely on a `Clone`.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let json = env::args_os().nth(1).map(PathBuf::from).ok_or("the JSON file of rustdoc is missing")?;
    let api =
        public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).omit_auto_trait_impls(true);
    print!("{}", api.build()?);
    Ok(())
}
