//! One driver for all tests of a process: each test has exclusive access and leaves the driver as it was.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use interop_core::cuda::{
    Context, CudaBuffer, MemoryKind, Unordered, finish_releases, pending_releases, pooled_events,
    share_events_for,
};
use interop_core::{DType, live_exports};
use simulated_cuda::{Live, Mark, Mistake, Policy, Sim, sim};

use crate::cuda_program::{Place, current, end_captures, set_current, thread_mode};
use crate::order_settings::{Releases, set_unordered};

static TURN: Mutex<()> = Mutex::new(());

/// Exclusive access to the driver for one test. At its end nothing may be left: no allocation, no work, no deferred
/// release, no export, no current context, no event outside the pool. The driver may have no report that the test has
/// not taken: no race, no use after destruction, no invalidated capture.
#[derive(Debug)]
pub(crate) struct Turn {
    _guard: MutexGuard<'static, ()>,
    before: [u64; 4],
    mark: Mark,
}

/// The counts that may not grow from test to test. Streams are excluded, because tests do not destroy them.
const KEPT: [Live; 4] = [Live::Allocations, Live::Contexts, Live::Captures, Live::Graphs];

/// Returns the driver. In a new process nothing uses it yet.
pub(crate) fn started() -> &'static Sim {
    let sim = sim();
    // The library initializes it, as in a program that uses no other CUDA library.
    assert!(interop_core::cuda::is_available(), "the simulated driver starts");
    sim
}

/// Waits for exclusive access. The primary contexts of both devices are in use, as in a program with CUDA libraries,
/// and none is current.
pub(crate) fn turn() -> Turn {
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = started();
    for ordinal in [1, 0] {
        let place = Place::primary(ordinal);
        Context::primary(ordinal).expect("a device that is there");
        // Each pool gets an event, so that the counts do not depend on the order of the tests.
        place.with(|| warm(place, ordinal));
    }
    // Not by time: the next import or export records the events of deferred releases.
    share_events_for(0);
    sim.run_all();
    sim.set_policy(Policy::Late);
    sim.set_seed(1);
    sim.reset_calls();
    // One thread does not know what another has waited for, except by the start and the end of a test's threads.
    sim.set_threads_apart(true);
    Turn { _guard: guard, before: KEPT.map(|what| sim.live(what)), mark: sim.mark() }
}

/// As [`turn`], with the primary context of the first device.
pub(crate) fn first_gpu() -> (Turn, Place) {
    (turn(), Place::primary(0))
}

fn warm(place: Place, ordinal: i32) {
    let stream = place.non_blocking();
    let device = interop_core::Device::cuda(ordinal);
    interop_core::cuda::stream_wait(interop_core::StreamHandle::LegacyDefault, stream.handle(), device)
        .expect("an edge");
    stream.destroy();
    // The core has streams of its own for pool memory, and a small allocation that tells whether they are still there.
    drop(CudaBuffer::zeroed(MemoryKind::Pool, ordinal, DType::U8, 1).expect("memory"));
    finish_releases();
}

impl std::ops::Deref for Turn {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        sim()
    }
}

impl Turn {
    /// Returns the result of `work` and the number of driver calls. Checks that the host did not wait.
    pub(crate) fn count<R>(&self, work: impl FnOnce() -> R) -> (R, u64) {
        self.reset_calls();
        let _path = self.no_waits();
        let result = work();
        (result, self.all_calls())
    }

    /// The number of calls of each function since the last reset.
    pub(crate) fn calls_of<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.calls(name))
    }

    /// Takes the reports, which must all be of this kind: a test makes this mistake on purpose.
    #[track_caller]
    pub(crate) fn expect(&self, mistake: Mistake) -> usize {
        let reports = self.take_reports();
        let all = !reports.is_empty() && reports.iter().all(|report| report.mistake == mistake);
        assert!(all, "not {mistake:?}, and nothing else: {reports:#?}");
        reports.len()
    }

    /// Reports the events of this test that were neither destroyed nor kept for the next stream wait.
    pub(crate) fn report_lost_events(&self) {
        let kept: Vec<_> = pooled_events().into_iter().map(|event| event as u64).collect();
        self.report_leaked_events(self.mark, &kept);
    }

    /// A scoped thread may return its last event shortly after the scope has ended.
    fn assert_no_lost_event(&self) {
        let end = Instant::now() + Duration::from_secs(5);
        self.report_lost_events();
        while !self.reports().is_empty() && Instant::now() < end {
            sleep(Duration::from_millis(1));
            self.take_reports();
            self.report_lost_events();
        }
        self.assert_no_reports();
    }

    /// States that the memory that the core keeps in a primary context, such as pieces of uploads, is new or was freed by a reset.
    pub(crate) fn expect_what_is_live_now(&mut self) {
        warm(Place::primary(0), 0);
        self.before = KEPT.map(|what| sim().live(what));
    }

    /// Checks that the host did not wait.
    #[track_caller]
    pub(crate) fn assert_no_host_wait(&self) {
        let waits = ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"];
        assert_eq!(self.calls_of(waits), [0; 3], "the host waits");
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let sim = sim();
        let found = (sim.take_reports(), pending_releases(), live_exports(), current(), thread_mode());
        sim.clear_faults();
        sim.set_registered_apart(false);
        sim.set_reuse(false);
        end_captures();
        Releases::AfterContext.set();
        set_unordered(Unordered::default());
        set_current(None);
        sim.run_all();
        finish_releases();
        if std::thread::panicking() {
            return;
        }
        self.assert_no_lost_event();
        assert_eq!(found, (vec![], 0, 0, None, 0), "errors, releases, exports, context, mode that are left");
        assert_eq!(KEPT.map(|what| sim.live(what)), self.before, "what is left of {KEPT:?}");
    }
}
