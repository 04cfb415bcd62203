//! `two_streams [CYCLES]`: runs `interop_cuda_examples::two_streams`.

use interop_cuda_examples::{argument, show, two_streams};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| two_streams::run(1 << 16, 100, argument(2_000_000) as u64))
}
