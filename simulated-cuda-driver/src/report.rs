//! Reports of mistakes of the program, and the end of a program that did not read them.

#![expect(unsafe_code, reason = "the end of the process is a callback of C")]

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::Arc;

use crate::api_call::calling;
use crate::queue::{OpId, Work};
use crate::state::{State, try_lock};

/// The kind of a mistake, by the number that tests see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mistake {
    /// Two unordered accesses of the same bytes, at least one of them a write.
    Race = 0,
    /// An access after the free of its memory, or one that is not ordered before the free.
    UseAfterFree = 1,
    /// An access that is not ordered after the stream-ordered allocation of its memory.
    UseBeforeAllocation = 2,
    DoubleFree = 3,
    /// Memory was freed while another context than its own was current.
    WrongContext = 4,
    /// An event was neither destroyed nor listed as kept.
    LeakedEvent = 5,
    /// The host waited although the test forbids it.
    HostWait = 6,
    /// A capture was invalidated, or ended without some of its work.
    Capture = 7,
    /// A stream was used after it or its context was destroyed.
    DestroyedStream = 8,
    DestroyedEvent = 9,
    /// An access beyond an allocation, or outside every allocation.
    OutOfBounds = 10,
    /// The driver was called from a host function or a kernel.
    CallInside = 11,
    /// A kernel was looked up for which no host function is registered.
    NoKernel = 12,
}

/// A mistake of the program.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) mistake: Mistake,
    pub(crate) text: String,
}

/// The reports, and how much of them the program has seen.
#[derive(Debug)]
pub(crate) struct Reports {
    all: Vec<Report>,
    /// The number of reports, from the first on, that somebody has read.
    read: usize,
    /// Where each operation was requested, if `SIMULATED_CUDA_BACKTRACE` asks for it.
    requests: Option<BTreeMap<OpId, Arc<Backtrace>>>,
}

impl Reports {
    /// No reports. Registers the end of the process, unless `SIMULATED_CUDA_REPORTS` is `off`.
    pub(crate) fn new() -> Self {
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        if set("SIMULATED_CUDA_REPORTS") != "off" {
            let process = ptr::without_provenance_mut(std::process::id() as usize);
            // SAFETY: the function is part of this library, which is never unloaded (see `build.rs`), and takes any
            // argument.
            unsafe { on_exit(end_of_process, process) };
        }
        let wanted = !matches!(set("SIMULATED_CUDA_BACKTRACE").as_str(), "" | "0");
        Self { all: Vec::new(), read: 0, requests: wanted.then(BTreeMap::new) }
    }

    /// The number of reports.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns a report, which then counts as read.
    pub(crate) fn read(&mut self, index: usize) -> Option<&Report> {
        self.read = self.read.max((index + 1).min(self.all.len()));
        self.all.get(index)
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.read = 0;
    }

    /// Records where an operation is requested.
    pub(crate) fn note_request(&mut self, operation: OpId) {
        if let Some(requests) = &mut self.requests {
            requests.insert(operation, Arc::new(Backtrace::force_capture()));
        }
    }

    fn unread(&self) -> &[Report] {
        &self.all[self.read..]
    }
}

/// Formats the frames of the program: those behind the function of this library that it called.
fn frames_of_program(backtrace: &Backtrace, called: &str) -> String {
    let text = backtrace.to_string();
    let is_place = |line: &&str| line.trim_start().starts_with("at ");
    let is_call = |line: &&str| line.trim_start().split_once(": ").is_some_and(|(_, name)| name == called);
    let mut behind = text.lines().skip_while(|line| !is_call(line)).skip(1).skip_while(is_place).peekable();
    if behind.peek().is_none() {
        return text;
    }
    behind.collect::<Vec<_>>().join("\n")
}

impl State {
    /// Adds a report about the call that the program is making.
    pub(crate) fn report(&mut self, mistake: Mistake, text: String) {
        let mut text = text;
        if self.reports.requests.is_some() {
            let frames = frames_of_program(&Backtrace::force_capture(), calling());
            // Text grows without an error.
            let _ = write!(text, "\n{} was called here:\n{frames}", calling());
        }
        self.reports.all.push(Report { mistake, text });
    }

    /// Adds a report about operations that were requested earlier, each with the name of its function.
    pub(crate) fn report_operations(
        &mut self,
        mistake: Mistake,
        text: String,
        operations: &[(OpId, &'static str)],
    ) {
        let mut text = text;
        for (number, name) in operations {
            let request = self.reports.requests.as_ref().and_then(|requests| requests.get(number));
            if let Some(request) = request {
                let frames = frames_of_program(request, name);
                // Text grows without an error.
                let _ = write!(text, "\noperation {number}, {name}, was requested here:\n{frames}");
            }
        }
        self.reports.all.push(Report { mistake, text });
    }

    /// Reports the live events that were created after `mark` and are not in `kept`.
    pub(crate) fn report_leaked_events(&mut self, mark: u64, kept: &[u64]) {
        let leaked = self.events.iter().filter(|(handle, event)| event.made > mark && !kept.contains(handle));
        let words = |(handle, event): (&u64, &crate::stream::Event)| {
            format!("event {handle:#x} of context {:#x} was neither destroyed nor kept", event.context)
        };
        let texts: Vec<_> = leaked.map(words).collect();
        for text in texts {
            self.report(Mistake::LeakedEvent, text);
        }
    }
}

unsafe extern "C" {
    /// Has glibc call a function with the exit status and this argument when the process ends by `exit` or a return of
    /// `main`. The function that was registered first runs last.
    fn on_exit(run: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Prints the reports that nobody has read. If there are any, a process that ends well ends with status 1.
///
/// `process` is the number of the process that registered this function. A forked child has inherited its reports.
extern "C" fn end_of_process(status: c_int, process: *mut c_void) {
    if process.addr() != std::process::id() as usize {
        return;
    }
    // Another thread may hold the lock for ever: it has been stopped, or it waits for this one.
    let Some(mut sim) = try_lock() else { return };
    // A host function of the program may need what the program has already destroyed, and a number may never come.
    let has_host_functions =
        !sim.queue.select(|operation| matches!(operation.work, Work::Host(_))).is_empty();
    if !has_host_functions && !sim.waits_for_numbers() {
        sim.run_everything();
    }
    sim.others.close_clocks();
    let reports = sim.reports.unread();
    if reports.is_empty() {
        return;
    }
    let mut text = format!("simulated CUDA driver: mistakes of this program: {}\n", reports.len());
    for Report { mistake, text: one } in reports {
        // Text grows without an error.
        let _ = writeln!(text, "{mistake:?}: {one}");
    }
    text.push_str("simulated CUDA driver: set SIMULATED_CUDA_REPORTS=off to ignore them\n");
    // Nothing can be done about a standard error that is closed.
    let _ = io::stderr().write_all(text.as_bytes());
    if status == 0 {
        // SAFETY: a null pointer selects all streams of C.
        unsafe { libc::fflush(ptr::null_mut()) };
        // SAFETY: ends the process, which is ending.
        unsafe { libc::_exit(1) };
    }
}
