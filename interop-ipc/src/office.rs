//! The producer's side: what a process offers, and who has it open. The thread of [`service`](crate::service) answers.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use interop_core::__private::PerProcess;
use interop_core::{Error, ErrorKind, Refused, Result};
use rustix::event::EventfdFlags;

use crate::block::Block;
use crate::errors::{gone, system};
use crate::message::Nonce;
use crate::service;
use crate::socket::{Address, MAX_ADDRESS, random};

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
    pub(crate) block: Arc<Block>,
    /// The message says it too, but may have been changed.
    pub(crate) is_read_only: bool,
    pub(crate) expires: Instant,
    /// `None` only while this is dropped.
    end: Option<Arc<OfferEnd<dyn Send>>>,
}

/// How far an offer has ended, and the owner of the array until its parcel takes it back. Without a parcel, the last one that has the
/// array drops the owner.
struct OfferEnd<A: ?Sized> {
    is_withdrawn: AtomicBool,
    /// Whether nobody can open the array, or has it open.
    is_returned: Mutex<bool>,
    changed: Condvar,
    /// An `Option`, behind a `dyn Send`.
    owner: Mutex<A>,
}

impl Kept {
    /// Whether an array that was not used must not be offered again.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.end.as_ref().is_none_or(|end| end.is_withdrawn.load(Ordering::Relaxed))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(end) = self.end.take() else { return };
        *lock(&end.is_returned) = true;
        end.changed.notify_all();
        // The owner runs code of the program. The thread of the office must survive a drop that panics; the panic was printed.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(end)));
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

static OFFICE: PerProcess<Result<Arc<Office>>> = PerProcess::new(|_| Office::start());

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    /// The office of this process. The first call starts its thread.
    fn get() -> Result<&'static Arc<Self>> {
        OFFICE.get().as_ref().map_err(Clone::clone)
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

    fn wake(&self) {
        // A counter that is full wakes the thread as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl State {
    /// Records that a process has opened an array, and returns the number of the lease.
    pub(crate) fn add_lease(&mut self, process: i32) -> u64 {
        self.last_lease += 1;
        self.leases.insert(self.last_lease, Lease { process, since: Instant::now() });
        self.last_lease
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
    block: Arc<Block>,
    is_read_only: bool,
    opens: u32,
    time: Duration,
}

impl Draft {
    /// Prepares the offer of an array in a block. `write` makes the message.
    pub(crate) fn new(
        (block, is_read_only): (Arc<Block>, bool),
        opens: u32,
        time: Duration,
        write: impl FnOnce(&Block, Nonce, Address) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        if opens == 0 {
            return Err(Error::new(ErrorKind::Unsupported, "opens", 0, "1 or more"));
        }
        let office = Office::get()?.clone();
        let nonce = random()?;
        let address = office.state().address.clone();
        let bytes = write(&block, nonce, address)?;
        Ok(Self { bytes, nonce, office, block, is_read_only, opens, time })
    }

    /// Offers the array, and keeps its owner.
    pub(crate) fn offer<A: Send + 'static>(self, owner: A) -> Parcel<A> {
        let Self { bytes, nonce, office, block, is_read_only, opens, time } = self;
        let end = Arc::new(OfferEnd {
            is_withdrawn: AtomicBool::new(false),
            is_returned: Mutex::new(false),
            changed: Condvar::new(),
            owner: Mutex::new(Some(owner)),
        });
        let now = Instant::now();
        let kept = Kept {
            nonce,
            block,
            is_read_only,
            // A time that no clock can show is a century.
            expires: now.checked_add(time).unwrap_or(now + Duration::from_secs(100 * 365 * 86400)),
            end: Some(end.clone()),
        };
        office.state().offers.insert(nonce, Offer { kept: Arc::new(kept), left: opens });
        // The thread may sleep for longer than this offer lasts.
        office.wake();
        Parcel { bytes, nonce, office, end }
    }
}

impl<A> Parcel<A> {
    /// The message: at most 4096 plain bytes, about 160 for an array of three axes. Send them over any channel.
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
        let refused = |parcel, error| Err(Refused { value: Box::new(parcel), error });
        if self.office.process != std::process::id() {
            return refused(self, gone("it was offered by the process that this one was forked from"));
        }
        self.withdraw();
        let returned = lock(&self.end.is_returned);
        let waited = self.end.changed.wait_timeout_while(returned, time, |returned| !*returned);
        let is_late = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        // Only this method takes the owner, and it has the only parcel.
        let owner = if is_late { None } else { lock(&self.end.owner).take() };
        let found = || format!("an array that another process has had open for {time:?}");
        match owner {
            Some(owner) => Ok(owner),
            None => refused(
                self,
                Error::new(ErrorKind::AlreadyBorrowed, "parcel", found(), "an array that nobody has open"),
            ),
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
