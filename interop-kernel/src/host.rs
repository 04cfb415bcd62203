//! Runs of kernels on the CPU, without a GPU.
#![expect(unsafe_code, reason = "each thread of a launch gets the same arguments")]

use core::cell::Cell;
use core::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::ptr;
use std::thread;

use crate::LaunchSize;
pub use crate::host_launch::launch;
pub use crate::kernel::Memory;
use crate::kernel::{Kernel, Parameters};
use crate::launch_size::is_team;
use crate::layout::Layout;
use crate::place::{Gate, Guard, Place, is_consequence};
use crate::thread::Thread;
use crate::thread::sealed::FirstParameter as _;

/// The parameters of a launch, which each thread gets.
pub(crate) struct Shared<P>(ManuallyDrop<P>);

// SAFETY: parameters are plain numbers, and pointers to elements, which are `Send` and `Sync`. No two threads write one
// element: each mapping gives it to one thread, or lets threads add to it in one step.
unsafe impl<P: Parameters> Sync for Shared<P> {}

impl<P: Parameters> Shared<P> {
    pub(crate) fn new(parameters: P) -> Self {
        Self(ManuallyDrop::new(parameters))
    }

    pub(crate) fn copy(&self) -> P {
        // SAFETY: parameters own nothing, and each copy goes to another thread of the launch, as on a device.
        unsafe { ptr::read(&raw const *self.0) }
    }
}

thread_local! {
    /// The name of the kernel in which the thread is.
    static KERNEL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Returns the name of the kernel in which the thread is.
pub(crate) fn kernel() -> Option<&'static str> {
    KERNEL.get()
}

/// Panics in a kernel. A second launch, or a second rule that gives elements to threads, would let two threads write one
/// element.
#[track_caller]
pub(crate) fn assert_outside(what: &str) {
    assert!(kernel().is_none(), "{what} is called in a kernel; call it before the launch");
}

/// A thread of the system is in a kernel. The drop, which a panic runs too, restores what was before: a thread that waits for others may
/// work for them meanwhile.
struct Inside {
    before: Option<&'static str>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        KERNEL.set(self.before);
    }
}

/// Runs a kernel in one thread of a launch.
#[inline(always)]
pub(crate) fn call<'t, 'a: 't, K: Kernel>(place: &'t Place<'t>, parameters: K::Parameters<'a>) {
    let _inside = Inside { before: KERNEL.replace(Some(K::NAME)) };
    // SAFETY: this thread of the launch has just begun.
    let first = unsafe { K::First::from_thread(Thread::new(place)) };
    K::call(first, parameters);
}

/// Compares a launch with what every device takes.
#[track_caller]
pub(crate) fn assert_launchable(size: LaunchSize) {
    assert_outside("`run` or `run_in_threads`");
    assert!(size.is_launchable(), "{}: found {size:?}", crate::launch_size::LAUNCHABLE);
}

fn positions((width, height, depth): (u32, u32, u32)) -> impl Iterator<Item = [u32; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

/// Runs a kernel in all threads of a launch: one after the other, or, if they work together, those of a block at the same time.
#[doc(hidden)]
#[track_caller]
pub fn run<K: Kernel>(size: LaunchSize, parameters: K::Parameters<'_>) {
    assert_launchable(size);
    if K::NEEDS_BLOCK {
        return run_in_threads::<K>(size, parameters);
    }
    let parameters = Shared::new(parameters);
    for block in positions(size.grid) {
        for thread in positions(size.block) {
            call::<K>(&Place { thread, block, size, gate: None, team: None, part: None }, parameters.copy());
        }
    }
}

/// Runs a kernel with one thread of the system for each thread of a block, block after block. The threads of a team panic if they make
/// different calls.
#[doc(hidden)]
#[track_caller]
pub fn run_in_threads<K: Kernel>(size: LaunchSize, parameters: K::Parameters<'_>) {
    assert_launchable(size);
    let threads: Vec<[u32; 3]> = positions(size.block).collect();
    let (gate, parameters) = (Gate::of_block(threads.len()), Shared::new(parameters));
    let (width, height, depth) = size.block;
    let teams = if K::IS_TEAM && is_team([width, height, depth]) { height * depth } else { 0 };
    let teams: Vec<_> = (0..teams).map(|_| Gate::of_team(width as usize)).collect();
    let work = |thread: [u32; 3]| {
        let team = teams.get((thread[2] * height + thread[1]) as usize);
        let _guards = (Guard(&gate), team.map(Guard));
        for block in positions(size.grid) {
            call::<K>(&Place { thread, block, size, gate: Some(&gate), team, part: None }, parameters.copy());
            if let Some(team) = team {
                team.end();
            }
            gate.end();
        }
    };
    let work = &work;
    let failures: Vec<_> = thread::scope(|scope| {
        // If the system has no further thread, those that run wait for nobody.
        let _guards = (Guard(&gate), teams.iter().map(Guard).collect::<Vec<_>>());
        let running: Vec<_> = threads.iter().map(|thread| scope.spawn(move || work(*thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().err()).collect()
    });
    // The first mistake is the cause of the others.
    let cause = failures.iter().position(|failure| !is_consequence(&**failure)).unwrap_or(0);
    if let Some(failure) = failures.into_iter().nth(cause) {
        resume_unwind(failure);
    }
}

/// Runs a kernel on the CPU with the arguments of a launch, as a simulated driver gets them: the three extents of the grid and of
/// a block, and a pointer to each argument.
///
/// # Safety
///
/// 1. `grid` and `block` point to three extents, and `arguments` to a pointer for each parameter of `K`, to an argument of its
///    type.
/// 2. The arrays are those of a launch: until the kernel has run, nobody else writes the elements, and nobody else uses those
///    that the kernel writes.
pub unsafe extern "C" fn simulate<K: Kernel, M: Memory>(
    grid: *const u32,
    block: *const u32,
    _: u32,
    arguments: *const *const c_void,
) {
    let extents = |of: *const u32| {
        // SAFETY: 1 of the caller.
        let [x, y, z] = unsafe { of.cast::<[u32; 3]>().read() };
        (x, y, z)
    };
    // SAFETY: 1 and 2 of the caller.
    let Some(parameters) = (unsafe { K::Parameters::located::<M>(arguments) }) else { return };
    run::<K>(LaunchSize { grid: extents(grid), block: extents(block) }, parameters);
}

/// What the parameters of a kernel are in bytes, one a line, and a checksum of its code. PTX that is compiled from the same types has the same text, in the
/// constant `interop_layout_` with the name of the kernel.
#[must_use]
pub fn layout<K: Kernel>() -> &'static [u8] {
    const { &Layout::of_kernel::<K::Parameters<'static>>(K::PARAMETERS, K::CODE) }.as_bytes()
}

/// The size of each argument of a kernel in bytes.
#[must_use]
pub fn sizes<K: Kernel>() -> &'static [usize] {
    <K::Parameters<'static> as Parameters>::SIZES
}
