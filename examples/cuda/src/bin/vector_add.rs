//! See `interop_cuda_examples::vector_add`; the number on the command line is how large or slow.

use interop_cuda_examples::{argument, show, vector_add};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| vector_add::run(argument(1 << 20)))
}
