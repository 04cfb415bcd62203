//! Random programs over handles of one memory: whoever uses it at a door either comes after all work that is queued, or is refused
//! because an open scope uses it.
//!
//! All kernels add one, so a read that is allowed has to find the number of kernels that were queued on each half of the memory.
//! Handles are clones and parts of others. Scopes nest as calls do. A scope ends, or is forgotten, or ends by a panic; meanwhile the
//! other handles are read, copied, exported, viewed and dropped, on this thread and on others. The streams are those of two contexts,
//! of which one is current, or the other one, or none.

use std::mem::forget;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, stream_wait};
use interop_core::kernel::{Thread, ViewMut, kernel};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{
    CudaArray, DType, Device, Error, ErrorKind, FromArray, Import, KernelModule, LaunchScope, LaunchSize,
    LeaseMut, Result, SharedBuffer,
};

use crate::counted_imports::{ReadyOn, Row};
use crate::cuda_program::{Place, Stream, current, set_current};
use crate::exclusive_driver::{Turn, turn};
use crate::random_schedules::Dice;
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;

#[kernel]
fn count(thread: Thread<'_>, mut to: ViewMut<'_, i16, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, to.get(at) + 1);
    }
}

const PTX: &str = ".version 7.0\n.target sm_70\n.visible .entry count(.param .b8 a[24])\n";
// SAFETY: it runs on the simulated driver, which runs the function above.
#[expect(unsafe_code, reason = "names the PTX of the kernel")]
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

const LEN: usize = 8;
const HALF: usize = LEN / 2;
const STEPS: usize = 24;

/// How a scope ends: by no drop, and by a panic.
const FORGOTTEN: usize = 0;
const PANIC: usize = 1;

/// The indices of the streams that the legacy default stream of the memory's context waits for: blocking ones, and itself.
const BLOCKING: [usize; 3] = [1, 2, 5];
/// The index of the legacy default stream, whose handle means another stream while another context is current. It is the last one.
const LEGACY: usize = 5;

type Own = Row<Arc<CudaBuffer>>;

/// An array of a program, and which halves of the memory it has.
struct Held {
    array: Handle,
    halves: Range<usize>,
}

/// The forms in which a program has the memory.
enum Handle {
    Own(Own),
    Import(Row<LeaseMut<i16>>),
    WithField(Array<LeaseMut<i16>>),
    Shared(Row<SharedBuffer>),
}

/// Runs an expression with the array of a handle.
macro_rules! with_array {
    ($handle:expr, $array:ident => $run:expr) => {
        match $handle {
            Handle::Own($array) => $run,
            Handle::Import($array) => $run,
            Handle::WithField($array) => $run,
            Handle::Shared($array) => $run,
        }
    };
}

/// What all scopes of a program share.
struct Program<'t> {
    turn: &'t Turn,
    dice: Dice,
    own: Arc<Own>,
    kind: MemoryKind,
    device: Device,
    /// Whether the handles are imports, or else clones of an `Arc`. Work by one kind is ordered before the other kind by the program
    /// alone.
    is_imported: bool,
    /// The form of all imports of memory that the host and devices share.
    form_on_host: usize,
    /// The index of the stream of all imports, on which their producer orders them.
    home: usize,
    /// The context of the memory, and one that a library created.
    places: [Place; 2],
    /// Whether the context of the library is current.
    is_elsewhere: bool,
    streams: &'t [Stream],
    /// The kernels that were queued on each half.
    queued: [i16; 2],
    /// The number of scopes that are open or forgotten.
    open: usize,
    refusals: usize,
}

impl Program<'_> {
    /// The result of a door. It may be refused only while a scope is open.
    fn expect<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(refused) => {
                assert_eq!(refused.kind(), ErrorKind::AlreadyBorrowed, "{refused}");
                assert_ne!(self.open, 0, "{refused}");
                self.refusals += 1;
                None
            }
        }
    }

    fn any_stream(&mut self) -> Stream {
        let end = if self.is_elsewhere { LEGACY } else { self.streams.len() };
        self.streams[self.dice.below(end)]
    }

    /// Makes one of the contexts current, or none.
    fn enter_any(&mut self) {
        // The producer names its stream by the handle that means it everywhere.
        let at = self.dice.below(if self.home == LEGACY { 2 } else { 3 });
        set_current([None, Some(self.places[0]), Some(self.places[1])][at]);
        self.is_elsewhere = at == 2;
    }

    /// What an array with these halves holds now.
    fn expected(&self, halves: &Range<usize>) -> Vec<i16> {
        self.queued[halves.clone()].iter().flat_map(|queued| [*queued; HALF]).collect()
    }

    /// Some halves that begin where the memory does.
    fn first_halves(&mut self) -> Range<usize> {
        0..1 + self.dice.below(2)
    }

    fn own(&mut self) -> Held {
        let halves = self.first_halves();
        let array = Handle::Own(Row { data: self.own.data.clone(), len: halves.len() * HALF });
        Held { array, halves }
    }

    /// Another import of the memory, from a producer that orders its imports on one stream.
    #[expect(unsafe_code, reason = "states on which stream a caller works")]
    fn import(&mut self) -> Option<Held> {
        let (on, form) = (self.streams[self.home].handle(), self.dice.below(5));
        // The host has waited for shared memory in an array without a stream, which does not know the stream of the others.
        let form = if self.device == Device::cuda(0) { form } else { self.form_on_host };
        let halves = self.first_halves();
        let sent = Arc::new(Row { data: self.own.data.clone(), len: halves.len() * HALF });
        let tensor = sent.share_dlpack_as::<Versioned>(on);
        let import = Import::from_dlpack(self.expect(tensor)?).expect("a good tensor");
        // An array without a stream of its own moves to the legacy default stream, which does not wait for any other stream.
        let moves = !BLOCKING.contains(&self.home) && form < 3;
        let import = match if moves { 0 } else { self.dice.below(3) } {
            // SAFETY: the stream is live, and the producer orders its uses there.
            0 => unsafe { import.with_callers_stream(on) },
            1 => import.ready_on(on),
            _ => self.expect(import.with_stream(on).map_err(|refused| refused.error))?,
        };
        let array = match form {
            0 | 1 => Row::from_import(import).map(Handle::Import),
            2 => Row::from_import(import).map(Handle::Shared),
            _ => Array::from_import(import).map(Handle::WithField),
        };
        let array = self.expect(array.map_err(Error::from))?;
        Some(Held { array, halves })
    }

    /// A clone of a shared buffer, or a part of it, which needs no import.
    fn divide(&mut self, handles: &mut Vec<Held>) {
        let Some(at) = handles.len().checked_sub(1).map(|last| self.dice.below(last + 1)) else { return };
        let Held { array: Handle::Shared(Row { data, len }), halves } = &handles[at] else { return };
        let part = if halves.len() == 2 && self.dice.below(2) == 0 {
            let data = data.byte_offset(2 * HALF as isize).expect("a half");
            Held { array: Handle::Shared(Row { data, len: HALF }), halves: 1..2 }
        } else {
            Held { array: Handle::Shared(Row { data: data.clone(), len: *len }), halves: halves.clone() }
        };
        handles.push(part);
    }

    /// Uses one of the handles while others may be in open scopes.
    fn use_one(&mut self, handles: &mut Vec<Held>) {
        if handles.is_empty() {
            return;
        }
        let at = self.dice.below(handles.len());
        let (to, on_another) = (self.any_stream(), self.dice.below(3) == 0);
        let (handle, halves) = (&handles[at].array, handles[at].halves.clone());
        match self.dice.below(8) {
            0 | 1 => {
                let read = || with_array!(handle, array => array.to_vec::<i16>());
                let found = if on_another {
                    std::thread::scope(|scope| scope.spawn(read).join().unwrap())
                } else {
                    read()
                };
                if let Some(found) = self.expect(found) {
                    assert_eq!(found, self.expected(&halves));
                }
            }
            2 => {
                let waited = with_array!(handle, array => array.make_stream_wait(to.handle()));
                if self.expect(waited).is_some() {
                    self.read_on(to, &halves);
                }
            }
            3 => {
                let named = with_array!(handle, array => array.to_cai().map(|interface| interface.stream));
                if let Some(named) = self.expect(named) {
                    stream_wait(to.handle(), named, self.device).expect("an edge");
                    self.read_on(to, &halves);
                }
            }
            4 if matches!(self.kind, MemoryKind::Pinned | MemoryKind::Managed) => {
                let view = with_array!(handle, array => array.view::<i16, 1>().expect("a row").host_view());
                if let Some(view) = self.expect(view) {
                    assert_eq!(view.read([halves.len() * HALF - 1]).unwrap(), self.queued[halves.end - 1]);
                }
            }
            5 => {
                let handle = handles.swap_remove(at);
                if on_another { elsewhere(move || drop(handle)).0 } else { drop(handle) }
            }
            6 => {
                if let Handle::Import(_) = handle {
                    let Handle::Import(array) = handles.swap_remove(at).array else { unreachable!() };
                    let sent = array.into_dlpack_as::<Versioned>(to.handle());
                    if self.expect(sent.map_err(|refused| refused.error)).is_some() {
                        self.read_on(to, &halves);
                    }
                }
            }
            _ => {
                let own = self.own.clone();
                let copy = own.share_dlpack().and_then(Row::<CudaBuffer>::from_dlpack);
                if let Some(copy) = self.expect(copy) {
                    assert_eq!(copy.to_vec::<i16>().unwrap(), self.expected(&(0..2)));
                }
            }
        }
    }

    /// A consumer reads on a stream that waits for the work, and ends before anybody else goes on.
    fn read_on(&self, stream: Stream, halves: &Range<usize>) {
        let bytes = 2 * HALF * halves.len();
        let memory = stream.bytes_at(self.address() + 2 * HALF * halves.start, bytes);
        let seen = stream.scratch(bytes);
        stream.copy(&seen, &memory);
        stream.finish();
    }

    fn address(&self) -> usize {
        self.own.info().expect("a row").address()
    }
}

/// Opens a scope over some of the handles, queues kernels, and runs more of the program before the scope ends.
fn scope(program: &mut Program<'_>, handles: &mut Vec<Held>, depth: usize) {
    let Some(at) = handles.len().checked_sub(1).map(|last| program.dice.below(last + 1)) else { return };
    let mut used = handles.swap_remove(at);
    let named = (program.dice.below(3) != 0).then(|| program.any_stream().handle());
    let (end, kernels) = (program.dice.below(16), program.dice.below(3));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let scope = named.as_ref().map_or_else(LaunchScope::new, LaunchScope::on);
        let begun =
            with_array!(&mut used.array, array => queue(program, &scope, array, &used.halves, kernels));
        if program.expect(begun).is_some() {
            program.open += 1;
            let (before, is_elsewhere) = (current(), program.is_elsewhere);
            steps(program, handles, depth + 1);
            // As a call within this one does: the scope may be on a default stream, which belongs to the current context.
            set_current(before);
            program.is_elsewhere = is_elsewhere;
            program.open -= usize::from(end != FORGOTTEN);
        }
        match end {
            FORGOTTEN => forget(scope),
            PANIC => resume_unwind(Box::new(PANIC)),
            2..6 => drop(scope),
            _ => scope.finish().expect("the end of a scope"),
        }
    }));
    if let Some(other) = ended.err().filter(|panic| panic.downcast_ref() != Some(&PANIC)) {
        resume_unwind(other);
    }
    if end != FORGOTTEN {
        handles.push(used);
    }
}

/// Adds an array to a scope, and queues kernels on it.
fn queue<'a, A: CudaArray>(
    program: &mut Program<'_>,
    scope: &LaunchScope<'a>,
    array: &'a mut A,
    halves: &Range<usize>,
    kernels: usize,
) -> Result<()> {
    let mut view = scope.write(array)?;
    for _ in 0..kernels {
        scope.launch(&KERNELS, LaunchSize::for_units(LEN), count::with(view.reborrow()))?;
        program.queued[halves.clone()].iter_mut().for_each(|queued| *queued += 1);
    }
    Ok(())
}

fn steps(program: &mut Program<'_>, handles: &mut Vec<Held>, depth: usize) {
    for _ in 0..STEPS >> (2 * depth) {
        program.enter_any();
        match program.dice.below(7) {
            0 => handles.extend(if program.is_imported { program.import() } else { Some(program.own()) }),
            1 | 2 if depth < 3 => scope(program, handles, depth),
            4 => program.divide(handles),
            3 => drop(program.turn.step()),
            _ => program.use_one(handles),
        }
    }
}

fn run(turn: &Turn, places: [Place; 2], seed: u64) -> usize {
    let ([place, other], mut dice) = (places, Dice(seed));
    let [a, b, c] = [place.non_blocking(), place.blocking(), place.blocking()];
    let streams = [a, b, c, other.non_blocking(), other.blocking(), place.legacy()];
    let kinds = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];
    let kind = kinds[dice.below(kinds.len())];
    let data = Arc::new(CudaBuffer::zeroed(kind, 0, DType::I16, LEN).unwrap());
    let own = Arc::new(Row { data, len: LEN });
    let device = own.info().unwrap().device();
    let form_on_host = [0, 2, 4][dice.below(3)];
    // Who waits for all work on the memory does not wait for what others do in another context.
    let (home, is_imported) = ([0, 1, 2, LEGACY][dice.below(4)], dice.below(2) == 0);
    let mut program = Program {
        turn,
        dice,
        own,
        kind,
        device,
        home,
        places,
        is_elsewhere: false,
        is_imported,
        form_on_host,
        streams: &streams,
        queued: [0; 2],
        open: 0,
        refusals: 0,
    };
    let mut handles = Vec::new();
    steps(&mut program, &mut handles, 0);
    let refusals = program.refusals;
    drop((handles, program));
    set_current(None);
    turn.run_all();
    while finish_releases() != 0 {}
    for stream in &streams[..LEGACY] {
        stream.destroy();
    }
    refusals
}

#[test]
fn whoever_uses_memory_comes_after_its_work_or_is_refused() {
    let turn = turn();
    turn.register::<count>();
    // A release build runs all.
    let seeds = if cfg!(debug_assertions) { 0..300 } else { 0..3000 };
    let (places, mut refusals) = ([Place::primary(0), Place::foreign(0)], 0);
    for seed in seeds {
        turn.set_seed(seed);
        let ended = catch_unwind(AssertUnwindSafe(|| run(&turn, places, seed)));
        let reports = turn.take_reports();
        assert!(reports.is_empty(), "seed {seed}: {reports:#?}");
        refusals += ended.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert_ne!(refusals, 0, "no door is refused");
    places[1].destroy();
}
