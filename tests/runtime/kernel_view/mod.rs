//! Views as kernels take them: which arrays become one, what is in it, and that C++ reads the same elements.

mod elementwise;
mod header;
mod values;
