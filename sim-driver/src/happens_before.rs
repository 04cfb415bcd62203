//! Happens-before: who does one thing after another, and what each is known to have done.
//!
//! An agent is a stream, a host thread, or one node of a graph that was launched. What an agent does has a number, which
//! grows. A clock says up to which number each agent is known: one thing comes before another exactly if the clock of
//! the other knows it. Whether it has run by then says nothing, because that was up to the scheduler.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::queue::OpId;
use crate::state::{Handle, State, lock};

/// A stream, a host thread or a node of a graph, by its place in [`Agents`].
pub(crate) type Agent = u32;

/// Something that an agent has done or will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) agent: Agent,
    pub(crate) number: OpId,
}

/// Up to which number each agent is known, in the order of the agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<(Agent, OpId)>);

impl Clock {
    /// Up to which number an agent is known; zero if nothing of it is.
    pub(crate) fn of(&self, agent: Agent) -> OpId {
        self.0.binary_search_by_key(&agent, |entry| entry.0).map_or(0, |at| self.0[at].1)
    }

    pub(crate) fn knows(&self, moment: Moment) -> bool {
        self.of(moment.agent) >= moment.number
    }

    /// Knows a moment and all that its agent did before.
    pub(crate) fn advance(&mut self, Moment { agent, number }: Moment) {
        match self.0.binary_search_by_key(&agent, |entry| entry.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(number),
            Err(at) => self.0.insert(at, (agent, number)),
        }
    }

    /// Knows what another clock knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.is_empty() {
            return self.0.clone_from(&other.0);
        }
        for (agent, number) in &other.0 {
            self.advance(Moment { agent: *agent, number: *number });
        }
    }
}

/// What something has to come after: the operations that have not ended, and all that is known once they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    pub(crate) operations: Vec<OpId>,
    pub(crate) clock: Clock,
}

/// One thing that an agent does, with what is known to come before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) moment: Moment,
    /// Knows the moment itself.
    pub(crate) clock: Arc<Clock>,
    /// The function of the driver that it was asked for with.
    pub(crate) name: &'static str,
}

/// What an agent is, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Stream(Handle),
    Legacy(Handle),
    Thread(Option<ThreadId>),
    /// A node of a graph that was launched on a stream.
    Node(Handle),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream(handle) => write!(f, "stream {handle:#x}"),
            Self::Legacy(context) => write!(f, "the legacy default stream of context {context:#x}"),
            Self::Thread(None) => write!(f, "the host"),
            Self::Thread(Some(thread)) => write!(f, "host thread {thread:?}"),
            Self::Node(stream) => write!(f, "a graph launched on stream {stream:#x}"),
        }
    }
}

/// What host threads know.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Whether each thread knows only what it was told: by its own waits, by whoever began it, by threads that ended and
    /// by what tests declare. Otherwise all are one, because threads hand things over by means that no driver sees.
    apart: bool,
    /// All of them as one.
    one: (Agent, Clock),
    threads: HashMap<ThreadId, (Agent, Clock)>,
    /// What the threads knew that have ended.
    ended: Clock,
    /// What was handed over, each under its place.
    handed_over: Vec<Clock>,
}

/// Every agent there was, and what the host knows.
#[derive(Debug)]
pub(crate) struct Agents {
    all: Vec<Who>,
    hosts: Hosts,
}

impl Default for Agents {
    fn default() -> Self {
        let (one, ended) = ((0, Clock::default()), Clock::default());
        let hosts = Hosts { apart: false, one, threads: HashMap::new(), ended, handed_over: Vec::new() };
        Self { all: vec![Who::Thread(None)], hosts }
    }
}

impl Agents {
    pub(crate) fn add(&mut self, who: Who) -> Agent {
        self.all.push(who);
        Agent::try_from(self.all.len() - 1).unwrap_or(Agent::MAX)
    }

    pub(crate) fn who(&self, agent: Agent) -> Who {
        self.all.get(agent as usize).copied().unwrap_or(Who::Thread(None))
    }

    /// This thread and what it knows.
    pub(crate) fn host(&mut self) -> &mut (Agent, Clock) {
        if !self.hosts.apart {
            return &mut self.hosts.one;
        }
        let thread = thread::current().id();
        if !self.hosts.threads.contains_key(&thread) {
            LEAVING.with(|_| ());
            let agent = self.add(Who::Thread(Some(thread)));
            // Whoever began the thread is among those that are here.
            let mut clock = Clock::default();
            for (_, known) in self.hosts.threads.values() {
                clock.join(known);
            }
            self.hosts.threads.insert(thread, (agent, clock));
        }
        let Hosts { threads, ended, one, .. } = &mut self.hosts;
        let host = threads.get_mut(&thread).unwrap_or(one);
        // Whoever waits for a thread that has ended knows what it knew.
        host.1.join(ended);
        host
    }

    /// Lets threads know of each other what they were told, or everything.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        let Hosts { one, threads, ended, .. } = &mut self.hosts;
        for (_, known) in threads.drain().map(|(_, host)| host) {
            ended.join(&known);
        }
        ended.join(&one.1);
        one.1.join(ended);
        self.hosts.apart = apart;
    }

    /// Keeps what this thread knows for another, under a number.
    pub(crate) fn hand_over(&mut self) -> u64 {
        let known = self.host().1.clone();
        self.hosts.handed_over.push(known);
        self.hosts.handed_over.len() as u64 - 1
    }

    /// This thread knows what was handed over under a number.
    pub(crate) fn take_over(&mut self, number: u64) {
        let known = usize::try_from(number).ok().and_then(|at| self.hosts.handed_over.get(at)).cloned();
        self.host().1.join(&known.unwrap_or_default());
    }

    /// Everything so far comes before everything from now on, so that nothing needs to be known.
    fn forget(&mut self) {
        let Hosts { one, threads, ended, .. } = &mut self.hosts;
        (one.1, *ended) = (Clock::default(), Clock::default());
        for (_, known) in threads.values_mut() {
            *known = Clock::default();
        }
    }

    fn end(&mut self, thread: ThreadId) {
        if let Some((_, known)) = self.hosts.threads.remove(&thread) {
            self.hosts.ended.join(&known);
        }
    }
}

/// Tells when a thread ends.
struct Leaving(ThreadId);

thread_local! {
    static LEAVING: Leaving = Leaving(thread::current().id());
}

impl Drop for Leaving {
    fn drop(&mut self) {
        lock().agents.end(self.0);
    }
}

impl State {
    /// Something that this thread does now.
    pub(crate) fn host_step(&mut self) -> Step {
        let number = self.queue.number();
        let (agent, clock) = self.agents.host();
        let moment = Moment { agent: *agent, number };
        clock.advance(moment);
        let clock = Arc::new(clock.clone());
        Step { moment, clock, name: crate::api_call::calling() }
    }

    /// What this thread has waited for comes before what it does from now on.
    pub(crate) fn host_learns(&mut self, clock: &Clock) {
        self.agents.host().1.join(clock);
    }

    /// Something that an agent will do after `before`, and after all that this thread knows.
    pub(crate) fn step_after(&mut self, agent: Agent, name: &'static str, mut before: Clock) -> Step {
        let moment = Moment { agent, number: self.queue.number() };
        before.join(&self.agents.host().1);
        before.advance(moment);
        Step { moment, clock: Arc::new(before), name }
    }

    /// When nothing is queued, everything so far comes before everything from now on: what it was is forgotten.
    pub(crate) fn forget_the_past(&mut self) {
        if self.queue.len() != 0 {
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
