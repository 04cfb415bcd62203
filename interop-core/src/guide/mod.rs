// Modules without code: the pages are Markdown files, compiled as tests and shown by `cargo doc`.
//
// Their links are reference links to other files, for readers of the repository. `links.md` has the same references to modules and
// stands before each page: the first definition of a reference wins.
#![doc = include_str!("links.md")]
#![doc = include_str!("README.md")]

/// Declares pages. As a test, a page is compiled only with the features that its examples need.
macro_rules! pages {
    ($($page:ident, $file:literal $(, $feature:literal)*;)+) => {
        $(
            #[cfg(any(not(doctest), all($(feature = $feature),*)))]
            #[doc = include_str!("links.md")]
            #[doc = include_str!($file)]
            pub mod $page {}
        )+
    };
}

pages! {
    quick_start, "quick_start.md";
    python_extension, "python_extension.md", "python";
    memory, "memory.md", "ndarray";
    elements, "elements.md", "rayon";
    streams, "streams.md", "cudarc";
    kernels, "kernels.md", "cudarc";
    cudarc, "cudarc.md", "cudarc";
    several_arrays, "several_arrays.md", "python";
    core_crate, "core_crate.md", "python";
    many_processes, "many_processes.md";
    testing, "testing.md";
    from_handwritten_class, "from_handwritten_class.md", "python";
    from_rust_numpy, "from_rust_numpy.md", "python", "ndarray";
    from_dlpark, "from_dlpark.md", "python";
    from_cudarc_capsules, "from_cudarc_capsules.md", "python", "cudarc";
    checked, "checked.md";
    troubleshooting, "troubleshooting.md", "python";
    glossary, "glossary.md";
}
