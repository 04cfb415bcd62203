//! The promise cannot be written down, and a stream that is not known is not one without work.
use interop_core::StreamHandle;
use interop_core::cuda::{MissingStreamPolicy, OrderedByProgram, set_missing_stream_policy};

fn main() {
    set_missing_stream_policy(MissingStreamPolicy::NothingPending(OrderedByProgram(())));
    let _ = StreamHandle::default();
}
