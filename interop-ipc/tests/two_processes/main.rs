//! Arrays between two real processes: what arrives, what is refused, and what is left when one of them ends at any step.

#![expect(unsafe_code, reason = "forks, and reads memory that another process has written")]
#![cfg(target_os = "linux")]

mod arrays;
mod ends;
mod forks;
mod hostile_office;
mod hostile_visitor;
mod kills;
mod limits;
mod long;
mod offers;
mod other;
#[path = "../../../tests/support/other_process.rs"]
mod other_process;
mod travel;
