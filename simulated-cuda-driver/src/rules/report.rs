//! What a report says.

use std::backtrace::Backtrace;
use std::fmt::Write as _;

use crate::handle::OpId;
use crate::report::{Mistake, Report};
use crate::state::State;
use crate::stream::Event;
use crate::this_thread::calling;

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
        let words = |(handle, event): (&u64, &Event)| {
            format!("event {handle:#x} of context {:#x} was neither destroyed nor kept", event.context)
        };
        let texts: Vec<_> = leaked.map(words).collect();
        for text in texts {
            self.report(Mistake::LeakedEvent, text);
        }
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
