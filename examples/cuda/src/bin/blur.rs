//! `blur [HEIGHT]`: runs `interop_cuda_examples::blur`.

use interop_cuda_examples::{argument, blur, show};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    show(|| blur::run(argument(1080), 1920))
}
