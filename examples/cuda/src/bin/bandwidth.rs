//! `bandwidth [ELEMENTS]`: runs `interop_cuda_examples::bandwidth`.

use interop_cuda_examples::{argument, bandwidth, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| bandwidth::run(argument(1 << 28)))
}
