//! Happens-before: vector clocks of everything that acts in order.
//!
//! An agent is a stream, a host thread, or one node of a launched graph. Each action of an agent has an increasing
//! number. A clock stores, for each agent, the last action that is known to be finished. One action comes before
//! another exactly if the other's clock contains it. The order in which the scheduler ran them does not matter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::handle::{Handle, OpId};

/// A stream, a host thread or a graph node, by its index in [`Agents`].
pub(crate) type Agent = u32;

/// One action of an agent, past or future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) agent: Agent,
    pub(crate) number: OpId,
}

/// The last known action number of each agent, sorted by agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<(Agent, OpId)>);

impl Clock {
    /// The last known action number of an agent, or zero.
    pub(crate) fn of(&self, agent: Agent) -> OpId {
        self.0.binary_search_by_key(&agent, |entry| entry.0).map_or(0, |at| self.0[at].1)
    }

    pub(crate) fn knows(&self, moment: Moment) -> bool {
        self.of(moment.agent) >= moment.number
    }

    /// The last known action of each agent.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Agent, OpId)> {
        self.0.iter().copied()
    }

    /// Adds an action and all earlier actions of its agent.
    pub(crate) fn advance(&mut self, Moment { agent, number }: Moment) {
        match self.0.binary_search_by_key(&agent, |entry| entry.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(number),
            Err(at) => self.0.insert(at, (agent, number)),
        }
    }

    /// Adds everything that another clock contains.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.is_empty() {
            return self.0.clone_from(&other.0);
        }
        for (agent, number) in &other.0 {
            self.advance(Moment { agent: *agent, number: *number });
        }
    }
}

/// What something must come after: the operations that have not ended, and the clock that is known once they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    pub(crate) operations: Vec<OpId>,
    pub(crate) clock: Clock,
}

/// One action of an agent, with everything that is known to come before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) moment: Moment,
    /// Includes the action itself.
    pub(crate) clock: Arc<Clock>,
    /// The driver function that requested it.
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
    /// An agent of another process, by its number there.
    Foreign {
        process: u32,
        agent: Agent,
    },
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream(handle) => write!(f, "stream {handle:#x}"),
            Self::Legacy(context) => write!(f, "the legacy default stream of context {context:#x}"),
            Self::Thread(None) => write!(f, "the host"),
            Self::Thread(Some(thread)) => write!(f, "host thread {thread:?}"),
            Self::Node(stream) => write!(f, "a graph launched on stream {stream:#x}"),
            Self::Foreign { process, agent: 0 } => write!(f, "the host of process {process}"),
            Self::Foreign { process, agent } => write!(f, "agent {agent} of process {process}"),
        }
    }
}

/// The knowledge of the host threads.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Whether each thread has its own knowledge: from its own waits, the thread that started it, ended threads, and
    /// declarations by tests. Otherwise all threads share one clock, because threads synchronize by means that no
    /// driver sees.
    apart: bool,
    /// The clock that all threads share.
    one: (Agent, Clock),
    threads: HashMap<ThreadId, (Agent, Clock)>,
    /// The combined knowledge of the threads that have ended.
    ended: Clock,
    /// The clocks that were handed over, by number.
    handed_over: Vec<Clock>,
}

/// All agents so far, and the host's knowledge.
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

    /// Returns the agent and clock of this thread.
    pub(crate) fn host(&mut self) -> &mut (Agent, Clock) {
        if !self.hosts.apart {
            return &mut self.hosts.one;
        }
        for thread in ended().drain(..) {
            self.end(thread);
        }
        let thread = thread::current().id();
        if !self.hosts.threads.contains_key(&thread) {
            LEAVING.with(|_| ());
            let agent = self.add(Who::Thread(Some(thread)));
            // The thread that started this one is among the known threads.
            let mut clock = Clock::default();
            for (_, known) in self.hosts.threads.values() {
                clock.join(known);
            }
            self.hosts.threads.insert(thread, (agent, clock));
        }
        let Hosts { threads, ended, one, .. } = &mut self.hosts;
        let host = threads.get_mut(&thread).unwrap_or(one);
        // A thread that joins an ended thread knows what that thread knew. Joins are not visible, so every thread
        // learns it.
        host.1.join(ended);
        host
    }

    /// Switches between separate clocks and one shared clock. All existing knowledge becomes known to all threads.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        let Hosts { one, threads, ended, .. } = &mut self.hosts;
        for (_, known) in threads.drain().map(|(_, host)| host) {
            ended.join(&known);
        }
        ended.join(&one.1);
        one.1.join(ended);
        self.hosts.apart = apart;
    }

    /// Stores this thread's clock for another thread and returns its number.
    pub(crate) fn hand_over(&mut self) -> u64 {
        let known = self.host().1.clone();
        self.hosts.handed_over.push(known);
        self.hosts.handed_over.len() as u64 - 1
    }

    /// Adds the stored clock with this number to this thread's clock.
    pub(crate) fn take_over(&mut self, number: u64) {
        let known = usize::try_from(number).ok().and_then(|at| self.hosts.handed_over.get(at)).cloned();
        self.host().1.join(&known.unwrap_or_default());
    }

    /// Clears all clocks. The caller knows that everything so far comes before everything from now on.
    pub(crate) fn forget(&mut self) {
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

/// A thread-local value whose destructor reports that the thread has ended.
struct Leaving(ThreadId);

/// The threads that have ended, until the next look at the knowledge of a thread.
static ENDED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

fn ended() -> MutexGuard<'static, Vec<ThreadId>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static LEAVING: Leaving = Leaving(thread::current().id());
}

impl Drop for Leaving {
    fn drop(&mut self) {
        ended().push(self.0);
    }
}
