//! See `interop_cuda_examples::two_streams`; the number on the command line is how large or slow.

use interop_cuda_examples::{argument, show, two_streams};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| two_streams::run(1 << 16, 100, argument(2_000_000) as u64))
}
