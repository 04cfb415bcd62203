//! `pinned [ELEMENTS]`: runs `interop_cuda_examples::pinned`.

use interop_cuda_examples::{argument, pinned, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| pinned::run(argument(1 << 20)))
}
