//! Kernel views: which arrays can become one, their contents, and that C++ reads the same elements.

mod elementwise;
mod header;
mod values;
