//! Typed views: what they show, what they refuse, and who may have them at the same time.

mod borrows;
mod cells;
mod loops;
mod parallel;
mod reading;
mod slices;
mod writing;
