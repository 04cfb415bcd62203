//! Shapes and strides: compared with brute force, and edge cases of the arithmetic.

mod edge_cases;
mod properties;
mod slicing;
