//! The producer's side: what a process offers, and who has it open. The thread of [`service`](crate::service) answers.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use interop_core::__private::PerProcess;
use interop_core::__private::processes::SharedWork;
use interop_core::{Error, ErrorKind, Refused, Result, StreamHandle};
use rustix::event::EventfdFlags;

use crate::block::Block;
use crate::device_block::DeviceBlock;
use crate::errors::{gone, system};
use crate::message::Nonce;
use crate::page::Turn;
use crate::service;
use crate::socket::{Address, MAX_ADDRESS, random};
use crate::visit::Connection;

/// The office of this process.
pub(crate) struct Office {
    /// The process whose thread answers. A forked child has an office of its own.
    process: u32,
    state: Mutex<State>,
    /// Wakes the thread.
    pub(crate) wake: OwnedFd,
}

/// What the office knows.
pub(crate) struct State {
    pub(crate) offers: HashMap<Nonce, Offer>,
    /// Who has what open, by a number of each lease.
    pub(crate) leases: BTreeMap<u64, Lease>,
    last_lease: u64,
    /// Where messages send their readers.
    address: Address,
    /// Sockets that the thread has not taken yet.
    pub(crate) new_listeners: Vec<OwnedFd>,
    /// The offices that this process has visited.
    pub(crate) producers: Vec<Arc<Connection>>,
    /// When the next offer ends, or earlier.
    pub(crate) next_end: Option<Instant>,
}

/// Memory that others can use.
pub(crate) enum Memory {
    Host(Arc<Block>),
    /// Memory of a GPU, and the work on it when it was offered.
    Device(DeviceBlock, SharedWork),
}

/// An array that may be opened.
pub(crate) struct Offer {
    pub(crate) kept: Arc<Kept>,
    /// How often.
    pub(crate) left: u32,
}

/// The owner of an array, kept for those who may open it and those who have it open.
pub(crate) struct Kept {
    pub(crate) nonce: Nonce,
    pub(crate) memory: Memory,
    /// The message says it too, but may have been changed.
    pub(crate) is_read_only: bool,
    pub(crate) may_rest: bool,
    pub(crate) expires: Instant,
    // Last: the memory is given up before it tells.
    end: TellReturned,
}

/// Tells the parcel, when it is dropped, that nobody has the array any more. `None` only while it is dropped.
struct TellReturned {
    end: Option<Arc<OfferEnd<dyn Send>>>,
    on_device: bool,
}

/// How far an offer has ended, and the owner of the array until its parcel takes it back. Without a parcel, the last one that has the
/// array drops the owner.
struct OfferEnd<A: ?Sized> {
    is_withdrawn: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// An `Option`, behind a `dyn Send`.
    owner: Mutex<A>,
}

#[derive(Default)]
struct Progress {
    /// How many use the array.
    open: usize,
    /// The numbers of those that have ended their use. A stream waits for them even if they are reached, so that tools that check the
    /// order see it.
    awaited: Vec<Turn>,
    /// Whether nobody can open the array, or has it open, and all work is done.
    is_returned: bool,
}

/// The owner of an array, kept for one that has it open.
pub(crate) struct Held {
    kept: Arc<Kept>,
    lease: u64,
    is_in_use: bool,
}

impl Held {
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The other process uses the array no more, once this number is reached.
    pub(crate) fn end_use(&mut self, turn: &Turn) {
        if core::mem::replace(&mut self.is_in_use, false) {
            self.kept.with_progress(|progress| {
                progress.open -= 1;
                progress.awaited.push(turn.clone());
            });
        }
    }

    /// It was not used, and may be opened once more.
    pub(crate) fn offer_again(self, office: &Office) {
        let is_withdrawn = |end: &Arc<OfferEnd<dyn Send>>| end.is_withdrawn.load(Ordering::Relaxed);
        let mut state = office.state();
        if !self.kept.end.end.as_ref().is_none_or(is_withdrawn) {
            let offer = Offer { kept: self.kept.clone(), left: 0 };
            state.offers.entry(self.kept.nonce).or_insert(offer).left += 1;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(office) = Office::get() {
            office.state().leases.remove(&self.lease);
        }
        if self.is_in_use {
            self.kept.with_progress(|progress| progress.open -= 1);
        }
    }
}

impl Kept {
    fn with_progress(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(end) = &self.end.end {
            change(&mut lock(&end.progress));
            end.changed.notify_all();
        }
    }
}

impl Drop for TellReturned {
    fn drop(&mut self) {
        let Some(end) = self.end.take() else { return };
        lock(&end.progress).is_returned = true;
        end.changed.notify_all();
        if self.on_device {
            return run_aside(move || drop(end));
        }
        // The owner runs code of the program. The thread of the office must survive a drop that panics; the panic was printed.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(end)));
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Runs code that may wait for a device on a thread for such code, which the first call starts. The device may wait for a number of a
/// process that has ended: the thread of the office writes it, and must not wait itself.
pub(crate) fn run_aside(work: impl FnOnce() + Send + 'static) {
    static ASIDE: PerProcess<Mutex<Option<Sender<Work>>>> = PerProcess::new(|_| Mutex::new(None));
    let mut aside = lock(ASIDE.get());
    if aside.is_none() {
        let (sender, receiver) = channel::<Work>();
        // A panic was printed.
        let run = move || receiver.into_iter().for_each(|work| drop(catch_unwind(AssertUnwindSafe(work))));
        *aside = thread::Builder::new().name("interop-ipc-drop".to_owned()).spawn(run).ok().map(|_| sender);
    }
    let sender = aside.clone();
    drop(aside);
    match sender {
        // Its thread never ends.
        Some(sender) => drop(sender.send(Box::new(work))),
        None => work(),
    }
}

/// An array of this process that another one has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The other process; 0 if it is in a container that hides its number.
    pub process: i32,
    /// When it was opened.
    pub since: Instant,
}

/// How often a thread looks for a number that a GPU will write.
pub(crate) const ROUND: Duration = Duration::from_micros(100);

static OFFICE: PerProcess<Mutex<Option<Arc<Office>>>> = PerProcess::new(|_| Mutex::new(None));

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    /// The office of this process. The first call starts its thread, or a later one, if there was no room for it.
    fn get() -> Result<Arc<Self>> {
        let mut office = lock(OFFICE.get());
        match &*office {
            Some(office) => Ok(office.clone()),
            None => Ok(office.insert(Self::start()?).clone()),
        }
    }

    fn start() -> Result<Arc<Self>> {
        let address = Address::random()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(system("eventfd"))?;
        let state = Mutex::new(State {
            offers: HashMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            new_listeners: vec![address.listen()?],
            producers: Vec::new(),
            next_end: None,
            address,
        });
        let office = Arc::new(Self { process: std::process::id(), state, wake });
        let of_thread = office.clone();
        let started =
            thread::Builder::new().name("interop-ipc".to_owned()).spawn(move || service::run(&of_thread));
        started.map_err(|error| Error::new(ErrorKind::OutOfMemory, "thread", error, ""))?;
        Ok(office)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has the thread end the waits for a producer when its process ends, and close its blocks.
    pub(crate) fn watch(producer: Arc<Connection>) -> Result<()> {
        let office = Self::get()?;
        office.state().producers.push(producer);
        office.wake();
        Ok(())
    }

    /// Wakes the thread, which an office has that watches producers.
    pub(crate) fn wake_thread() {
        if let Ok(office) = Self::get() {
            office.wake();
        }
    }

    fn wake(&self) {
        // A counter that is full wakes the thread as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl State {
    /// Returns the owner of an array that a process may open. It must not be dropped while the state is locked.
    pub(crate) fn offered(&mut self, nonce: &Nonce, process: i32) -> Option<Held> {
        let kept = &self.offers.get(nonce)?.kept;
        if kept.expires <= Instant::now() {
            return None;
        }
        kept.with_progress(|progress| progress.open += 1);
        self.last_lease += 1;
        self.leases.insert(self.last_lease, Lease { process, since: Instant::now() });
        Some(Held { kept: kept.clone(), lease: self.last_lease, is_in_use: true })
    }

    /// Records that an array was opened, unless it was withdrawn meanwhile.
    pub(crate) fn note_opened(&mut self, nonce: &Nonce) {
        if let Some(offer) = self.offers.get_mut(nonce) {
            offer.left -= 1;
            if offer.left == 0 {
                self.offers.remove(nonce);
            }
        }
    }
}

/// A message about an array that this process offers, and the offer itself.
///
/// The offer does not end with this value: it ends when the array was opened as often as it may be, after its time, or by
/// [`withdraw`](Self::withdraw). So the bytes may be sent in one expression.
///
/// The array, of type `A`, is kept for [`take_back`](Self::take_back). If this value is dropped, the array is dropped as soon as nobody
/// can open it, and nobody has it open.
pub struct Parcel<A> {
    bytes: Vec<u8>,
    nonce: Nonce,
    office: Arc<Office>,
    end: Arc<OfferEnd<Option<A>>>,
}

/// An offer that lacks only the owner of the array. Everything that can fail has succeeded.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    nonce: Nonce,
    office: Arc<Office>,
    memory: Memory,
    is_read_only: bool,
    may_rest: bool,
    opens: u32,
    time: Duration,
}

impl Draft {
    /// Prepares the offer of an array. `write` makes the message.
    pub(crate) fn new(
        (memory, is_read_only): (Memory, bool),
        opens: u32,
        time: Duration,
        write: impl FnOnce(&Memory, Nonce, Address) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        if opens == 0 {
            return Err(Error::new(ErrorKind::Unsupported, "opens", 0, "1 or more"));
        }
        let office = Office::get()?;
        let nonce = random()?;
        let address = office.state().address.clone();
        let bytes = write(&memory, nonce, address)?;
        Ok(Self { bytes, nonce, office, memory, is_read_only, may_rest: false, opens, time })
    }

    /// Lets the last array of a block rest in the other process: the block stays mapped for a while, and so the array is kept.
    pub(crate) fn that_may_rest(self) -> Self {
        Self { may_rest: true, ..self }
    }

    /// Offers the array, and keeps its owner.
    pub(crate) fn offer<A: Send + 'static>(self, owner: A) -> Parcel<A> {
        let Self { bytes, nonce, office, memory, is_read_only, may_rest, opens, time } = self;
        let end = Arc::new(OfferEnd {
            is_withdrawn: AtomicBool::new(false),
            progress: Mutex::default(),
            changed: Condvar::new(),
            owner: Mutex::new(Some(owner)),
        });
        let now = Instant::now();
        // A time that no clock can show is a century.
        let expires = now.checked_add(time).unwrap_or(now + Duration::from_secs(100 * 365 * 86400));
        let on_device = matches!(memory, Memory::Device(..));
        let tell = TellReturned { end: Some(end.clone()), on_device };
        let kept = Kept { nonce, memory, is_read_only, may_rest, expires, end: tell };
        let mut state = office.state();
        state.offers.insert(nonce, Offer { kept: Arc::new(kept), left: opens });
        // The thread may sleep for longer than this offer lasts.
        if state.next_end.is_none_or(|end| end > expires) {
            state.next_end = Some(expires);
            office.wake();
        }
        drop(state);
        Parcel { bytes, nonce, office, end }
    }
}

impl<A> Parcel<A> {
    /// The message: at most 4096 plain bytes, about 100 for an array of three axes. Send them over any channel.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Ends the offer: nobody can open the array from now on. Who has it open keeps it.
    pub fn withdraw(&self) {
        // A forked child must not wait for a lock that a thread of its parent held, and the offer is not its own.
        if self.office.process == std::process::id() {
            let mut state = self.office.state();
            self.end.is_withdrawn.store(true, Ordering::Relaxed);
            let offer = state.offers.remove(&self.nonce);
            drop(state);
            // The owner runs code of the program, unless somebody has the array open.
            drop(offer);
        }
    }

    /// Ends the offer, waits until nobody has the array open, and returns it: what [`share_parcel`](crate::ShareParcel::share_parcel)
    /// was given has one handle less, and what [`into_parcel`](crate::ShareParcel::into_parcel) has moved is as the other process has
    /// left it.
    ///
    /// A process that ends gives all arrays back.
    ///
    /// # Errors
    ///
    /// The parcel is returned with the reason. [`ErrorKind::AlreadyBorrowed`] if somebody has the array open after `time`, and
    /// [`leases`] tells who; [`ErrorKind::Gone`] in a forked child of the process that has offered it.
    pub fn take_back(self, time: Duration) -> Result<A, Refused<Self>> {
        let waited = self.wait(time, |progress| progress.is_returned).map(drop);
        self.taken(waited)
    }

    /// As [`take_back`](Self::take_back), as soon as the other processes have given the array back, although their GPUs may still work on
    /// it: `stream` waits for that work. Use the array on this stream. For memory of the host, `stream` means nothing.
    ///
    /// # Errors
    ///
    /// As [`take_back`](Self::take_back), and [`ErrorKind::StreamCapture`] if the stream captures a graph.
    pub fn take_back_on(self, stream: StreamHandle, time: Duration) -> Result<A, Refused<Self>> {
        let waited = self.end_use(Some(stream), time);
        self.taken(waited)
    }

    /// Ends the offer, and waits until nobody uses the array, or makes a stream wait. The array is kept as long as others have its block
    /// mapped.
    #[doc(hidden)]
    pub fn end_use(&self, stream: Option<StreamHandle>, time: Duration) -> Result<()> {
        let Some(stream) = stream else {
            let is_unused =
                |progress: &Progress| progress.open == 0 && progress.awaited.iter().all(Turn::is_done);
            return self.wait(time, is_unused).map(drop);
        };
        let progress = self.wait(time, |progress| progress.open == 0)?;
        progress.awaited.iter().try_for_each(|turn| turn.await_done(stream))
    }

    /// Ends the offer, and waits for what others do with the array.
    fn wait(&self, time: Duration, is_back: impl Fn(&Progress) -> bool) -> Result<MutexGuard<'_, Progress>> {
        if self.office.process != std::process::id() {
            return Err(gone("it was offered by the process that this one was forked from"));
        }
        self.withdraw();
        let start = Instant::now();
        let mut progress = lock(&self.end.progress);
        while !is_back(&progress) {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                let found = format!("an array that another process has had open for {time:?}");
                return Err(Error::new(
                    ErrorKind::AlreadyBorrowed,
                    "parcel",
                    found,
                    "an array that nobody has open",
                ));
            }
            // Nobody tells that a GPU has written a number.
            let left = if progress.open == 0 { left.min(ROUND) } else { left };
            let waited = self.end.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(progress)
    }

    fn taken(self, waited: Result<()>) -> Result<A, Refused<Self>> {
        // Only this method takes the owner, and it has the only parcel.
        match waited.map(|()| lock(&self.end.owner).take()) {
            Ok(Some(owner)) => Ok(owner),
            Ok(None) => unreachable!("a parcel is taken back once"),
            Err(error) => Err(Refused { value: Box::new(self), error }),
        }
    }
}

impl<A> AsRef<[u8]> for Parcel<A> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<A> core::fmt::Debug for Parcel<A> {
    /// Without the bytes: who knows them can open the array.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Parcel").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Lists the arrays of this process that others have open. Their memory is kept for as long.
///
/// # Errors
///
/// If the thread that answers other processes cannot be started.
pub fn leases() -> Result<Vec<Lease>> {
    Ok(Office::get()?.state().leases.values().copied().collect())
}

/// Also listens at a path, which the messages of this process name from now on. Processes in containers can open arrays of each
/// other if both have the folder.
///
/// A socket that an ended process has left at the path is replaced. The folder should be accessible to this user only.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for a relative path or one of more than 107 bytes, if something else is there, and if the socket
/// cannot be made.
pub fn listen_at(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if !path.is_absolute() || bytes.len() > MAX_ADDRESS || bytes.contains(&0) {
        let allowed = format!("an absolute path of at most {MAX_ADDRESS} bytes");
        return Err(Error::new(ErrorKind::Unsupported, "path", path.display(), allowed));
    }
    let office = Office::get()?;
    let address = Address::Path(bytes.to_vec());
    let listener = match address.listen() {
        Err(_) if is_left_over(path, &address) => {
            std::fs::remove_file(path).map_err(|error| {
                Error::new(ErrorKind::Unsupported, "path", error, "a socket that can be replaced")
            })?;
            address.listen()?
        }
        listener => listener?,
    };
    let mut state = office.state();
    state.new_listeners.push(listener);
    state.address = address;
    drop(state);
    office.wake();
    Ok(())
}

/// Whether there is a socket at the path, and nobody listens.
fn is_left_over(path: &Path, address: &Address) -> bool {
    use std::os::unix::fs::FileTypeExt;

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && address.connect().is_err_and(|error| error.kind() == ErrorKind::Gone)
}
