//! The guide: a page for each task, in the order in which a new user meets them.
//!
//! 1. [Quick start in Rust](quick_start): a struct, an export, an import, safe loops over elements, and a program for a GPU.
//! 2. [A Python extension](python_extension), from an empty folder; also from rust-numpy, or from a class with its own
//!    `__dlpack__`, and beside a core crate without Python.
//! 3. [Who owns the memory](memory): storages, leases, who may write, several arrays in one struct, cudarc and cuda-core.
//! 4. [Streams and release](streams): when work on a GPU starts, and when memory is freed.
//! 5. [Write a kernel](kernels): two tensors in, a kernel in Rust or in C++, a new tensor out; tests without a GPU.
//! 6. [Test without a GPU](testing): the simulated driver, and a corpus of broken arrays to try on your code.
//! 7. [What is checked, what is trusted](checked): which mistakes become errors, what holds after one, and which rest on a promise.
//! 8. [Troubleshooting](troubleshooting): messages, their causes and their cures.
//!
//! The keywords of `#[cuda_array(...)]` are in the [manual of the derive](derive@crate::CudaArray).
// Modules without code: the pages are Markdown files, compiled as tests and shown by `cargo doc`.
//
// Their links are reference links to other files, for readers of the repository. `links.txt` has the same references to modules and
// stands before each page: the first definition of a reference wins.

/// Declares pages. As a test, a page is compiled only with the features that its examples need.
macro_rules! pages {
    ($($page:ident, $file:literal $(, $feature:literal)*;)+) => {
        $(
            #[cfg(any(not(doctest), all($(feature = $feature),*)))]
            #[doc = include_str!("links.txt")]
            #[doc = include_str!($file)]
            pub mod $page {}
        )+
    };
}

pages! {
    quick_start, "quick_start.md";
    python_extension, "python_extension.md", "python";
    memory, "memory.md";
    streams, "streams.md", "cudarc";
    kernels, "kernels.md", "python", "cudarc";
    testing, "testing.md";
    checked, "checked.md";
    troubleshooting, "troubleshooting.md", "python";
}
