//! See `interop_cuda_examples::bandwidth`; the number on the command line is how large or slow.

use interop_cuda_examples::{argument, bandwidth, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| bandwidth::run(argument(1 << 28)))
}
