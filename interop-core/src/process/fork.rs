//! Per-process values: after a fork the child makes its own locks and caches.
//!
//! A forked child has one thread. A lock that another thread held stays locked in the child, and its data may be half
//! changed. So every lock of this crate lives in a [`PerProcess`] together with its data.
//!
//! A `pthread_atfork` handler counts the forks. A child that was made by the bare system call is not counted; the
//! `atfork` handlers of other libraries miss it too.
#![expect(unsafe_code, reason = "registers a fork handler and dereferences a pointer to a leaked box")]

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What is known of this process.
struct Process {
    /// One more than the number of forks since the first call of [`generation`]; 0 before that call.
    generation: AtomicUsize,
    /// The thread that made this process by a fork.
    forked_by: AtomicUsize,
    /// The number of threads that have asked for their [number](thread_number).
    threads: AtomicUsize,
}

static PROCESS: Process =
    Process { generation: AtomicUsize::new(0), forked_by: AtomicUsize::new(0), threads: AtomicUsize::new(0) };

/// A number that differs from that of every process this one was forked from. Never 0.
#[inline]
pub(crate) fn generation() -> usize {
    match PROCESS.generation.load(Ordering::Relaxed) {
        0 => first_generation(),
        generation => generation,
    }
}

#[cold]
fn first_generation() -> usize {
    // No lock is needed: if two threads register at once, a fork counts twice, which does no harm.
    system::register(in_child);
    match PROCESS.generation.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => 1,
        Err(generation) => generation,
    }
}

/// Runs in the child before anything else. It does only what a signal handler may do.
extern "C" fn in_child() {
    PROCESS.forked_by.store(this_thread(), Ordering::Relaxed);
    PROCESS.generation.fetch_add(1, Ordering::Relaxed);
}

/// The [identifier](this_thread) of the thread that made this process by a fork. It is the same in parent and child.
pub(crate) fn forked_by() -> usize {
    PROCESS.forked_by.load(Ordering::Relaxed)
}

/// Whether this process was forked from one that had called [`generation`].
#[cfg(feature = "rayon")]
pub(crate) fn is_forked() -> bool {
    generation() > 1
}

/// An identifier that no other live thread of the process has, but for one that is ending where there are no forks. A fork handler
/// may ask for it.
#[inline]
pub(crate) fn this_thread() -> usize {
    system::this_thread()
}

/// The number of this thread: 0 for the first that asks, 1 for the next. A thread that is ending may get 0.
#[inline]
pub(crate) fn thread_number() -> usize {
    thread_local!(static NUMBER: usize = PROCESS.threads.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

#[cfg(all(unix, not(miri)))]
mod system {
    use core::ffi::c_int;

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
        // `pthread_t` is an integer or a pointer, which are returned alike.
        fn pthread_self() -> usize;
    }

    pub(crate) fn register(in_child: extern "C" fn()) {
        // SAFETY: the handler does only what a signal handler may do. It stays loaded while it is registered, because
        // unloading a library removes its handlers.
        let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
        // Registration fails only when a few bytes cannot be allocated. Forks are then not noticed.
        debug_assert_eq!(failed, 0, "no memory");
    }

    #[inline]
    pub(crate) fn this_thread() -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { pthread_self() }
    }
}

/// These platforms have no forks.
#[cfg(not(all(unix, not(miri))))]
mod system {
    pub(crate) fn register(_: extern "C" fn()) {}

    pub(crate) fn this_thread() -> usize {
        // Even, as an address is, and no handle of a default stream.
        2 * super::thread_number() + 4
    }
}

/// A value that each process makes for itself on first use.
///
/// The parent's value stays in memory and is not dropped, because a parent thread may have been using it at the fork.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<Instance<T>>,
    /// The generation of the process whose thread makes or made the value.
    maker: AtomicUsize,
    make: fn(Option<&'static T>) -> T,
}

struct Instance<T> {
    generation: usize,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    /// `make` runs once in each process and receives the parent's value. It must not fail, and may only try the
    /// parent's locks.
    #[must_use]
    pub const fn new(make: fn(Option<&'static T>) -> T) -> Self {
        Self { current: AtomicPtr::new(null_mut()), maker: AtomicUsize::new(0), make }
    }

    /// The value of this process.
    #[inline]
    pub fn get(&self) -> &'static T {
        match self.instance() {
            Some(instance) if instance.generation == PROCESS.generation.load(Ordering::Relaxed) => {
                &instance.value
            }
            _ => self.make(),
        }
    }

    #[inline]
    fn instance(&self) -> Option<&'static Instance<T>> {
        // SAFETY: the pointer is null or a leaked box, which is never freed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make(&self) -> &'static T {
        let generation = generation();
        loop {
            let instance = self.instance();
            if let Some(instance) = instance.filter(|instance| instance.generation == generation) {
                return &instance.value;
            }
            // One thread of this process makes the value; the others wait for it. A claim by a thread of the parent
            // does not count.
            let maker = self.maker.load(Ordering::Relaxed);
            let claimed = || {
                self.maker.compare_exchange(maker, generation, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            };
            if maker != generation && claimed() {
                let value = (self.make)(instance.map(|instance| &instance.value));
                let instance: &'static Instance<T> = Box::leak(Box::new(Instance { generation, value }));
                self.current.store(from_ref(instance).cast_mut(), Ordering::Release);
                return &instance.value;
            }
            std::thread::yield_now();
        }
    }
}

/// Helpers for tests with forks.
#[cfg(all(test, unix, not(miri)))]
pub(crate) mod child {
    use core::ffi::c_int;
    use core::ffi::c_uint;
    use std::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    unsafe extern "C" {
        fn fork() -> c_int;
        fn alarm(seconds: c_uint) -> c_uint;
        fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(status: c_int) -> !;
    }

    /// Runs `run` in a forked child. Returns whether the child ended without a panic within 20 seconds.
    pub(crate) fn in_a_child(run: impl FnOnce()) -> bool {
        // SAFETY: the child runs only the test and exits.
        let child = unsafe { fork() };
        if child == 0 {
            // SAFETY: the function has no preconditions. The alarm ends a child that would wait for ever.
            unsafe { alarm(20) };
            let done = catch_unwind(AssertUnwindSafe(run));
            // SAFETY: the function has no preconditions.
            unsafe { _exit(c_int::from(done.is_err())) };
        }
        let mut status = -1;
        // SAFETY: `child` is the child's number, and `status` is valid for a write.
        let ended = unsafe { waitpid(child, &raw mut status, 0) };
        child > 0 && ended == child && status == 0
    }
}

#[cfg(all(unix, not(miri)))]
#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;
    use crate::process::fork::child::in_a_child;

    #[test]
    fn each_process_makes_its_own_once() {
        static COUNT: PerProcess<AtomicUsize> = PerProcess::new(|before| {
            AtomicUsize::new(before.map_or(1, |before| before.load(Ordering::Relaxed) + 10))
        });
        let count = || COUNT.get().fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
        assert_eq!(count(), 5);
        let parent = generation();
        let in_the_grandchild = || assert_eq!((count(), forked_by()), (27, this_thread()));
        let in_the_child = || {
            assert!(generation() > parent && count() == 16 && in_a_child(in_the_grandchild));
        };
        assert!(in_a_child(in_the_child));
        assert_eq!((count(), generation()), (6, parent));
    }

    #[test]
    fn a_lock_held_by_the_parent_does_not_block_the_child() {
        static LOCK: PerProcess<Mutex<u8>> = PerProcess::new(|_| Mutex::new(0));
        let _held = LOCK.get().lock().unwrap();
        let lock = || drop(LOCK.get().lock().unwrap());
        assert!(in_a_child(|| thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(lock))))));
    }
}
