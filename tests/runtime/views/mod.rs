//! Typed views: their contents, the arrays that are refused, and concurrent borrows.

mod borrows;
mod broadcast;
mod cells;
mod loops;
mod parallel;
mod reading;
mod slices;
mod writing;
