//! Writes the seeds into a folder, one folder for each target: `cargo run -p interop-fuzz --example seeds -- FOLDER`.

use std::fs;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder to write to"));
    let seeds = interop_fuzz::seeds::all();
    for (target, id, bytes) in &seeds {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(id), bytes)?;
    }
    println!("{} seeds", seeds.len());
    Ok(())
}
