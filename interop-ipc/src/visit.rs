//! The consumer's side: opens arrays of other processes.

#![expect(unsafe_code, reason = "makes an import of mapped memory")]

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use interop_core::__private::PerProcess;
use interop_core::__private::processes::{EndsInNumber, IpcHandle, SharedNumber, await_number};
use interop_core::cuda::Context;
use interop_core::storage::Owner;
use interop_core::{Device, Error, ErrorKind, Import, Result, StreamHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::block::Mapping;
use crate::device_block::{MAX_PIECES, OpenedBlock, device_of};
use crate::errors::{gone, malformed, system};
use crate::message::Message;
use crate::office::{LastArray, Office, Producer, lock};
use crate::page::{Page, SLOTS};
use crate::service::{
    ANSWER_BYTES, BLOCK, CLOSE, CLOSE_BYTES, FILE, GIVEN, HANDLE, HANDLE_BYTES, NO_SLOT, NOT_OFFERED, OPEN,
    OPEN_BYTES, PAGE, PIECES, REFUSE, REFUSED_BY_DRIVER,
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
    /// The numbers for which streams wait, and some for which they have waited.
    awaited: Mutex<Vec<(Arc<Page>, u32, u64)>>,
}

/// A block of another process.
enum Opened {
    Host(Mapping),
    Device(OpenedBlock),
}

#[derive(Default)]
struct Visit {
    page: Option<Arc<Page>>,
    /// The blocks that are in use, by their number, and whether they are mapped for writes.
    blocks: HashMap<(u64, bool), Weak<Opened>>,
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
    /// Whether the number behind the work is written by a stream.
    is_number_queued: bool,
}

/// An array of another process. Its drop gives it back.
struct OpenArray {
    // First: it is unmapped before it is given back.
    block: Option<Arc<Opened>>,
    /// `None`, as the block, once the number behind the work is queued.
    lease: Option<Lease>,
}

/// An array whose block nobody else uses.
struct Last {
    // First, as above: the producer may free it after that.
    _block: Opened,
    lease: Lease,
}

/// The answer of an office.
struct Answer {
    slot: u32,
    number: u64,
    is_read_only: bool,
    page: Option<OwnedFd>,
    block: Option<Given>,
}

/// What an office has given to map a block.
enum Given {
    File(OwnedFd),
    Handle(IpcHandle),
    /// Each with its bytes.
    Pieces(Vec<(OwnedFd, u64)>),
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
        let (state, awaited) = (Mutex::default(), Mutex::default());
        let connection = Arc::new(Self { peer, process: std::process::id(), state, awaited });
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
        let mut bytes = [0; ANSWER_BYTES + 8 * MAX_PIECES + 1];
        let (length, descriptors) = loop {
            self.peer.wait(PATIENCE)?;
            match self.peer.receive(&mut bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) | Ok((0, _)) => return Err(gone("the producer's process has ended")),
                Ok(received) => break received,
            }
        };
        let kind = bytes[3];
        let is_whole = match (kind, length.checked_sub(ANSWER_BYTES)) {
            (FILE, Some(0)) | (HANDLE, Some(HANDLE_BYTES)) => true,
            (PIECES, Some(sizes)) => sizes % 8 == 0 && (1..=MAX_PIECES).contains(&(sizes / 8)),
            _ => false,
        };
        if !is_whole {
            return Err(malformed("answer", format_args!("{length} bytes"), "those of an answer"));
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
        let page = if lacks & PAGE != 0 { descriptors.next() } else { None };
        let block = match kind {
            _ if lacks & BLOCK == 0 => None,
            FILE => descriptors.next().map(Given::File),
            PIECES => {
                let sizes = bytes[ANSWER_BYTES..length].chunks_exact(8);
                let sizes = sizes.map(|size| u64::from_le_bytes(core::array::from_fn(|index| size[index])));
                let (count, pieces) = (sizes.len(), descriptors.zip(sizes).collect::<Vec<_>>());
                (pieces.len() == count).then_some(Given::Pieces(pieces))
            }
            _ => Some(Given::Handle(IpcHandle(core::array::from_fn(|index| bytes[ANSWER_BYTES + index])))),
        };
        Ok(Ok(Answer { slot, number, is_read_only: bytes[2] != 0, page, block }))
    }

    /// Makes a stream wait for the producer's work on an array, and returns the stream.
    fn await_ready(
        self: &Arc<Self>,
        lease: &Lease,
        device: Device,
        stream: Option<StreamHandle>,
    ) -> Result<StreamHandle> {
        let Lease { page, slot, number, .. } = lease;
        {
            let mut awaited = lock(&self.awaited);
            awaited.retain(|(page, slot, number)| !page.is_ready(*slot, *number));
            if awaited.is_empty() {
                let producer: Weak<Self> = Arc::downgrade(self);
                Office::watch(producer)?;
            }
            awaited.push((page.clone(), *slot, *number));
        }
        await_number(page.shared_ready(*slot, *number), stream, Context::primary(device.device_id)?, device)
    }
}

impl Producer for Connection {
    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn end_waits(&self) {
        for (page, slot, number) in lock(&self.awaited).drain(..) {
            page.set_ready(slot, number);
        }
    }
}

impl Opened {
    fn address(&self) -> usize {
        match self {
            Self::Host(mapping) => mapping.address(),
            Self::Device(block) => block.address(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Host(mapping) => mapping.bytes(),
            Self::Device(block) => block.bytes(),
        }
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
        REFUSED_BY_DRIVER => gone("the producer's driver does not share the memory any more"),
        other => return Err(malformed("answer", other, "0 to 3")),
    };
    Ok(Some(refusal))
}

/// Opens an array of another process. Its memory is used on a stream, or on one of the library.
pub(crate) fn open(bytes: &[u8], stream: Option<StreamHandle>) -> Result<Import> {
    let message = Message::read(bytes)?;
    let device = message.device.as_ref().map_or(Ok(Device::CPU), device_of)?;
    let connection = Connection::to(&message.office)?;
    let mut visit = lock(&connection.state);
    let opened = if visit.is_broken {
        Err(gone("the connection has ended"))
    } else {
        receive(&connection, &mut visit, &message, device)
    };
    let is_broken = visit.is_broken;
    drop(visit);
    if is_broken {
        connection.forget(&message.office);
    }
    let array = opened?;
    let block = array.block.as_deref();
    let on_device = matches!(block, Some(Opened::Device(_)));
    let stream = if on_device {
        match &array.lease {
            Some(lease) => connection.await_ready(lease, device, stream)?,
            None => unreachable!("a lease is there until the drop"),
        }
    } else {
        StreamHandle::NothingPending
    };
    let info = message.describe(block.map_or(0, Opened::address), device, stream)?;
    let owner = if on_device { Owner::ending_in_number(Box::new(array), &info) } else { Owner::new(array) };
    // SAFETY: 1: the owner keeps the mapping and the producer's lease; memory of another process is initialized. It is mapped for
    // writes if the message states so. 2: the memory is in no `Box`. 3: the stream waits for the producer's work, and is live as the
    // caller has promised of a `StreamHandle`, or one of the library.
    Ok(unsafe { Import::from_parts(info, owner) })
}

/// Asks for an array and maps what this process does not have.
fn receive(
    connection: &Arc<Connection>,
    visit: &mut Visit,
    message: &Message,
    device: Device,
) -> Result<OpenArray> {
    let key = (message.block, !message.is_read_only);
    let known = visit.blocks.get(&key).and_then(Weak::upgrade);
    let lacks = if visit.page.is_none() { PAGE } else { 0 } | if known.is_none() { BLOCK } else { 0 };
    // Until an answer has come.
    visit.is_broken = true;
    let answer = connection.ask(message, lacks)?;
    visit.is_broken = false;
    let answer = answer?;
    let (slot, number) = (answer.slot, answer.number);
    match take(visit, known, &answer, message, device) {
        Ok((page, block)) => {
            visit.blocks.retain(|_, block| block.strong_count() > 0);
            visit.blocks.insert(key, Arc::downgrade(&block));
            let connection = connection.clone();
            let lease = Lease { connection, page, slot, number, is_number_queued: false };
            Ok(OpenArray { block: Some(block), lease: Some(lease) })
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
    known: Option<Arc<Opened>>,
    answer: &Answer,
    message: &Message,
    device: Device,
) -> Result<(Arc<Page>, Arc<Opened>)> {
    check_writable(message, answer.is_read_only)?;
    let page = match (&visit.page, &answer.page) {
        (Some(page), _) => page.clone(),
        (None, Some(file)) => Arc::new(Page::of_other(file)?),
        (None, None) => return Err(no_descriptor("page")),
    };
    visit.page = Some(page.clone());
    let block = map(known, answer.block.as_ref(), message, device)?;
    match &*block {
        Opened::Device(block) => page.register(block.context(), device)?,
        Opened::Host(_) if page.is_ready(answer.slot, answer.number) => {}
        Opened::Host(_) => {
            let found = "a number that is not in the page";
            return Err(malformed("answer", found, "an array whose work is done"));
        }
    }
    Ok((page, block))
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
fn map(
    known: Option<Arc<Opened>>,
    given: Option<&Given>,
    message: &Message,
    device: Device,
) -> Result<Arc<Opened>> {
    let mapping = match (known, given) {
        (Some(known), _) => known,
        (None, Some(Given::File(file))) => {
            let mapping = Mapping::of_other(file, message.block_bytes, !message.is_read_only)?;
            Arc::new(Opened::Host(mapping))
        }
        (None, Some(Given::Handle(handle))) if device != Device::CPU => {
            Arc::new(Opened::Device(OpenedBlock::open(*handle, device, message.block_bytes)?))
        }
        (None, Some(Given::Pieces(pieces))) if device != Device::CPU => {
            let (bytes, is_writable) = (message.block_bytes, !message.is_read_only);
            Arc::new(Opened::Device(OpenedBlock::map(pieces, device, bytes, is_writable)?))
        }
        (None, Some(Given::Handle(_) | Given::Pieces(_))) => {
            return Err(other_memory("memory of a GPU", "memory of the host"));
        }
        (None, None) => return Err(no_descriptor("block")),
    };
    // A message that was changed may tell of another array's block. An array of a GPU without elements has none there.
    let on_device = matches!(*mapping, Opened::Device(_));
    if on_device != (device != Device::CPU) && message.shape.iter().all(|extent| *extent != 0) {
        return Err(other_memory("memory of another kind", "that of the message"));
    }
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

#[cold]
fn other_memory(found: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::Device, "parcel.kind", found, allowed)
}

impl EndsInNumber for OpenArray {
    fn number(&self) -> Option<SharedNumber> {
        self.lease.as_ref().map(|lease| lease.page.shared_done(lease.slot, lease.number))
    }

    fn was_queued(&mut self) {
        let (Some(mut lease), Some(block)) = (self.lease.take(), self.block.take()) else { return };
        lease.is_number_queued = true;
        if let Some(block) = Arc::into_inner(block) {
            // Without an office nothing was opened.
            let _ = Office::drop_when_done(Box::new(Last { _block: block, lease }));
        }
    }
}

impl LastArray for Last {
    fn is_done(&self) -> bool {
        self.lease.page.is_done(self.lease.slot, self.lease.number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child gives nothing back that its parent has.
        if self.connection.process == std::process::id() {
            if !self.is_number_queued {
                self.page.set_done(self.slot, self.number);
            }
            // A producer that is gone needs nothing back.
            let _ = self.connection.send(&closing(CLOSE, self.slot, self.number));
        }
    }
}
