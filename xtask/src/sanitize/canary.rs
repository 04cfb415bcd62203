//! A program with a fault of each kind that `cargo xtask sanitize` looks for. It shows that the fault is found: a
//! checker that is not active finds nothing either. `rustc` compiles it separately; it is not a module of `xtask`.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::thread;

/// A number that threads write without synchronization.
static mut SHARED: u64 = 0;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("none") => {}
        Some("use-after-free") => use_after_free(),
        Some("leak") => leak(),
        Some("race") => race(),
        Some("narrow") => narrow(),
        other => panic!("there is no fault {other:?}"),
    }
}

fn use_after_free() {
    let layout = Layout::new::<u64>();
    unsafe {
        let freed = black_box(alloc(layout));
        dealloc(freed, layout);
        black_box(freed.read());
    }
}

fn leak() {
    // In a thread that ends, so that no register or stack slot holds the address when leaks are searched.
    let thread = thread::spawn(|| {
        for number in 0..16_u64 {
            black_box(Box::leak(Box::new(number)));
        }
    });
    thread.join().expect("the thread only allocates");
}

/// Reads the second of two numbers through a pointer that was made from a reference to the first.
fn narrow() {
    let mut two = [1_u64, 2];
    let first: *mut u64 = &mut two[0];
    black_box(unsafe { first.wrapping_add(1).read() });
}

fn race() {
    let write = || {
        for number in 0..1000 {
            unsafe { (&raw mut SHARED).write(black_box(number)) };
        }
    };
    let other = thread::spawn(write);
    write();
    other.join().expect("the thread only writes");
}
