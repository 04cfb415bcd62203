//! The one state of the driver, behind one lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::capture::Capture;
use crate::context::{Context, Device};
use crate::graph::Graph;
use crate::happens_before::Agents;
use crate::kernels::{Function, Kernel, Module};
use crate::memory::Memory;
use crate::queue::{OpId, Queue};
use crate::report::Report;
use crate::status::Status;
use crate::stream::{Event, Stream};

/// A handle as the driver gives it out: an opaque number, never the address of anything, and never used twice unless a test
/// wants it ([`Reuse`]).
pub(crate) type Handle = u64;

/// When operations run that nobody has to wait for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Only when a call waits for them, and then nothing else; frees at the first moment that is allowed.
    Late,
    /// As late, but a wait may also run any other operation that could run.
    Random,
    /// At once.
    Eager,
}

/// What handles are for, of those that the driver gives out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    Context,
    Stream,
    Event,
}

/// Handles of what was destroyed, for the next of their kind: the one that was destroyed last comes first.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    /// Whether what is destroyed from now on leaves its handle.
    wanted: bool,
    spare: HashMap<Thing, Vec<Handle>>,
}

impl Reuse {
    /// The handle is nobody's any more.
    pub(crate) fn leave(&mut self, thing: Thing, handle: Handle) {
        if self.wanted {
            self.spare.entry(thing).or_default().push(handle);
        }
    }
}

/// Everything that the driver knows.
pub(crate) struct State {
    pub(crate) initialized: bool,
    pub(crate) policy: Policy,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) streams: BTreeMap<Handle, Stream>,
    /// The default streams of threads, by context.
    pub(crate) per_thread: HashMap<(Handle, ThreadId), Handle>,
    pub(crate) events: BTreeMap<Handle, Event>,
    /// The events that went with their contexts.
    pub(crate) lost_events: HashSet<Handle>,
    pub(crate) modules: BTreeMap<Handle, Module>,
    pub(crate) functions: BTreeMap<Handle, Function>,
    pub(crate) kernels: BTreeMap<String, Kernel>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<Handle, Graph>,
    pub(crate) memory: Memory,
    pub(crate) queue: Queue,
    /// How often each function was called, by its exported name.
    pub(crate) calls: HashMap<&'static str, u64>,
    /// Answers that were ordered for the next calls of a function.
    pub(crate) faults: HashMap<String, VecDeque<Status>>,
    /// What every call answers, when there is nothing left to be called.
    pub(crate) all_fail: Option<Status>,
    /// What the program did wrong.
    pub(crate) reports: Vec<Report>,
    /// The pairs of steps that were reported already.
    pub(crate) told: HashSet<(OpId, OpId)>,
    pub(crate) agents: Agents,
    /// The memory of which the kernel that runs has said what it does with it, by first address.
    pub(crate) handed: HashSet<u64>,
    /// The calls that do nothing: how many of a function come before each of them.
    pub(crate) losses: HashMap<String, u64>,
    /// Spins that the test has ended.
    pub(crate) released: HashSet<u64>,
    /// How often somebody asked in vain whether work is done.
    pub(crate) polls: u64,
    pub(crate) reuse: Reuse,
    next_handle: Handle,
}

impl State {
    fn new() -> Self {
        let number = |name: &str, default| {
            std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or(default)
        };
        let devices = number("INTEROP_SIM_DEVICES", 2);
        let policy = match std::env::var("INTEROP_SIM_POLICY").as_deref() {
            Ok("random") => Policy::Random,
            Ok("eager") => Policy::Eager,
            _ => Policy::Late,
        };
        Self {
            initialized: false,
            policy,
            devices: (0..devices).map(|_| Device::default()).collect(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            per_thread: HashMap::new(),
            events: BTreeMap::new(),
            lost_events: HashSet::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            kernels: crate::copy_kernels::all(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            memory: Memory::default(),
            queue: Queue::new(number("INTEROP_SIM_SEED", 1)),
            calls: HashMap::new(),
            faults: HashMap::new(),
            all_fail: None,
            reports: Vec::new(),
            told: HashSet::new(),
            agents: Agents::default(),
            handed: HashSet::new(),
            losses: HashMap::new(),
            released: HashSet::new(),
            polls: 0,
            reuse: Reuse::default(),
            // Far from small numbers, from ordinals and from user addresses.
            next_handle: 0x7a00_0000_0000_0000,
        }
    }

    /// A handle that was never given out before.
    pub(crate) fn fresh_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Whether handles and addresses are given out again, from now on.
    pub(crate) fn set_reuse(&mut self, wanted: bool) {
        self.reuse = Reuse { wanted, ..Reuse::default() };
        self.memory.reuse(wanted);
    }

    /// A handle for something new: that of one that was destroyed, if handles are used again.
    pub(crate) fn handle(&mut self, thing: Thing) -> Handle {
        let spare = self.reuse.spare.get_mut(&thing).and_then(Vec::pop);
        spare.unwrap_or_else(|| self.fresh_handle())
    }

    /// The handle that was given out last: those that follow are greater.
    pub(crate) fn last_handle(&self) -> Handle {
        self.next_handle
    }

    /// Whether this call of a function is the one that was ordered to be lost.
    pub(crate) fn is_lost(&mut self, name: &str) -> bool {
        let Some(left) = self.losses.get_mut(name) else { return false };
        if *left > 0 {
            *left -= 1;
            return false;
        }
        self.losses.remove(name);
        true
    }

    /// The answer that was ordered for this call of a function: by its exported name, or by that without the version. A
    /// success that was ordered is none: the call is made.
    pub(crate) fn take_fault(&mut self, name: &str) -> Option<Status> {
        if self.faults.is_empty() {
            return None;
        }
        let plain = name.split("_v").next().unwrap_or(name);
        let known = if self.faults.contains_key(name) { name } else { plain };
        let ordered = self.faults.get_mut(known)?;
        let status = ordered.pop_front();
        if ordered.is_empty() {
            self.faults.remove(known);
        }
        status.filter(|status| status.0 != 0)
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));
/// Told whenever an operation has ended or may now be run.
static CHANGED: Condvar = Condvar::new();

/// The locked state. Host code of the program runs with the lock open.
pub(crate) struct Sim {
    /// Empty only inside [`Sim::unlocked`] and [`Sim::sleep`].
    guard: Option<MutexGuard<'static, State>>,
}

/// Locks the state.
pub(crate) fn lock() -> Sim {
    Sim { guard: Some(STATE.lock().unwrap_or_else(PoisonError::into_inner)) }
}

impl Sim {
    /// Runs host code of the program with the lock open.
    pub(crate) fn unlocked(&mut self, run: impl FnOnce()) {
        self.guard = None;
        run();
        *self = lock();
    }

    /// Waits, with the lock open, until another thread has changed something.
    pub(crate) fn sleep(&mut self) {
        self.guard =
            self.guard.take().map(|guard| CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Wakes the threads that sleep.
pub(crate) fn wake() {
    CHANGED.notify_all();
}

impl Deref for Sim {
    type Target = State;

    fn deref(&self) -> &State {
        self.guard.as_ref().expect("the lock is open only while no reference to the state exists")
    }
}

impl DerefMut for Sim {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("the lock is open only while no reference to the state exists")
    }
}
