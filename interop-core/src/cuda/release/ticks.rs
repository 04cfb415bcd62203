//! A clock that costs a few nanoseconds, for times that need not be exact.

/// The ticks of about a millisecond: half of one at 4 GHz, two in nanoseconds.
pub(crate) const ABOUT_A_MILLISECOND: u64 = 2_000_000;

/// Returns the time since an arbitrary start, in units of a nanosecond or less.
///
/// The clock of the standard library costs as much as a driver call, and is a system call on some virtual machines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has a time-stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the time since an arbitrary start, in nanoseconds.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
