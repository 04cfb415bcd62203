//! A stream that is not known is not one without work.

fn main() {
    let _ = interop_core::StreamHandle::default();
}
