//! `vector_add [ELEMENTS]`: runs `interop_cuda_examples::vector_add`.

use interop_cuda_examples::{argument, show, vector_add};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| vector_add::run(argument(1 << 20)))
}
