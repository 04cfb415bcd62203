//! What orders nothing needs a promise of the program.
use interop_core::cuda::{OrderedByProgram, ReleasePolicy, set_release_policy};

fn main() {
    set_release_policy(ReleasePolicy::Immediate(OrderedByProgram::promise()));
}
