//! The part of a launch on the CPU that one thread has.

use core::cell::Cell;
use core::fmt;
use core::ops::Range;

/// The part of a launch on the CPU that one thread has: many elements next to each other, where a thread of a device has few, far apart.
#[derive(Clone, Copy)]
pub(crate) struct HostPart<'g> {
    /// The name of the kernel, for messages.
    pub(crate) kernel: &'static str,
    pub(crate) number: u32,
    /// The number of parts.
    pub(crate) parts: u32,
    /// The number of neighbouring rows that a part has, before those of the next part begin.
    pub(crate) rows: u32,
    pub(crate) loops: OpenLoops<'g>,
}

/// The number of loops over own elements that have begun, and are not at their end.
#[derive(Clone, Copy)]
pub(crate) struct OpenLoops<'g>(pub(crate) &'g Cell<u32>);

impl OpenLoops<'_> {
    #[inline(always)]
    pub(crate) fn begin(self) {
        self.0.set(self.0.get() + 1);
    }

    #[inline(always)]
    pub(crate) fn end(self) {
        self.0.set(self.0.get() - 1);
    }
}

impl HostPart<'_> {
    /// The units of this part, of so many.
    #[inline(always)]
    pub(crate) fn units(&self, count: u64) -> Range<u64> {
        let each = count.div_ceil(u64::from(self.parts));
        let first = each.saturating_mul(u64::from(self.number)).min(count);
        first..first.saturating_add(each).min(count)
    }

    /// Panics for a number that only a thread of a device has.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn has_no(&self, getter: &str) -> ! {
        panic!(
            "kernel `{}` calls `thread.{getter}()`, which means nothing in a launch on the CPU, where one thread has many elements: go over \
             `thread.elements(shape)`, whose indices have their position in `at()`; or launch over arrays of a GPU",
            self.kernel
        )
    }

    /// Panics if the kernel has left elements of its own.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn assert_complete(&self) {
        assert!(
            self.loops.0.get() == 0,
            "kernel `{}` did not take all of its elements: a thread has many in a launch on the CPU, so go over all of them, as in \
             `for at in thread.elements(shape)`, without a `break`",
            self.kernel
        );
    }
}

impl fmt::Debug for HostPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {} of `{}`", self.number, self.parts, self.kernel)
    }
}
