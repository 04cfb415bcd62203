//! The driver's state, behind one lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use crate::capture::Capture;
use crate::context::{Context, Device, current_handle};
use crate::graph::Graph;
use crate::handle::Handle;
use crate::happens_before::{Agents, Moment};
use crate::kernels::{Function, Kernel, Module};
use crate::memory::Memory;
use crate::other_processes::OtherProcesses;
use crate::pools::Pool;
use crate::queue::Queue;
use crate::report::Reports;
use crate::status::{Answer, Status};
use crate::stream::{Event, Stream};

/// When an operation runs if no call waits for it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Only when a call waits for it; other operations do not run then. Frees run as soon as they may.
    Late,
    /// As `Late`, but a wait may also run any other operation that is ready.
    Random,
    /// Immediately.
    Eager,
}

/// The kinds of handles that can be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    Context,
    Stream,
    Event,
}

/// Handles of destroyed objects, for the next objects of their kind. The last destroyed one is reused first.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    /// Whether handles of objects that are destroyed from now on are reused.
    wanted: bool,
    spare: HashMap<Thing, Vec<Handle>>,
}

impl Reuse {
    /// Makes the handle of a destroyed object available for reuse.
    pub(crate) fn leave(&mut self, thing: Thing, handle: Handle) {
        if self.wanted {
            self.spare.entry(thing).or_default().push(handle);
        }
    }
}

/// The complete state of the driver.
pub(crate) struct State {
    pub(crate) initialized: bool,
    pub(crate) policy: Policy,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) streams: BTreeMap<Handle, Stream>,
    /// The per-thread default streams, by context and thread.
    pub(crate) per_thread: HashMap<(Handle, ThreadId), Handle>,
    pub(crate) events: BTreeMap<Handle, Event>,
    /// The events that were destroyed together with their contexts.
    pub(crate) lost_events: HashSet<Handle>,
    pub(crate) modules: BTreeMap<Handle, Module>,
    pub(crate) functions: BTreeMap<Handle, Function>,
    pub(crate) kernels: BTreeMap<String, Kernel>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<Handle, Graph>,
    pub(crate) memory: Memory,
    /// The pools that several processes can use. All others are one for each device, and one for the host.
    pub(crate) pools: BTreeMap<Handle, Pool>,
    pub(crate) queue: Queue,
    /// The number of calls of each function, by its exported name.
    pub(crate) calls: HashMap<&'static str, u64>,
    /// The results that a test set for the next calls of a function.
    pub(crate) faults: HashMap<String, VecDeque<Status>>,
    /// The result of every call, if a test set one.
    pub(crate) all_fail: Option<Status>,
    /// The mistakes of the program.
    pub(crate) reports: Reports,
    /// The pairs of steps that have already been reported.
    pub(crate) told: HashSet<(Moment, Moment)>,
    pub(crate) agents: Agents,
    /// The allocations whose use the running kernel has declared, by first address.
    pub(crate) handed: HashSet<u64>,
    /// The calls that do nothing: the number of calls of the function before each of them.
    pub(crate) losses: HashMap<String, u64>,
    /// Spins that the test has released.
    pub(crate) released: HashSet<u64>,
    /// The number of unsuccessful polls since one last made an operation run.
    pub(crate) polls: u64,
    pub(crate) reuse: Reuse,
    pub(crate) others: OtherProcesses,
    /// Whether streams can write and await numbers.
    pub(crate) has_numbers: bool,
    next_handle: Handle,
}

impl State {
    fn new() -> Self {
        let number = |name: &str, default| {
            std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or(default)
        };
        let devices = number("SIMULATED_CUDA_DEVICES", 2);
        let policy = match std::env::var("SIMULATED_CUDA_POLICY").as_deref() {
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
            kernels: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            memory: Memory::default(),
            pools: BTreeMap::new(),
            queue: Queue::new(number("SIMULATED_CUDA_SEED", 1)),
            calls: HashMap::new(),
            faults: HashMap::new(),
            all_fail: None,
            reports: Reports::new(),
            told: HashSet::new(),
            agents: Agents::default(),
            handed: HashSet::new(),
            losses: HashMap::new(),
            released: HashSet::new(),
            polls: 0,
            reuse: Reuse::default(),
            others: OtherProcesses::default(),
            has_numbers: number("SIMULATED_CUDA_NUMBERS", 1) != 0,
            // Far from small numbers, device ordinals and user addresses.
            next_handle: 0x7a00_0000_0000,
        }
    }

    /// Returns a handle that was never used before.
    pub(crate) fn fresh_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Chooses whether handles and addresses are reused from now on.
    pub(crate) fn set_reuse(&mut self, wanted: bool) {
        self.reuse = Reuse { wanted, ..Reuse::default() };
        self.memory.reuse(wanted);
    }

    /// Returns a handle for a new object; a reused one, if reuse is enabled.
    pub(crate) fn handle(&mut self, thing: Thing) -> Handle {
        let spare = self.reuse.spare.get_mut(&thing).and_then(Vec::pop);
        spare.unwrap_or_else(|| self.fresh_handle())
    }

    /// Returns the last new handle. Later new handles are greater.
    pub(crate) fn last_handle(&self) -> Handle {
        self.next_handle
    }

    /// The current context. Fails if it has been destroyed.
    pub(crate) fn current(&self) -> Answer<Handle> {
        self.context(current_handle()).map(|_| current_handle())
    }

    /// The current context and its device.
    pub(crate) fn current_owner(&self) -> Answer<(Handle, usize)> {
        let handle = self.current()?;
        Ok((handle, self.context(handle)?.device))
    }

    /// Returns a context by its handle.
    pub(crate) fn context(&self, handle: Handle) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) => Ok(context),
            None if handle == 0 => Err(Status::INVALID_CONTEXT),
            None => Err(Status::CONTEXT_IS_DESTROYED),
        }
    }

    /// Returns a device by its ordinal.
    pub(crate) fn device(&mut self, ordinal: i32) -> Answer<(usize, &mut Device)> {
        let index = usize::try_from(ordinal).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get_mut(index).map(|device| (index, device)).ok_or(Status::INVALID_DEVICE)
    }

    /// Whether this call of a function is the one that a test chose to do nothing.
    pub(crate) fn is_lost(&mut self, name: &str) -> bool {
        let Some(left) = self.losses.get_mut(name) else { return false };
        if *left > 0 {
            *left -= 1;
            return false;
        }
        self.losses.remove(name);
        true
    }

    /// Returns the result that a test set for this call of a function, by its exported name with or without the version
    /// suffix. Code 0 counts as no result: the driver executes the call.
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
/// Notified whenever an operation has ended or may have become ready.
static CHANGED: Condvar = Condvar::new();

/// The locked state. Code of the program runs with the lock released.
pub(crate) struct Sim {
    /// `None` only inside [`Sim::unlocked`] and [`Sim::sleep`].
    guard: Option<MutexGuard<'static, State>>,
}

/// Locks the state.
pub(crate) fn lock() -> Sim {
    Sim { guard: Some(STATE.lock().unwrap_or_else(PoisonError::into_inner)) }
}

/// Locks the state, unless another thread has locked it.
pub(crate) fn try_lock() -> Option<Sim> {
    let guard = match STATE.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    Some(Sim { guard: Some(guard) })
}

impl Sim {
    /// Runs code of the program with the lock released.
    pub(crate) fn unlocked(&mut self, run: impl FnOnce()) {
        self.guard = None;
        run();
        *self = lock();
    }

    /// Waits, with the lock released, until another thread has changed something.
    pub(crate) fn sleep(&mut self) {
        self.guard =
            self.guard.take().map(|guard| CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Wakes the threads that wait in [`Sim::sleep`].
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
