//! The consumer's side: opens arrays of other processes.

#![expect(unsafe_code, reason = "makes an import of mapped memory")]

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use interop_core::__private::PerProcess;
use interop_core::storage::Owner;
use interop_core::{Error, ErrorKind, Import, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::block::Mapping;
use crate::errors::{gone, malformed, system};
use crate::message::Message;
use crate::office::lock;
use crate::page::{Page, SLOTS};
use crate::service::{
    ANSWER_BYTES, BLOCK, CLOSE, CLOSE_BYTES, GIVEN, NO_SLOT, NOT_OFFERED, OPEN, OPEN_BYTES, PAGE, REFUSE,
};
use crate::socket::{Address, Peer};

/// How long a producer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the office of another process.
struct Connection {
    peer: Peer,
    /// The process that made it. A forked child makes its own, and gives nothing back that its parent has.
    process: u32,
    /// Locked for a request and its answer.
    state: Mutex<Visit>,
}

#[derive(Default)]
struct Visit {
    page: Option<Arc<Page>>,
    /// The blocks that are in use, by their number, and whether they are mapped for writes.
    blocks: HashMap<(u64, bool), Weak<Mapping>>,
    /// Whether an answer was lost, so that the next one would be taken for it.
    is_broken: bool,
}

static CONNECTIONS: PerProcess<Mutex<HashMap<Address, Arc<Connection>>>> =
    PerProcess::new(|_| Mutex::new(HashMap::new()));

/// What the producer keeps for this process until it is given back.
struct Lease {
    connection: Arc<Connection>,
    page: Arc<Page>,
    slot: u32,
    number: u64,
}

/// An array of another process. Its drop gives it back.
struct OpenArray {
    // First: it is unmapped before it is given back.
    mapping: Arc<Mapping>,
    _lease: Lease,
}

/// The answer of an office.
struct Answer {
    slot: u32,
    number: u64,
    is_read_only: bool,
    page: Option<OwnedFd>,
    block: Option<OwnedFd>,
}

impl Connection {
    /// Returns the connection to an office, which may be a new one.
    fn to(address: &Address) -> Result<Arc<Self>> {
        let mut all = lock(CONNECTIONS.get());
        // Another process may listen at the path of one that has ended.
        if let Some(known) = all.get(address).filter(|known| !known.peer.has_ended()) {
            return Ok(known.clone());
        }
        // Arrays that are still open keep their connection.
        all.retain(|_, connection| !connection.peer.has_ended());
        let peer = address.connect()?;
        let connection = Arc::new(Self { peer, process: std::process::id(), state: Mutex::default() });
        all.insert(address.clone(), connection.clone());
        Ok(connection)
    }

    /// Forgets a connection that is of no use any more.
    fn forget(self: &Arc<Self>, address: &Address) {
        let mut all = lock(CONNECTIONS.get());
        if all.get(address).is_some_and(|known| Arc::ptr_eq(known, self)) {
            all.remove(address);
        }
    }

    /// Sends a request, and waits while the office has no room for it.
    fn send(&self, request: &[u8]) -> Result<()> {
        loop {
            match self.peer.send(request, &[]) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(_) => return Err(gone("the producer's process has ended")),
            }
        }
    }

    fn wait_for_room(&self) -> Result<()> {
        let timeout = Timespec::try_from(PATIENCE).ok();
        match poll(&mut [PollFd::new(&self.peer.socket, PollFlags::OUT)], timeout.as_ref()) {
            Ok(0) => Err(gone(format_args!("the producer's process has received nothing for {PATIENCE:?}"))),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(system("poll")(errno)),
        }
    }

    /// Asks for an array. The inner error is that of an office that refuses; after any other, the connection is of no use.
    fn ask(&self, message: &Message, lacks: u8) -> Result<Result<Answer>> {
        let mut request = [OPEN; OPEN_BYTES];
        request[1..17].copy_from_slice(&message.nonce);
        request[17] = lacks;
        self.send(&request)?;
        let mut bytes = [0; ANSWER_BYTES + 1];
        let (length, descriptors) = loop {
            self.peer.wait(PATIENCE)?;
            match self.peer.receive(&mut bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) | Ok((0, _)) => return Err(gone("the producer's process has ended")),
                Ok(received) => break received,
            }
        };
        if length != ANSWER_BYTES {
            return Err(malformed("answer", format_args!("{length} bytes"), format_args!("{ANSWER_BYTES}")));
        }
        if let Some(refusal) = refusal(bytes[0])? {
            return Ok(Err(refusal));
        }
        let slot = u32::from_le_bytes(core::array::from_fn(|index| bytes[4 + index]));
        let number = u64::from_le_bytes(core::array::from_fn(|index| bytes[8 + index]));
        if slot >= SLOTS || bytes[1] != lacks {
            return Err(malformed(
                "answer",
                format_args!("slot {slot}"),
                "a slot of the page, and what was asked for",
            ));
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = |what: u8| if lacks & what != 0 { descriptors.next() } else { None };
        let is_read_only = bytes[2] != 0;
        Ok(Ok(Answer { slot, number, is_read_only, page: next(PAGE), block: next(BLOCK) }))
    }
}

/// What the first byte of an answer refuses.
fn refusal(answer: u8) -> Result<Option<Error>> {
    let refusal = match answer {
        GIVEN => return Ok(None),
        NOT_OFFERED => gone(
            "the array is no longer offered: it was opened as often as it may be, its time is over, or it was withdrawn",
        ),
        NO_SLOT => {
            let found = format!("more than {SLOTS} arrays of one process");
            Error::new(
                ErrorKind::OutOfMemory,
                "parcel",
                found,
                format_args!("at most {SLOTS} that are open at a time"),
            )
        }
        other => return Err(malformed("answer", other, "0 to 2")),
    };
    Ok(Some(refusal))
}

/// Opens an array of another process.
pub(crate) fn open(bytes: &[u8]) -> Result<Import> {
    let message = Message::read(bytes)?;
    let connection = Connection::to(&message.office)?;
    let mut visit = lock(&connection.state);
    let opened = if visit.is_broken {
        Err(gone("the connection has ended"))
    } else {
        receive(&connection, &mut visit, &message)
    };
    let is_broken = visit.is_broken;
    drop(visit);
    if is_broken {
        connection.forget(&message.office);
    }
    let array = opened?;
    let info = message.describe(array.mapping.address())?;
    // SAFETY: 1: the owner keeps the mapping and the producer's lease, and a file in memory is initialized. It is mapped for writes
    // if the message states so. 2: the memory is in no `Box`.
    Ok(unsafe { Import::from_parts(info, Owner::new(array)) })
}

/// Asks for an array and maps what this process does not have.
fn receive(connection: &Arc<Connection>, visit: &mut Visit, message: &Message) -> Result<OpenArray> {
    let key = (message.block, !message.is_read_only);
    let known = visit.blocks.get(&key).and_then(Weak::upgrade);
    let lacks = if visit.page.is_none() { PAGE } else { 0 } | if known.is_none() { BLOCK } else { 0 };
    // Until an answer has come.
    visit.is_broken = true;
    let answer = connection.ask(message, lacks)?;
    visit.is_broken = false;
    let answer = answer?;
    let (slot, number) = (answer.slot, answer.number);
    match take(visit, known, &answer, message) {
        Ok((page, mapping)) => {
            visit.blocks.retain(|_, mapping| mapping.strong_count() > 0);
            visit.blocks.insert(key, Arc::downgrade(&mapping));
            Ok(OpenArray { mapping, _lease: Lease { connection: connection.clone(), page, slot, number } })
        }
        Err(error) => {
            // The array was not used, and may be opened again.
            visit.is_broken = connection.send(&closing(REFUSE, slot, number)).is_err();
            Err(error)
        }
    }
}

/// Maps what came with an answer, and checks it.
fn take(
    visit: &mut Visit,
    known: Option<Arc<Mapping>>,
    answer: &Answer,
    message: &Message,
) -> Result<(Arc<Page>, Arc<Mapping>)> {
    check_writable(message, answer.is_read_only)?;
    let page = match (&visit.page, &answer.page) {
        (Some(page), _) => page.clone(),
        (None, Some(file)) => Arc::new(Page::of_other(file)?),
        (None, None) => return Err(no_descriptor("page")),
    };
    visit.page = Some(page.clone());
    if !page.is_ready(answer.slot, answer.number) {
        let found = "a number that is not in the page";
        return Err(malformed("answer", found, "an array whose work is done"));
    }
    Ok((page, map(known, answer.block.as_ref(), message)?))
}

/// The system drops descriptors for which a process has no room.
fn no_descriptor(what: &str) -> Error {
    let found = format!("no descriptor of the {what}");
    Error::new(ErrorKind::OutOfMemory, "parcel", found, "fewer open files in this process")
}

/// The message decides whether the memory is mapped for writes. A changed one must not.
fn check_writable(message: &Message, is_read_only: bool) -> Result<()> {
    if is_read_only && !message.is_read_only {
        let found = "a message about a writable array, which its producer has shared for reading";
        return Err(Error::new(ErrorKind::ReadOnly, "parcel.flags", found, "the message as it was sent"));
    }
    Ok(())
}

/// Returns the mapping of the block of a message.
fn map(known: Option<Arc<Mapping>>, file: Option<&OwnedFd>, message: &Message) -> Result<Arc<Mapping>> {
    let mapping = match (known, file) {
        (Some(known), _) => known,
        (None, Some(file)) => Arc::new(Mapping::of_other(file, message.block_bytes, !message.is_read_only)?),
        (None, None) => return Err(no_descriptor("block")),
    };
    // An earlier message may have told another size.
    if mapping.bytes() as u64 != message.block_bytes {
        let (found, allowed) = (message.block_bytes, mapping.bytes());
        return Err(Error::new(
            ErrorKind::OutOfBounds,
            "parcel.block",
            format_args!("{found} bytes"),
            format_args!("{allowed}"),
        ));
    }
    Ok(mapping)
}

fn closing(request: u8, slot: u32, number: u64) -> [u8; CLOSE_BYTES] {
    let mut bytes = [request; CLOSE_BYTES];
    bytes[1..5].copy_from_slice(&slot.to_le_bytes());
    bytes[5..].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child gives nothing back that its parent has.
        if self.connection.process == std::process::id() {
            self.page.set_done(self.slot, self.number);
            // A producer that is gone needs nothing back.
            let _ = self.connection.send(&closing(CLOSE, self.slot, self.number));
        }
    }
}
