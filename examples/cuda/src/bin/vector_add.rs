//! See `interop_cuda_examples::vector_add`; the number on the command line is how large or slow.

use interop_cuda_examples::{argument, vector_add, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| vector_add::run(argument(1 << 20)))
}
