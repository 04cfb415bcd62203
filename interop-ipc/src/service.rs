//! The thread of the office: it waits for all connections at once, answers requests, and ends offers whose time is over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::message::{MAX_BYTES, Nonce, decode, encode};
use crate::office::{Held, Memory, Offer, Office, ROUND};
use crate::page::{Page, SLOTS, Turn};
use crate::protocol::{Answer, Given, Handle, Lacks, Place, Refusal, Request};
use crate::socket::{Peer, accept};
use crate::visit::Connection;

/// How long connections are not accepted after the descriptors were used up.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a process may run after its connection has ended: as long as its files are closed, one by one, and for ever if it runs another
/// program or has broken the protocol. Its end is not seen if it is in a container that hides its number.
const LEAVING: Duration = Duration::from_secs(1);

/// A visitor's request that no visitor of this crate makes, or a connection that has ended.
struct End;

/// A connection.
struct Visitor {
    peer: Peer,
    page: Arc<Page>,
    page_file: OwnedFd,
    /// For each slot that was used, the last number, and what is open there.
    slots: Vec<(u64, Option<Held>)>,
    free: Vec<u32>,
    /// What was given back before the visitor's work on it was done.
    closing: Vec<(Turn, Held)>,
    /// Since when the connection has ended.
    hung_up: Option<Instant>,
}

/// Answers until the process ends.
pub(crate) fn run(office: &Office) {
    let (mut listeners, mut visitors) = (Vec::new(), Vec::<Visitor>::new());
    let mut leaving = Vec::<Visitor>::new();
    // Descriptors were used up: until then no connection is accepted, because a poll for them would return at once.
    let mut pause: Option<Instant> = None;
    loop {
        listeners.append(&mut office.state().new_listeners);
        let (producers, idle) = running_producers(office);
        visitors.iter_mut().for_each(Visitor::end_closing);
        leaving.retain_mut(|visitor| !visitor.has_left());
        let is_closing = visitors.iter().any(|visitor| !visitor.closing.is_empty());
        let round = (is_closing || !leaving.is_empty()).then(|| Instant::now() + ROUND);
        pause = pause.filter(|end| *end > Instant::now());
        let until = [pause, end_offers(office), idle, round].into_iter().flatten().min();
        let ready = wait(office, &listeners, &visitors, &producers, pause.is_some(), until);
        // It does not block, and an empty counter is no mistake.
        let _ = rustix::io::read(&office.wake, &mut [0; 8]);
        for index in ready.visitors {
            let visitor: &mut Visitor = &mut visitors[index];
            if visitor.peer.has_ended() || visitor.answer(office).is_err() {
                visitor.hang_up();
            }
        }
        let (hung_up, connected): (Vec<_>, Vec<_>) =
            visitors.into_iter().partition(|visitor| visitor.hung_up.is_some());
        visitors = connected;
        leaving.extend(hung_up);
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
    if state.next_end.is_none_or(|end| end > now) {
        return state.next_end;
    }
    let is_over = |offer: &Offer| offer.kept.expires <= now;
    let over: Vec<_> =
        state.offers.iter().filter(|(_, offer)| is_over(offer)).map(|(nonce, _)| *nonce).collect();
    let ended: Vec<_> = over.iter().filter_map(|nonce| state.offers.remove(nonce)).collect();
    state.next_end = state.offers.values().map(|offer| offer.kept.expires).min();
    let next = state.next_end;
    drop(state);
    // The owners run code of the program.
    drop(ended);
    next
}

/// Ends the waits for producers that have ended, closes idle blocks, and returns the producers that still run, and when the next block
/// is to be closed.
fn running_producers(office: &Office) -> (Vec<Arc<Connection>>, Option<Instant>) {
    let mut producers = office.state().producers.clone();
    let now = Instant::now();
    let next = producers.iter().filter_map(|producer| producer.close_idle(now)).min();
    producers.retain(|producer| !producer.end_waits_if_gone());
    // Nothing uses the others any more: the blocks of one that has ended are closed by now.
    let here = |producer: &Arc<Connection>| {
        producers.iter().filter(|running| Arc::ptr_eq(running, producer)).count()
    };
    let is_used = |producer: &Arc<Connection>| {
        Arc::strong_count(producer) > 1 + here(producer) || producer.has_blocks()
    };
    office.state().producers.retain(is_used);
    (producers, next)
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
    producers: &[Arc<Connection>],
    is_paused: bool,
    until: Option<Instant>,
) -> Ready {
    let listeners = if is_paused { &[] } else { listeners };
    let mut polled = vec![PollFd::new(&office.wake, PollFlags::IN)];
    polled.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
    for Visitor { peer, .. } in visitors {
        polled.push(PollFd::new(&peer.socket, PollFlags::IN));
        polled.push(peer.end());
    }
    // Its answers are for those who have asked.
    polled.extend(producers.iter().map(|producer| producer.peer.end()));
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
        Some(Self { peer, page: Arc::new(page), page_file, slots, free, closing, hung_up: None })
    }

    /// Receives one request, and answers it.
    fn answer(&mut self, office: &Office) -> Result<(), End> {
        let mut request = [0; 64];
        let (bytes, descriptors) = match self.peer.receive(&mut request) {
            Ok(received) => received,
            // Nothing yet: the end of the process woke the thread, or a signal.
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(End),
        };
        // A visitor has no reason to send descriptors. They are closed here.
        drop(descriptors);
        match decode(&request[..bytes]).map_err(|_| End)? {
            Request::Open { nonce, lacks } => self.open(office, nonce, lacks),
            Request::Close(place) => self.close(place),
            Request::Refuse(place) => {
                let held = self.take(place)?;
                self.free.push(place.0);
                held.offer_again(office);
                Ok(())
            }
            Request::Rest(place, before) => {
                self.rest(place);
                before.map_or(Ok(()), |before| self.close(before))
            }
        }
    }

    /// Gives an array to the visitor, if it is offered.
    fn open(&mut self, office: &Office, nonce: Nonce, lacks: Lacks) -> Result<(), End> {
        // Calls of the driver may take long, so the state is not locked meanwhile. Offers are opened by this thread alone.
        let held = office.state().offered(&nonce, self.peer.number);
        let Some(held) = held else { return self.send(&Answer::Refused(Refusal::NotOffered), &[]) };
        // Only an offer takes a slot, so refusals use none up.
        let Some(slot) = self.free.pop().or_else(|| self.new_slot()) else {
            return self.send(&Answer::Refused(Refusal::NoSlot), &[]);
        };
        let number = &mut self.slots[slot as usize].0;
        *number += 1;
        let turn = Turn { page: self.page.clone(), slot, number: *number };
        let kept = held.kept();
        let Ok((handle, files)) = make_ready(&kept.memory, &turn, lacks) else {
            self.free.push(slot);
            return self.send(&Answer::Refused(Refusal::Driver), &[]);
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        if lacks.page {
            descriptors.push(self.page_file.as_fd());
        }
        if let (Memory::Host(block), true) = (&kept.memory, lacks.block) {
            descriptors.push(block.file.as_fd());
        }
        descriptors.extend(files.iter().map(AsFd::as_fd));
        let (place, is_read_only, may_rest) = ((slot, turn.number), kept.is_read_only, kept.may_rest);
        self.send(&Answer::Given(Given { place, is_read_only, may_rest, block: handle }), &descriptors)?;
        office.state().note_opened(&nonce);
        self.slots[slot as usize].1 = Some(held);
        Ok(())
    }

    fn new_slot(&mut self) -> Option<u32> {
        let slot = u32::try_from(self.slots.len()).ok()?;
        (slot < SLOTS).then(|| self.slots.push((0, None)))?;
        Some(slot)
    }

    fn send(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> Result<(), End> {
        let bytes = encode(answer).ok().filter(|bytes| bytes.len() <= MAX_BYTES).ok_or(End)?;
        self.peer.send(&bytes, descriptors).map_err(|_| End)
    }

    /// Takes what is open in a slot.
    fn take(&mut self, (slot, number): Place) -> Result<Held, End> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.0 == number);
        place.and_then(|place| place.1.take()).ok_or(End)
    }

    /// Takes an array back, once the visitor's work on it is done.
    fn close(&mut self, place: Place) -> Result<(), End> {
        let mut held = self.take(place)?;
        let turn = Turn { page: self.page.clone(), slot: place.0, number: place.1 };
        // A visitor that gives back what its host still uses breaks the protocol. A GPU goes on, and writes the number.
        let breaks_protocol = !turn.is_done() && matches!(held.kept().memory, Memory::Host(_));
        held.end_use(&turn);
        self.closing.push((turn, held));
        self.end_closing();
        if breaks_protocol { Err(End) } else { Ok(()) }
    }

    /// Ends the use of an array whose block stays mapped. It may have been closed already, in the place of another one.
    fn rest(&mut self, (slot, number): Place) {
        if let Some((last, Some(held))) = self.slots.get_mut(slot as usize) {
            if *last == number {
                held.end_use(&Turn { page: self.page.clone(), slot, number });
            }
        }
    }

    /// Gives up what was given back and is done. The owners run code of the program.
    fn end_closing(&mut self) {
        while let Some(at) = self.closing.iter().position(|(turn, _)| turn.is_done()) {
            let (turn, _held) = self.closing.swap_remove(at);
            self.free.push(turn.slot);
        }
    }

    /// Ends the connection.
    fn hang_up(&mut self) {
        // It fails if the visitor has ended it.
        let _ = rustix::net::shutdown(&self.peer.socket, Shutdown::Both);
        self.hung_up = Some(Instant::now());
    }

    /// Whether the process has ended, or has nothing open. Then all is given back. Before that, its GPU may go on: the system may close its
    /// socket before it closes the files of the GPU.
    fn has_left(&mut self) -> bool {
        let is_late = self.hung_up.is_some_and(|since| since.elapsed() >= LEAVING);
        let has_open = !self.closing.is_empty() || self.slots.iter().any(|(_, held)| held.is_some());
        if has_open && !is_late && !self.peer.process_has_ended() {
            return false;
        }
        // Its work has ended with it, and streams may wait for the numbers.
        for (slot, (number, _)) in (0..).zip(&self.slots) {
            Turn { page: self.page.clone(), slot, number: *number }.set_done();
        }
        self.closing.clear();
        self.slots.clear();
        true
    }
}

/// Writes the number behind the work on an array, and returns what the visitor needs to open memory of a GPU.
fn make_ready(
    memory: &Memory,
    turn: &Turn,
    lacks: Lacks,
) -> interop_core::Result<(Option<Handle>, Vec<OwnedFd>)> {
    let Memory::Device(block, work) = memory else {
        // The host's work on the array was done when it was offered.
        turn.set_ready();
        return Ok((lacks.block.then_some(Handle::File), Vec::new()));
    };
    let given = lacks.block.then(|| block.handle()).transpose()?;
    turn.page.register(block.context, block.device)?;
    work.end_in(turn.shared_ready())?;
    Ok(given.map_or((None, Vec::new()), |(handle, files)| (Some(handle), files)))
}
