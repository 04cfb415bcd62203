//! Shapes and strides: against brute force, and at the corners of the arithmetic.

mod corners;
mod properties;
mod slicing;
