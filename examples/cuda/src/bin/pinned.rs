//! See `interop_cuda_examples::pinned`; the number on the command line is how large or slow.

use interop_cuda_examples::{argument, pinned, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| pinned::run(argument(1 << 20)))
}
