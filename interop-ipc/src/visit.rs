//! The consumer's side: opens arrays of other processes.

#![expect(unsafe_code, reason = "makes an import of mapped memory")]

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use interop_core::__private::PerProcess;
use interop_core::__private::processes::{EndsInNumber, IpcHandle, SharedNumber, await_number};
use interop_core::cuda::Context;
use interop_core::storage::Owner;
use interop_core::{Device, Error, ErrorKind, Import, Result, StreamHandle};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::block::Mapping;
use crate::device_block::{ImportedPool, OpenedBlock, device_of};
use crate::errors::{gone, malformed};
use crate::idle::{Blocks, Closing, Key, Opened};
use crate::message::{MAX_BYTES, Message, decode, encode};
use crate::office::{Office, lock, run_aside};
use crate::page::{Page, SLOTS, Turn};
use crate::protocol::{Answer, Given, Handle, Lacks, Refusal, Request};
use crate::socket::{Address, Peer};

/// How long a producer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a process may take to end.
const DYING: Duration = Duration::from_millis(20);

/// A connection to the office of another process.
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    /// The process that made it. A forked child makes its own, and gives nothing back that its parent has.
    process: u32,
    /// Locked for a request and its answer.
    state: Mutex<Visit>,
    blocks: Mutex<Blocks>,
    /// The pools of which memory is open, by their numbers.
    pools: Mutex<HashMap<(u64, i32), Weak<ImportedPool>>>,
    /// The numbers for which streams wait, and some for which they have waited.
    awaited: Mutex<Vec<Turn>>,
}

#[derive(Default)]
struct Visit {
    page: Option<Arc<Page>>,
    /// Whether an answer was lost, so that the next one would be taken for it.
    is_broken: bool,
}

static CONNECTIONS: PerProcess<Mutex<HashMap<Address, Arc<Connection>>>> =
    PerProcess::new(|_| Mutex::new(HashMap::new()));

/// A block of another process in use. Its drop ends that, and gives the array back, if there is one.
struct OpenArray {
    connection: Arc<Connection>,
    key: Key,
    block: Option<Arc<Opened>>,
    turn: Option<Turn>,
    may_rest: bool,
    /// Whether the number behind the work is written by a stream.
    is_number_queued: bool,
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
        let connection = Arc::new(Self {
            peer,
            process: std::process::id(),
            state: Mutex::default(),
            blocks: Mutex::default(),
            pools: Mutex::default(),
            awaited: Mutex::default(),
        });
        Office::watch(connection.clone())?;
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
    fn send(&self, request: &Request) -> Result<()> {
        let request = encode(request)?;
        loop {
            match self.peer.send(&request, &[]) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.peer.wait(PollFlags::OUT, PATIENCE)?,
                Err(_) => return Err(gone("the producer's process has ended")),
            }
        }
    }

    /// Asks for an array. The inner error is that of an office that refuses; after any other, the connection is of no use.
    fn ask(&self, message: &Message, lacks: Lacks) -> Result<Result<(Given, Vec<OwnedFd>)>> {
        self.send(&Request::Open { nonce: message.nonce, lacks })?;
        let mut bytes = [0; MAX_BYTES + 1];
        let (length, files) = loop {
            self.peer.wait(PollFlags::IN, PATIENCE)?;
            match self.peer.receive(&mut bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) | Ok((0, _)) => return Err(gone("the producer's process has ended")),
                Ok(received) => break received,
            }
        };
        match decode(&bytes[..length])? {
            Answer::Refused(refusal) => Ok(Err(refusal.into())),
            Answer::Given(given) if given.place.0 < SLOTS => Ok(Ok((given, files))),
            Answer::Given(given) => {
                Err(malformed("answer", format_args!("slot {}", given.place.0), "a slot of the page"))
            }
        }
    }

    /// Returns a pool of the process. One of which memory is open here has its number alone: the producer keeps that memory.
    fn pool(&self, number: u64, file: &OwnedFd, device: Device) -> Result<Arc<ImportedPool>> {
        let (mut pools, key) = (lock(&self.pools), (number, device.device_id));
        if let Some(known) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let pool = ImportedPool::new(file, device)?;
        pools.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Makes a stream wait for the producer's work on an array, and returns the stream.
    fn await_ready(
        self: &Arc<Self>,
        turn: &Turn,
        device: Device,
        stream: Option<StreamHandle>,
    ) -> Result<StreamHandle> {
        let mut awaited = lock(&self.awaited);
        awaited.retain(|turn| !turn.is_ready());
        awaited.push(turn.clone());
        drop(awaited);
        let stream = await_number(turn.shared_ready(), stream, Context::primary(device.device_id)?, device);
        // The thread of the office may have seen the end of the process before.
        self.end_waits_if_gone();
        stream
    }

    /// If the process has ended, ends the waits for it, because it will write no number, and closes its blocks.
    pub(crate) fn end_waits_if_gone(self: &Arc<Self>) -> bool {
        let has_ended = self.peer.has_ended();
        if has_ended {
            lock(&self.awaited).drain(..).for_each(|turn| turn.set_ready());
            lock(&self.blocks).make_due();
            self.close_idle(Instant::now());
        }
        has_ended
    }

    /// Closes the blocks that have been idle for long enough, and returns when to look again.
    pub(crate) fn close_idle(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (closing, next) = lock(&self.blocks).take_idle(now);
        let connection = self.clone();
        // Blocks of the host are given back already.
        if closing.iter().any(|(_, last)| last.is_some()) {
            run_aside(move || connection.close(closing));
        }
        next
    }

    fn close(&self, closing: Vec<Closing>) {
        // First closed, then given back: the producer may free the block after that.
        for (block, last) in closing {
            drop(block);
            // A producer that is gone needs nothing back.
            last.map(|turn| self.send(&Request::Close(turn.place())));
        }
    }

    /// Whether anything of the process is mapped here.
    pub(crate) fn has_blocks(&self) -> bool {
        !lock(&self.blocks).is_empty()
    }

    /// Closes all idle blocks before it returns. Returns whether there were any.
    fn close_idle_blocks(&self) -> bool {
        let has_idle = lock(&self.blocks).make_due();
        let (closing, _) = lock(&self.blocks).take_idle(Instant::now());
        self.close(closing);
        has_idle
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotOffered => gone(
                "the array is no longer offered: it was opened as often as it may be, its time is over, or it was withdrawn",
            ),
            Refusal::NoSlot => {
                let found = format!("more than {SLOTS} arrays of one process");
                let allowed = format_args!("at most {SLOTS} that are open at a time").to_string();
                Self::new(ErrorKind::OutOfMemory, "parcel", found, allowed)
            }
            Refusal::Driver => gone("the producer's driver does not share the memory any more"),
        }
    }
}

/// Whether the process that has offered an array still runs.
pub(crate) fn is_alive(bytes: &[u8]) -> Result<bool> {
    match Connection::to(&Message::read(bytes)?.office) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Gone => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens an array of another process. Its memory is used on a stream, or on one of the library.
pub(crate) fn open(bytes: &[u8], stream: Option<StreamHandle>) -> Result<Import> {
    // The thread drops a connection that nobody uses any more, and nothing else may wake it.
    try_open(bytes, stream).inspect_err(|_| Office::wake_thread())
}

fn try_open(bytes: &[u8], stream: Option<StreamHandle>) -> Result<Import> {
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
    let (address, awaited) = match (array.block.as_deref(), &array.turn) {
        (Some(block), Some(turn)) => (block.address(), block.is_on_device().then_some(turn)),
        _ => unreachable!("a block, and a turn, until the drop"),
    };
    let nothing = Ok(StreamHandle::NothingPending);
    let stream = awaited.map_or(nothing, |turn| connection.await_ready(turn, device, stream))?;
    let (info, on_device) = (message.describe(address, device, stream)?, awaited.is_some());
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
    let (key, block) =
        lock(&connection.blocks).get(key).map_or((key, None), |(key, block)| (key, Some(block)));
    let mut array = OpenArray {
        connection: connection.clone(),
        key,
        block,
        turn: None,
        may_rest: false,
        is_number_queued: false,
    };
    let lacks = Lacks { page: visit.page.is_none(), block: array.block.is_none() };
    // Until an answer has come.
    visit.is_broken = true;
    let answer = connection.ask(message, lacks)?;
    visit.is_broken = false;
    let (given, files) = answer?;
    if let Err(error) = array.take(visit, &given, files, message, device) {
        // The array was not used, and may be opened again.
        visit.is_broken = connection.send(&Request::Refuse(given.place)).is_err();
        // Memory of a GPU ends with its process, a little earlier than the connection.
        let is_gone = error.kind() == ErrorKind::Driver && connection.peer.ends_within(DYING);
        return Err(if is_gone { gone("the producer's process has ended") } else { error });
    }
    Ok(array)
}

impl OpenArray {
    /// Maps what came with an answer, and checks it.
    fn take(
        &mut self,
        visit: &mut Visit,
        given: &Given,
        mut files: Vec<OwnedFd>,
        message: &Message,
        device: Device,
    ) -> Result<()> {
        // The message decides whether the memory is mapped for writes. A changed one must not.
        if given.is_read_only && !message.is_read_only {
            let found = "a message about a writable array, which its producer has shared for reading";
            return Err(Error::new(ErrorKind::ReadOnly, "parcel.flags", found, "the message as it was sent"));
        }
        if visit.page.is_none() && !files.is_empty() {
            visit.page = Some(Arc::new(Page::of_other(&files.remove(0))?));
        }
        let page = visit.page.clone().ok_or_else(|| no_descriptor("page"))?;
        let (slot, number) = given.place;
        let turn = Turn { page, slot, number };
        let block = if let Some(known) = &self.block {
            known.clone()
        } else {
            let map = || map(&self.connection, given.block.as_ref(), &files, message, device);
            // The driver refuses a block in whose place another one was mapped, and mappings are limited.
            let block =
                map().or_else(|error| if self.connection.close_idle_blocks() { map() } else { Err(error) });
            let block = Arc::new(block?);
            lock(&self.connection.blocks).insert(self.key, block.clone());
            self.block.insert(block).clone()
        };
        check(&block, message, device)?;
        match &*block {
            Opened::Device(block) => turn.page.register(block.context, device)?,
            Opened::Host(_) if turn.is_ready() => {}
            Opened::Host(_) => {
                let found = "a number that is not in the page";
                return Err(malformed("answer", found, "an array whose work is done"));
            }
        }
        (self.turn, self.may_rest) = (Some(turn), given.may_rest);
        Ok(())
    }
}

/// Maps the block of a message.
fn map(
    connection: &Connection,
    handle: Option<&Handle>,
    files: &[OwnedFd],
    message: &Message,
    device: Device,
) -> Result<Opened> {
    let (bytes, is_writable) = (message.block_bytes, !message.is_read_only);
    let first = || files.first().ok_or_else(|| no_descriptor("block"));
    let ipc_handle = |handle: &[u8]| {
        let handle =
            handle.try_into().map_err(|error| malformed("answer", error, "the 64 bytes of a handle"));
        handle.map(IpcHandle)
    };
    match (handle, device == Device::CPU) {
        (Some(Handle::File), _) => Mapping::of_other(first()?, bytes, is_writable).map(Opened::Host),
        (Some(Handle::Allocation(handle)), false) => {
            OpenedBlock::open(ipc_handle(handle)?, device, bytes).map(Opened::Device)
        }
        (Some(Handle::Pool(number, handle)), false) => {
            let (pool, handle) = (connection.pool(*number, first()?, device)?, ipc_handle(handle)?);
            OpenedBlock::open_of_pool(pool, handle, device, bytes).map(Opened::Device)
        }
        (Some(Handle::Pieces(sizes)), false) if sizes.len() == files.len() => {
            OpenedBlock::map(files, sizes, device, bytes, is_writable).map(Opened::Device)
        }
        (Some(Handle::Pieces(_)), false) => Err(no_descriptor("block")),
        (Some(_), true) => Err(other_memory("memory of a GPU", "memory of the host")),
        (None, _) => Err(malformed("answer", "no block", "what was asked for")),
    }
}

/// Checks that a block is the one of a message, which may have been changed to tell of another array's, or of another size.
fn check(block: &Opened, message: &Message, device: Device) -> Result<()> {
    // An array of a GPU without elements has no block there.
    let has_elements = message.shape.iter().all(|extent| *extent != 0);
    if block.is_on_device() != (device != Device::CPU) && has_elements {
        return Err(other_memory("memory of another kind", "that of the message"));
    }
    if block.bytes() as u64 != message.block_bytes {
        let (found, allowed) = (format!("{} bytes", message.block_bytes), block.bytes());
        return Err(Error::new(ErrorKind::OutOfBounds, "parcel.block", found, allowed));
    }
    Ok(())
}

/// The system drops descriptors for which a process has no room.
fn no_descriptor(what: &str) -> Error {
    let found = format!("no descriptor of the {what}");
    Error::new(ErrorKind::OutOfMemory, "parcel", found, "fewer open files in this process")
}

#[cold]
fn other_memory(found: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::Device, "parcel.kind", found, allowed)
}

impl EndsInNumber for OpenArray {
    fn number(&self) -> Option<SharedNumber> {
        self.turn.as_ref().map(Turn::shared_done)
    }

    fn was_queued(&mut self) {
        self.is_number_queued = true;
    }
}

impl Drop for OpenArray {
    fn drop(&mut self) {
        // A forked child gives nothing back that its parent has.
        let is_own = self.connection.process == std::process::id();
        let Some(block) = self.block.take().filter(|_| is_own) else { return };
        let turn = self.turn.take();
        turn.iter().filter(|_| !self.is_number_queued).for_each(Turn::set_done);
        let put_down = lock(&self.connection.blocks).put_down(self.key, block, turn, self.may_rest);
        let (request, is_unknown) = put_down;
        // A producer that is gone needs nothing back.
        request.map(|request| self.connection.send(&request));
        if is_unknown {
            Office::wake_thread();
        }
    }
}
