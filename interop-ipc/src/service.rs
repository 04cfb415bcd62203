//! The thread of the office: it waits for all connections at once, answers requests, and ends offers whose time is over.
//!
//! A visitor sends `OPEN` with a nonce and what it lacks, and gets a slot, a number, and the descriptors. `CLOSE` gives an array
//! back, `REFUSE` one that it could not map. The end of the connection or of the process gives back all.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::message::Nonce;
use crate::office::{Kept, Memory, Offer, Office, OpenedKept, Producer};
use crate::page::{Page, SLOTS};
use crate::socket::{Peer, accept};

/// The first byte of a request.
pub(crate) const OPEN: u8 = 1;
pub(crate) const CLOSE: u8 = 2;
pub(crate) const REFUSE: u8 = 3;
/// `OPEN`, the nonce, and what the visitor lacks.
pub(crate) const OPEN_BYTES: usize = 18;
/// `CLOSE` or `REFUSE`, the slot and the number.
pub(crate) const CLOSE_BYTES: usize = 13;
/// The answer to `OPEN`, what comes with it, whether the array is read-only, the kind of memory, the slot and the number.
pub(crate) const ANSWER_BYTES: usize = 16;
/// The kinds of memory: a sealed memory file; an allocation of a GPU, whose handle follows; pieces of memory of a GPU, whose sizes
/// follow, and which have one descriptor each.
pub(crate) const FILE: u8 = 0;
pub(crate) const HANDLE: u8 = 1;
pub(crate) const PIECES: u8 = 2;
pub(crate) const HANDLE_BYTES: usize = 64;
/// The descriptors that a visitor lacks and an answer has, in this order.
pub(crate) const PAGE: u8 = 1;
pub(crate) const BLOCK: u8 = 2;
/// The first byte of an answer.
pub(crate) const GIVEN: u8 = 0;
pub(crate) const NOT_OFFERED: u8 = 1;
pub(crate) const NO_SLOT: u8 = 2;
pub(crate) const REFUSED_BY_DRIVER: u8 = 3;

/// How long connections are not accepted after the descriptors were used up.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the thread looks for the numbers behind work that is not done yet.
const ROUND: Duration = Duration::from_micros(100);

/// A visitor's request that no visitor of this crate makes, or a connection that has ended.
struct End;

/// An array that a visitor has open.
struct Held {
    opened: OpenedKept,
    lease: u64,
}

/// How a visitor opens the memory of an array.
struct Given {
    kind: u8,
    /// What follows the first bytes of the answer.
    text: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// An array that was given back before the visitor's work on it was done.
struct Closing {
    slot: u32,
    number: u64,
    lease: u64,
    kept: Arc<Kept>,
}

/// A connection.
struct Visitor {
    peer: Peer,
    page: Arc<Page>,
    page_file: OwnedFd,
    /// For each slot that was used, the last number, and what is open there.
    slots: Vec<(u64, Option<Held>)>,
    free: Vec<u32>,
    closing: Vec<Closing>,
    has_left: bool,
}

/// Answers until the process ends.
pub(crate) fn run(office: &Office) {
    let (mut listeners, mut visitors) = (Vec::new(), Vec::<Visitor>::new());
    // Descriptors were used up: until then no connection is accepted, because a poll for them would return at once.
    let mut pause: Option<Instant> = None;
    loop {
        listeners.append(&mut office.state().new_listeners);
        let next = end_offers(office);
        let producers = running_producers(office);
        for visitor in &mut visitors {
            visitor.end_closing(office);
        }
        let is_closing =
            drop_last_arrays(office) | visitors.iter().any(|visitor| !visitor.closing.is_empty());
        let round = is_closing.then(|| Instant::now() + ROUND);
        pause = pause.filter(|end| *end > Instant::now());
        let until = pause.into_iter().chain(next).chain(round).min();
        let ready = wait(office, &listeners, &visitors, &producers, pause.is_some(), until);
        drain(&office.wake);
        for index in ready.visitors {
            let visitor: &mut Visitor = &mut visitors[index];
            if visitor.peer.has_ended() || visitor.answer(office).is_err() {
                visitor.leave(office);
            }
        }
        visitors.retain(|visitor| !visitor.has_left);
        for index in ready.listeners {
            if accept_all(&listeners[index], &mut visitors).is_err() {
                pause = Some(Instant::now() + PAUSE);
            }
        }
    }
}

/// Drops the offers whose time is over, and returns when the next one ends.
fn end_offers(office: &Office) -> Option<Instant> {
    let now = Instant::now();
    let mut state = office.state();
    let is_over = |offer: &Offer| offer.kept.expires <= now;
    let over: Vec<_> =
        state.offers.iter().filter(|(_, offer)| is_over(offer)).map(|(nonce, _)| *nonce).collect();
    let ended: Vec<_> = over.iter().filter_map(|nonce| state.offers.remove(nonce)).collect();
    let next = state.offers.values().map(|offer| offer.kept.expires).min();
    drop(state);
    // The owners run code of the program.
    drop(ended);
    next
}

/// Gives back what is done. Returns whether anything is left.
fn drop_last_arrays(office: &Office) -> bool {
    let mut state = office.state();
    let arrays = core::mem::take(&mut state.last_arrays);
    let (done, left): (Vec<_>, Vec<_>) = arrays.into_iter().partition(|array| array.is_done());
    let is_left = !left.is_empty();
    state.last_arrays = left;
    drop(state);
    // The driver may take long to close a block.
    drop(done);
    is_left
}

/// Ends the waits for producers that have ended, and returns those that still run.
fn running_producers(office: &Office) -> Vec<Arc<dyn Producer>> {
    let mut state = office.state();
    let mut running = Vec::new();
    let mut ended = Vec::new();
    state.producers.retain(|producer| {
        let Some(producer) = Weak::upgrade(producer) else { return false };
        let has_ended = producer.peer().has_ended();
        if has_ended { &mut ended } else { &mut running }.push(producer);
        !has_ended
    });
    drop(state);
    for producer in ended {
        producer.end_waits();
    }
    running
}

/// What can be read, by index.
#[derive(Default)]
struct Ready {
    listeners: Vec<usize>,
    visitors: Vec<usize>,
}

/// Waits for a request, a connection, the end of a visitor, or a time.
fn wait(
    office: &Office,
    listeners: &[OwnedFd],
    visitors: &[Visitor],
    producers: &[Arc<dyn Producer>],
    is_paused: bool,
    until: Option<Instant>,
) -> Ready {
    let listeners = if is_paused { &[] } else { listeners };
    let mut polled = vec![PollFd::new(&office.wake, PollFlags::IN)];
    polled.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
    for Visitor { peer, .. } in visitors {
        polled.push(PollFd::new(&peer.socket, PollFlags::IN));
        // A visitor in a container has the socket twice.
        polled.push(PollFd::new(peer.process.as_ref().unwrap_or(&peer.socket), PollFlags::IN));
    }
    for peer in producers.iter().map(|producer| producer.peer()) {
        // Its answers are for those who have asked.
        let (process, awaited) = match &peer.process {
            Some(process) => (process, PollFlags::IN),
            None => (&peer.socket, PollFlags::RDHUP),
        };
        polled.push(PollFd::new(process, awaited));
    }
    // Not a little too early.
    let left = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_micros(10));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    // An error, such as an interruption, is as if nothing were ready: the loop goes on.
    if poll(&mut polled, timeout.as_ref()).is_err() {
        return Ready::default();
    }
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    let first = 1 + listeners.len();
    let of_visitors = polled[first..first + 2 * visitors.len()].chunks(2);
    Ready {
        listeners: (0..listeners.len()).filter(|index| is_ready(&polled[1 + index])).collect(),
        visitors: of_visitors
            .enumerate()
            .filter(|(_, both)| both.iter().any(is_ready))
            .map(|(index, _)| index)
            .collect(),
    }
}

fn drain(wake: &OwnedFd) {
    // It does not block, and an empty counter is no mistake.
    let _ = rustix::io::read(wake, &mut [0; 8]);
}

/// Accepts the connections that wait. Fails if descriptors or memory are used up.
fn accept_all(listener: &OwnedFd, visitors: &mut Vec<Visitor>) -> Result<(), Errno> {
    loop {
        match accept(listener) {
            // Another user, or a process that has ended, gets no answer: the connection is closed.
            Ok(socket) => visitors.extend(Peer::of(socket).ok().and_then(Visitor::new)),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}

impl Visitor {
    fn new(peer: Peer) -> Option<Self> {
        let (page, page_file) = Page::new().ok()?;
        let (slots, free, closing) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self { peer, page: Arc::new(page), page_file, slots, free, closing, has_left: false })
    }

    /// Receives one request, and answers it.
    fn answer(&mut self, office: &Office) -> Result<(), End> {
        let mut request = [0; OPEN_BYTES + 1];
        let (bytes, descriptors) = match self.peer.receive(&mut request) {
            Ok(received) => received,
            // Nothing yet: the end of the process woke the thread, or a signal.
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(End),
        };
        // A visitor has no reason to send descriptors. They are closed here.
        drop(descriptors);
        match (bytes, request[0]) {
            (OPEN_BYTES, OPEN) => {
                let nonce = core::array::from_fn(|index| request[1 + index]);
                self.open(office, nonce, request[OPEN_BYTES - 1])
            }
            (CLOSE_BYTES, CLOSE | REFUSE) => {
                let slot = u32::from_le_bytes(core::array::from_fn(|index| request[1 + index]));
                let number = u64::from_le_bytes(core::array::from_fn(|index| request[5 + index]));
                self.close(office, slot, number, request[0] == REFUSE)
            }
            _ => Err(End),
        }
    }

    /// Gives an array to the visitor, if it is offered.
    fn open(&mut self, office: &Office, nonce: Nonce, lacks: u8) -> Result<(), End> {
        // Calls of the driver may take long, so the state is not locked meanwhile. Offers are opened by this thread alone.
        let Some(opened) = office.state().offered(&nonce) else {
            return self.send([NOT_OFFERED, 0, 0, 0], 0, 0, &[], &[]);
        };
        // Only an offer takes a slot, so refusals use none up.
        let Some(slot) = self.free.pop().or_else(|| self.new_slot()) else {
            return self.send([NO_SLOT, 0, 0, 0], 0, 0, &[], &[]);
        };
        let place = slot as usize;
        let number = self.slots[place].0 + 1;
        self.slots[place].0 = number;
        let kept = opened.kept();
        let Ok(Given { kind, text, files }) = self.make_ready(&kept.memory, slot, number, lacks) else {
            self.free.push(slot);
            return self.send([REFUSED_BY_DRIVER, 0, 0, 0], 0, 0, &[], &[]);
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        if lacks & PAGE != 0 {
            descriptors.push(self.page_file.as_fd());
        }
        if let (Memory::Host(block), true) = (&kept.memory, lacks & BLOCK != 0) {
            descriptors.push(block.file.as_fd());
        }
        descriptors.extend(files.iter().map(AsFd::as_fd));
        let head = [GIVEN, lacks & (PAGE | BLOCK), kept.is_read_only.into(), kind];
        self.send(head, slot, number, &text, &descriptors)?;
        let lease = office.state().note_opened(&nonce, self.peer.number);
        self.slots[place].1 = Some(Held { opened, lease });
        Ok(())
    }

    /// Writes the number behind the work on an array, and returns what the visitor needs to open memory of a GPU.
    fn make_ready(&self, memory: &Memory, slot: u32, number: u64, lacks: u8) -> interop_core::Result<Given> {
        let Memory::Device(block, work) = memory else {
            // The host's work on the array was done when it was offered.
            self.page.set_ready(slot, number);
            return Ok(Given { kind: FILE, text: Vec::new(), files: Vec::new() });
        };
        let is_lacking = lacks & BLOCK != 0;
        let given = if block.is_mapped() {
            let files = if is_lacking { block.descriptors()? } else { Vec::new() };
            Given { kind: PIECES, text: block.sizes().flat_map(u64::to_le_bytes).collect(), files }
        } else {
            // Zeros if the visitor does not need it.
            let handle = if is_lacking { block.handle()?.0 } else { [0; HANDLE_BYTES] };
            Given { kind: HANDLE, text: handle.to_vec(), files: Vec::new() }
        };
        self.page.register(block.context(), block.device())?;
        work.end_in(self.page.shared_ready(slot, number))?;
        Ok(given)
    }

    fn new_slot(&mut self) -> Option<u32> {
        let slot = u32::try_from(self.slots.len()).ok()?;
        (slot < SLOTS).then(|| self.slots.push((0, None)))?;
        Some(slot)
    }

    /// Sends the first bytes of an answer, a slot and a number, and a handle.
    fn send(
        &self,
        head: [u8; 4],
        slot: u32,
        number: u64,
        handle: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), End> {
        let bytes = [&head, &slot.to_le_bytes()[..], &number.to_le_bytes(), handle].concat();
        self.peer.send(&bytes, descriptors).map_err(|_| End)
    }

    /// Takes an array back. If the visitor could not map it, it may be opened once more.
    fn close(&mut self, office: &Office, slot: u32, number: u64, is_refused: bool) -> Result<(), End> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.0 == number).ok_or(End)?;
        let held = place.1.take().ok_or(End)?;
        if !is_refused && !self.page.is_done(slot, number) {
            let Held { opened, lease } = held;
            // A visitor that gives back what its host still uses breaks the protocol. A GPU goes on, and writes the number.
            let on_device = matches!(opened.kept().memory, Memory::Device(..));
            let kept = opened.await_number(&self.page, slot, number);
            self.closing.push(Closing { slot, number, lease, kept });
            return if on_device { Ok(()) } else { Err(End) };
        }
        self.free.push(slot);
        let mut state = office.state();
        state.leases.remove(&held.lease);
        if is_refused && !held.opened.kept().is_withdrawn() {
            let kept = held.opened.kept().clone();
            state.offers.entry(kept.nonce).or_insert(Offer { kept, left: 0 }).left += 1;
        }
        drop(state);
        // The owner runs code of the program.
        drop(held);
        Ok(())
    }

    /// Takes back what was given back and is done.
    fn end_closing(&mut self, office: &Office) {
        let next = |closing: &[Closing], page: &Page| {
            closing.iter().position(|closing| page.is_done(closing.slot, closing.number))
        };
        while let Some(at) = next(&self.closing, &self.page) {
            let done = self.closing.swap_remove(at);
            self.free.push(done.slot);
            office.state().leases.remove(&done.lease);
            // The owner runs code of the program.
            drop(done.kept);
        }
    }

    /// Gives back all that the visitor has open.
    fn leave(&mut self, office: &Office) {
        let closing: Vec<_> = self.closing.drain(..).collect();
        for one in &closing {
            // Its work has ended with it, and streams may wait for the number.
            self.page.set_done(one.slot, one.number);
        }
        let held: Vec<_> = self.slots.drain(..).filter_map(|place| place.1).collect();
        let mut state = office.state();
        for lease in held.iter().map(|one| one.lease).chain(closing.iter().map(|one| one.lease)) {
            state.leases.remove(&lease);
        }
        drop(state);
        drop((held, closing));
        self.has_left = true;
    }
}
