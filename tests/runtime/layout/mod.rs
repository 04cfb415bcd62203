//! Shapes and strides: against brute force, and at the corners of the arithmetic.

mod edge_cases;
mod properties;
mod slicing;
