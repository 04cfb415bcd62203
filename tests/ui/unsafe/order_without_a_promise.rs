//! The promise cannot be written down.
use interop_core::cuda::{MissingStreamPolicy, OrderedByProgram, set_missing_stream_policy};

fn main() {
    set_missing_stream_policy(MissingStreamPolicy::NothingPending(OrderedByProgram(())));
}
