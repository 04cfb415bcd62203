//! A clock that costs a few nanoseconds, for what need not be exact.

/// The ticks of a millisecond, or half of one.
pub(crate) const ABOUT_A_MILLISECOND: u64 = 2_000_000;

/// The time, in units of a nanosecond or less that start somewhere.
///
/// The clock of the standard library costs as much as a driver call, and a system call on some virtual machines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor counts its cycles.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time, in nanoseconds that start somewhere.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
