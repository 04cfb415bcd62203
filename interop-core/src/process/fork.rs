//! What a process that was forked does not take over from its parent: locks, and whatever other threads were at.
//!
//! A child has one thread, the one that forked. A lock that another thread had is never given back there, and what it guards may
//! be half changed. So each lock of this crate is in a [`PerProcess`], with what it guards, and a child makes its own.
//!
//! A handler of `pthread_atfork` counts the forks. Who makes a child by the bare system call goes past it, as past the handlers
//! of every library.
#![expect(
    unsafe_code,
    reason = "registers a handler for forks, and follows a pointer to what is never freed"
)]

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// How many forks there are between this process and the one that first asked, and one more; 0 before anybody has asked.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// The thread that made this process by a fork.
static FORKED_BY: AtomicUsize = AtomicUsize::new(0);

/// A number that this process has, and none that it was forked from. Never 0.
#[inline]
pub(crate) fn generation() -> usize {
    match GENERATION.load(Ordering::Relaxed) {
        0 => first_generation(),
        generation => generation,
    }
}

#[cold]
fn first_generation() -> usize {
    // Without a lock. Where two threads come here at once, forks are counted twice, which is as good.
    system::register(in_child);
    match GENERATION.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => 1,
        Err(generation) => generation,
    }
}

/// Runs in the child before anything else. Only what a signal handler may do.
extern "C" fn in_child() {
    FORKED_BY.store(this_thread(), Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The [number](this_thread) of the thread that made this process by a fork, which is the same there.
pub(crate) fn forked_by() -> usize {
    FORKED_BY.load(Ordering::Relaxed)
}

/// A number that no other thread of the process has at the time, for less than the standard library's costs.
#[inline]
pub(crate) fn this_thread() -> usize {
    system::this_thread()
}

#[cfg(all(unix, not(miri)))]
mod system {
    use core::ffi::c_int;

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
        // An integer or a pointer, which are returned alike.
        fn pthread_self() -> usize;
    }

    pub(crate) fn register(in_child: extern "C" fn()) {
        // SAFETY: the handler does what a signal handler may do, and stays loaded as long as it is registered: to unload a
        // library takes its handlers away, where the system unloads libraries with threads' variables at all.
        let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
        // It takes a few bytes. Without them forks are not noticed.
        debug_assert_eq!(failed, 0, "no memory");
    }

    #[inline]
    pub(crate) fn this_thread() -> usize {
        // SAFETY: no conditions.
        unsafe { pthread_self() }
    }
}

/// There are no forks.
#[cfg(not(all(unix, not(miri))))]
mod system {
    pub(crate) fn register(_: extern "C" fn()) {}

    pub(crate) fn this_thread() -> usize {
        thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| core::ptr::from_ref(place).addr())
    }
}

/// A value that each process has for itself, made when it is first used.
///
/// What the parent had stays where it is and is not dropped: whoever was at it when the process was forked may go on.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Made<T>>,
    /// The process in which it is made, or was.
    maker: AtomicUsize,
    make: fn(Option<&'static T>) -> T,
}

struct Made<T> {
    generation: usize,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    /// `make` is called once in each process, with what the parent had. It cannot fail, and locks of the parent's are only tried.
    pub(crate) const fn new(make: fn(Option<&'static T>) -> T) -> Self {
        Self { current: AtomicPtr::new(null_mut()), maker: AtomicUsize::new(0), make }
    }

    /// This process's own.
    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        match self.made() {
            Some(made) if made.generation == GENERATION.load(Ordering::Relaxed) => &made.value,
            _ => self.make(),
        }
    }

    #[inline]
    fn made(&self) -> Option<&'static Made<T>> {
        // SAFETY: null, or a box that was leaked.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make(&self) -> &'static T {
        let generation = generation();
        loop {
            let made = self.made();
            if let Some(made) = made.filter(|made| made.generation == generation) {
                return &made.value;
            }
            // One thread makes it, for which the others wait: a thread of this process, whatever the parent's were at.
            let maker = self.maker.load(Ordering::Relaxed);
            let claimed = || {
                self.maker.compare_exchange(maker, generation, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            };
            if maker != generation && claimed() {
                let value = (self.make)(made.map(|made| &made.value));
                let made: &'static Made<T> = Box::leak(Box::new(Made { generation, value }));
                self.current.store(from_ref(made).cast_mut(), Ordering::Release);
                return &made.value;
            }
            std::thread::yield_now();
        }
    }
}

/// What tests do with forks.
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

    /// Runs `run` in a process that is forked here, and says whether it went well and came to an end.
    pub(crate) fn in_a_child(run: impl FnOnce()) -> bool {
        // SAFETY: the child runs what is to be tested, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            // SAFETY: no conditions. It ends a child that waits for ever.
            unsafe { alarm(20) };
            let done = catch_unwind(AssertUnwindSafe(run));
            // SAFETY: no conditions.
            unsafe { _exit(c_int::from(done.is_err())) };
        }
        let mut status = -1;
        // SAFETY: the child's number, and a place for its status.
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
        let own = generation();
        let in_the_grandchild = || assert_eq!((count(), forked_by()), (27, this_thread()));
        let in_the_child = || {
            assert!(generation() > own && count() == 16 && in_a_child(in_the_grandchild));
        };
        assert!(in_a_child(in_the_child));
        assert_eq!((count(), generation()), (6, own));
    }

    #[test]
    fn a_lock_of_the_parents_keeps_nobody_waiting() {
        static LOCK: PerProcess<Mutex<u8>> = PerProcess::new(|_| Mutex::new(0));
        let _held = LOCK.get().lock().unwrap();
        let lock = || drop(LOCK.get().lock().unwrap());
        assert!(in_a_child(|| thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(lock))))));
    }
}
