//! Random programs over handles of one memory: whoever uses it at a door either comes after all work that is queued, or is refused
//! because an open scope uses it.
//!
//! All kernels add one, so a read that is allowed has to find the number of kernels that were queued. Scopes nest as calls do. A
//! scope ends, or is forgotten, or ends by a panic; meanwhile the other handles are read, copied, exported, viewed and dropped, on
//! this thread and on others.

use std::mem::forget;
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
use crate::cuda_program::{Place, Stream};
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
const STEPS: usize = 24;

/// How a scope ends: by no drop, and by a panic.
const FORGOTTEN: usize = 0;
const PANIC: usize = 1;

/// The index of a stream that the legacy default stream does not wait for.
const NON_BLOCKING: usize = 0;

type Own = Row<Arc<CudaBuffer>>;

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
    /// The stream of all imports, on which their producer orders them.
    home: Stream,
    streams: &'t [Stream],
    /// The kernels that were queued.
    queued: i16,
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
        self.streams[self.dice.below(self.streams.len())]
    }

    /// Another import of the memory, from a producer that orders its imports on one stream.
    #[expect(unsafe_code, reason = "states on which stream a caller works")]
    fn import(&mut self) -> Option<Handle> {
        let (on, form) = (self.home.handle(), self.dice.below(5));
        // The host has waited for shared memory in an array without a stream, which does not know the stream of the others.
        let form = if self.device == Device::cuda(0) { form } else { self.form_on_host };
        let tensor = self.own.clone().share_dlpack_as::<Versioned>(on);
        let import = Import::from_dlpack(self.expect(tensor)?).expect("a good tensor");
        // An array without a stream of its own moves to the legacy default stream, which is another one than a non-blocking stream.
        let moves = self.home.handle() == self.streams[NON_BLOCKING].handle() && form < 3;
        let import = match if moves { 0 } else { self.dice.below(3) } {
            // SAFETY: the stream is live, and the producer orders its uses there.
            0 => unsafe { import.with_callers_stream(on) },
            1 => import.ready_on(on),
            _ => self.expect(import.with_stream(on).map_err(|refused| refused.error))?,
        };
        let handle = match form {
            0 | 1 => Row::from_import(import).map(Handle::Import),
            2 => Row::from_import(import).map(Handle::Shared),
            _ => Array::from_import(import).map(Handle::WithField),
        };
        self.expect(handle.map_err(Error::from))
    }

    /// Uses one of the handles while others may be in open scopes.
    fn use_one(&mut self, handles: &mut Vec<Handle>) {
        if handles.is_empty() {
            return;
        }
        let at = self.dice.below(handles.len());
        let (to, on_another) = (self.any_stream(), self.dice.below(3) == 0);
        let handle = &handles[at];
        match self.dice.below(8) {
            0 | 1 => {
                let read = || with_array!(handle, array => array.to_vec::<i16>());
                let found = if on_another {
                    std::thread::scope(|scope| scope.spawn(read).join().unwrap())
                } else {
                    read()
                };
                if let Some(found) = self.expect(found) {
                    assert_eq!(found, [self.queued; LEN]);
                }
            }
            2 => {
                let waited = with_array!(handle, array => array.make_stream_wait(to.handle()));
                if self.expect(waited).is_some() {
                    self.read_on(to);
                }
            }
            3 => {
                let named = with_array!(handle, array => array.to_cai().map(|interface| interface.stream));
                if let Some(named) = self.expect(named) {
                    stream_wait(to.handle(), named, self.device).expect("an edge");
                    self.read_on(to);
                }
            }
            4 if matches!(self.kind, MemoryKind::Pinned | MemoryKind::Managed) => {
                let view = with_array!(handle, array => array.view::<i16, 1>().expect("a row").host_view());
                if let Some(view) = self.expect(view) {
                    assert_eq!(view.read([LEN - 1]).unwrap(), self.queued);
                }
            }
            5 => {
                let handle = handles.swap_remove(at);
                if on_another { elsewhere(move || drop(handle)).0 } else { drop(handle) }
            }
            6 => {
                if let Handle::Import(_) = handle {
                    let Handle::Import(array) = handles.swap_remove(at) else { unreachable!() };
                    let sent = array.into_dlpack_as::<Versioned>(to.handle());
                    if self.expect(sent.map_err(|refused| refused.error)).is_some() {
                        self.read_on(to);
                    }
                }
            }
            _ => {
                let own = self.own.clone();
                let copy = own.share_dlpack().and_then(Row::<CudaBuffer>::from_dlpack);
                if let Some(copy) = self.expect(copy) {
                    assert_eq!(copy.to_vec::<i16>().unwrap(), [self.queued; LEN]);
                }
            }
        }
    }

    /// A consumer reads on a stream that waits for the work, and ends before anybody else goes on.
    fn read_on(&self, stream: Stream) {
        let memory = stream.bytes_at(self.address(), 2 * LEN);
        let seen = stream.scratch(2 * LEN);
        stream.copy(&seen, &memory);
        stream.finish();
    }

    fn address(&self) -> usize {
        self.own.info().expect("a row").address()
    }
}

/// Opens a scope over some of the handles, queues kernels, and runs more of the program before the scope ends.
fn scope(program: &mut Program<'_>, handles: &mut Vec<Handle>, depth: usize) {
    let Some(at) = handles.len().checked_sub(1).map(|last| program.dice.below(last + 1)) else { return };
    let mut used = handles.swap_remove(at);
    let named = (program.dice.below(3) != 0).then(|| program.any_stream().handle());
    let (end, kernels) = (program.dice.below(16), program.dice.below(3));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let scope = named.as_ref().map_or_else(LaunchScope::new, LaunchScope::on);
        let begun = with_array!(&mut used, array => queue(program, &scope, array, kernels));
        if program.expect(begun).is_some() {
            program.open += 1;
            steps(program, handles, depth + 1);
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
    kernels: usize,
) -> Result<()> {
    let mut view = scope.write(array)?;
    for _ in 0..kernels {
        scope.launch(&KERNELS, LaunchSize::for_units(LEN), count::with(view.reborrow()))?;
        program.queued += 1;
    }
    Ok(())
}

fn steps(program: &mut Program<'_>, handles: &mut Vec<Handle>, depth: usize) {
    for _ in 0..STEPS >> (2 * depth) {
        match program.dice.below(6) {
            0 => {
                let own = || Handle::Own(Row { data: program.own.data.clone(), len: LEN });
                handles.extend(if program.is_imported { program.import() } else { Some(own()) });
            }
            1 | 2 if depth < 3 => scope(program, handles, depth),
            3 => drop(program.turn.step()),
            _ => program.use_one(handles),
        }
    }
}

fn run(turn: &Turn, seed: u64) -> usize {
    let (place, mut dice) = (Place::primary(0), Dice(seed));
    let streams = [place.non_blocking(), place.blocking(), place.blocking(), place.legacy()];
    let kinds = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];
    let kind = kinds[dice.below(kinds.len())];
    let data = Arc::new(CudaBuffer::zeroed(kind, 0, DType::I16, LEN).unwrap());
    let own = Arc::new(Row { data, len: LEN });
    let device = own.info().unwrap().device();
    let form_on_host = [0, 2, 4][dice.below(3)];
    let (home, is_imported) = (streams[dice.below(streams.len())], dice.below(2) == 0);
    let mut program = Program {
        turn,
        dice,
        own,
        kind,
        device,
        home,
        is_imported,
        form_on_host,
        streams: &streams,
        queued: 0,
        open: 0,
        refusals: 0,
    };
    let mut handles = Vec::new();
    steps(&mut program, &mut handles, 0);
    let refusals = program.refusals;
    drop((handles, program));
    turn.run_all();
    while finish_releases() != 0 {}
    for stream in &streams[..3] {
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
    let mut refusals = 0;
    for seed in seeds {
        turn.set_seed(seed);
        let ended = catch_unwind(AssertUnwindSafe(|| run(&turn, seed)));
        let reports = turn.take_reports();
        assert!(reports.is_empty(), "seed {seed}: {reports:#?}");
        refusals += ended.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert_ne!(refusals, 0, "no door is refused");
}
