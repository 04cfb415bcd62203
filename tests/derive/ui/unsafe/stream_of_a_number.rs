//! A number is not a stream: the driver ends the process over one that is none.
use interop_core::StreamHandle;

fn main() {
    let _ = StreamHandle::from_raw(0x1234);
}
