//! The fixture of every test: exclusive use of the driver, and a new context.

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use simulated_cuda::{Live, Mistake, Policy, Sim, sim};

use crate::driver::*;

static TURN: Mutex<()> = Mutex::new(());

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const UNTIMED: u32 = 2;

/// A context on the first device, current on this thread. No other test uses the driver while it exists.
pub(crate) struct Room {
    pub(crate) sim: &'static Sim,
    pub(crate) context: u64,
    _turn: MutexGuard<'static, ()>,
}

#[expect(clippy::unused_self, reason = "what is made belongs to the context of the room, and needs it")]
impl Room {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let sim = sim();
        ok(cuInit(0));
        sim.clear_faults();
        sim.set_policy(Policy::Late);
        sim.set_seed(1);
        // A failed test may have left this behind.
        sim.take_reports();
        sim.set_threads_apart(false);
        sim.set_reuse(false);
        let context = get(|out| cuCtxCreate_v2(out, 0, 0));
        Self { sim, context, _turn: turn }
    }

    pub(crate) fn stream(&self) -> u64 {
        get(|out| cuStreamCreate(out, NON_BLOCKING))
    }

    pub(crate) fn blocking_stream(&self) -> u64 {
        get(|out| cuStreamCreate(out, 0))
    }

    pub(crate) fn event(&self) -> u64 {
        get(|out| cuEventCreate(out, UNTIMED))
    }

    /// Returns zeroed device memory.
    pub(crate) fn memory(&self, bytes: usize) -> u64 {
        let address = get(|out| cuMemAlloc_v2(out, bytes));
        ok(cuMemsetD8_v2(address, 0, bytes));
        ok(cuStreamSynchronize(0));
        address
    }

    /// Returns zeroed pinned memory. Queued copies write it only when they run.
    pub(crate) fn pinned(&self, bytes: usize) -> Pinned {
        let address = get(|out| cuMemHostAlloc(out, bytes, 0));
        ok(cuMemsetD8_v2(address, 0, bytes));
        Pinned(address)
    }

    /// Reads the byte at a device address now, without waiting for queued work.
    pub(crate) fn peek(&self, address: u64) -> u8 {
        let place = self.sim.read::<u8>(address, 1).expect("memory that may be read");
        // SAFETY: one byte is readable there, and no operation runs.
        unsafe { place.read() }
    }

    /// Takes the single report, and checks its kind and that its text contains `words`.
    #[track_caller]
    pub(crate) fn expect(&self, mistake: Mistake, words: &str) -> String {
        let mut reports = self.sim.take_reports();
        let alone = reports.len() == 1;
        let report = reports.pop().unwrap_or_else(|| panic!("no report of {mistake:?}"));
        let is_it = alone && report.mistake == mistake && report.text.contains(words);
        assert!(is_it, "no {mistake:?} with {words:?} alone in {report}, {reports:?}");
        report.text
    }

    /// Takes the reports, checks that all are of one kind, and returns their number.
    #[track_caller]
    pub(crate) fn expect_only(&self, mistake: Mistake) -> usize {
        let reports = self.sim.take_reports();
        assert!(reports.iter().all(|report| report.mistake == mistake), "not {mistake:?} only: {reports:#?}");
        reports.len()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let destroyed = cuCtxDestroy_v2(self.context);
        if !std::thread::panicking() {
            ok(destroyed);
            self.sim.assert_no_reports();
            assert_eq!(self.sim.live(Live::Operations), 0);
        }
    }
}

/// Pinned memory, freed with its context.
#[derive(Clone, Copy)]
pub(crate) struct Pinned(pub(crate) u64);

impl Pinned {
    /// Reads the first byte as the host sees it now.
    pub(crate) fn first(self) -> u8 {
        let place = std::ptr::with_exposed_provenance::<u8>(usize::try_from(self.0).expect("64 bits"));
        // SAFETY: the memory is readable until its context is destroyed.
        unsafe { place.read_volatile() }
    }
}

/// Reads a byte as a host program would. The address may be invalid.
pub(crate) fn touch(address: u64) -> u8 {
    Pinned(address).first()
}

/// Returns the address of host memory, as the driver expects it.
pub(crate) fn address_of<T>(values: &[T]) -> u64 {
    values.as_ptr().expose_provenance() as u64
}

/// Returns the address of host memory that the driver is to write.
pub(crate) fn address_of_mut<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().expose_provenance() as u64
}

/// Runs `inside` in a separate process, where it may abort the process.
///
/// The test called `name` starts its own binary again. Returns that process's output, or `None` in the process itself.
pub(crate) fn alone(name: &str, variables: &[(&str, &str)], inside: impl FnOnce()) -> Option<Output> {
    const INSIDE: &str = "SIMULATED_CUDA_ALONE";
    if std::env::var_os(INSIDE).is_some() {
        inside();
        return None;
    }
    let program = std::env::current_exe().expect("the path of the test program");
    let mut command = Command::new(program);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    command.envs(variables.iter().copied());
    Some(command.output().expect("the program starts"))
}

/// Returns the signal that ended a process.
pub(crate) fn signal(output: &Output) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&output.status)
}
