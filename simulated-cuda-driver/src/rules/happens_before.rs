//! The steps that the program makes, and what its threads learn from them.

use std::sync::Arc;

use crate::handle::OpId;
use crate::happens_before::{Agent, Clock, Moment, Step};
use crate::state::State;
use crate::this_thread::calling;

impl State {
    /// Returns the number of an action that the program requests now.
    fn request_number(&mut self) -> OpId {
        let number = self.queue.number();
        self.reports.note_request(number);
        number
    }

    /// Creates an action of this thread that happens now.
    pub(crate) fn host_step(&mut self) -> Step {
        let number = self.request_number();
        let (agent, clock) = self.agents.host();
        let moment = Moment { agent: *agent, number };
        clock.advance(moment);
        let clock = Arc::new(clock.clone());
        Step { moment, clock, name: calling() }
    }

    /// Adds finished work that this thread has waited for to its clock.
    pub(crate) fn host_learns(&mut self, clock: &Clock) {
        self.agents.host().1.join(clock);
    }

    /// Creates an action of `agent` that comes after `before` and after everything that this thread knows.
    pub(crate) fn step_after(&mut self, agent: Agent, name: &'static str, mut before: Clock) -> Step {
        let moment = Moment { agent, number: self.request_number() };
        before.join(&self.agents.host().1);
        before.advance(moment);
        Step { moment, clock: Arc::new(before), name }
    }

    /// Clears all history if nothing is queued, because then everything so far comes before everything from now on. What
    /// other processes may know or compare is kept.
    pub(crate) fn forget_the_past(&mut self) {
        if self.queue.len() != 0 || self.others.is_in_use() {
            return;
        }
        self.agents.forget();
        for stream in self.streams.values_mut() {
            stream.clock = Clock::default();
        }
        for event in self.events.values_mut() {
            event.clock = Clock::default();
        }
        self.memory.forget_the_past();
        self.told.clear();
    }
}
